"""What parts one row kernel from another is what it loads, holds and computes: neighbours of the
library's softmax and norms, by the estimates of registers and of bytes."""

from __future__ import annotations

import pytest

from tessera_lang.target.machine import Machine, machine_named
from tests.unit.opt.schedule.canonical.test_unit_axes import made


def attributes(name: str, n: int, arch: str = "sm_90a") -> dict[str, object]:
    (kernel,) = made(name, False, 1024, n, arch).schedule.operations
    return dict(kernel.attributes)


@pytest.mark.parametrize(
    ("name", "warps"),
    [("softmax", 16), ("log_softmax", 16), ("masked_softmax", 16), ("scaled", 16), ("rmsnorm", 16),
     ("two_weights", 8), ("layernorm", 8), ("residual", 8)],
)  # fmt: skip
def test_a_full_multiprocessor_where_its_registers_suffice(name: str, warps: int) -> None:
    """64 bytes of a row in a lane, and what is loaded beside it, in 32 registers."""
    assert attributes(name, 8192)["warps"] == warps


@pytest.mark.sample(1)
@pytest.mark.parametrize("n", [40000, 65536, 131072])
def test_a_mask_takes_no_registers_of_the_row(n: int) -> None:
    words = ("warps", "cluster", "registers", "persistent")
    plain, masked = (attributes(name, n) for name in ("softmax", "masked_softmax"))
    assert [masked.get(w) for w in words] == [plain.get(w) for w in words]


def kept(name: str, arch: str) -> bool:
    found = made(name, False, 1024, 131072, arch)
    return any(o.attributes.get("kept") for o in found.schedule.operations[0].walk())


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arch", "stays"),
    [("H200", {"two_weights", "layernorm", "residual"}), ("H100", set[str]()),
     ("sm_90a", {"two_weights", "layernorm"})],
)  # fmt: skip
def test_weights_are_kept_where_the_cache_gives_less_than_memory(
    arch: str, stays: set[str]
) -> None:
    """Bytes that a row reads, over what the cache gives, beside bytes that only it moves, over what
    memory gives: the faster the memory, the sooner is the cache the bound."""
    names = ("softmax", "rmsnorm", "two_weights", "layernorm", "residual")
    assert {name for name in names if kept(name, arch)} == stays


def test_a_machine_says_how_many_warps_it_has() -> None:
    found: list[Machine] = [machine_named("cuda", name) for name in ("sm_90a", "sm_120")]
    assert [m.warps for m in found] == [64, 48]
