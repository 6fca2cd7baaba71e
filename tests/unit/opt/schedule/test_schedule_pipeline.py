"""What is decided for a machine: choices, origins, remarks, refusals."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tessera_lang.ir.core import Attribute, Operation, Program, TileType
from tessera_lang.opt.schedule.query.decision_context import origins_of
from tessera_lang.opt.schedule.query.kernel_facts import open_names
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, F8E4M3, F32
from tests.unit.opt.schedule.decided import decide, decided
from tests.unit.opt.schedule.programs import Kernel, attention, matmul


def staged(kernel: Operation) -> list[tuple[object, object, object]]:
    return [
        (o.attributes.get("stage"), o.attributes.get("copy"), o.attributes.get("stages"))
        for o in kernel.walk() if o.name.endswith("schedule.load")
    ]  # fmt: skip


def units(kernel: Operation) -> list[object]:
    return [o.attributes.get("unit") for o in kernel.walk() if o.name.endswith("schedule.dot")]


def test_a_large_product_on_hopper() -> None:
    kernel, remarks = decided(matmul(8192, 8192, 8192))
    found = kernel.attributes
    assert found["tile"] == (128, 256, 64)
    assert found["roles"] == (4, 8)
    assert found["registers"] == (40, 232)
    assert found["cluster"] == (2, 1)
    assert found["persistent"] is True
    assert (found["order"], found["group_rows"], found["subtile"]) == ("grouped", 8, 64)
    assert staged(kernel) == [("shared", "tma", 4)] * 2
    assert units(kernel) == ["wgmma"]
    assert not remarks
    assert set(origins_of(kernel).values()) == {"cost model"}
    assert not open_names(kernel)


def test_what_the_user_says_stays() -> None:
    said: Mapping[str, Attribute] = {
        "tile": (64, 128, 64),
        "pipeline_stages": 3,
        "persistent": False,
    }
    kernel, remarks = decided(matmul(attributes=said))
    assert {n: kernel.attributes[n] for n in said} == said
    assert not any(n in said for n in origins_of(kernel) if origins_of(kernel)[n] != "user")
    assert staged(kernel) == [("shared", "tma", 3)] * 2
    assert not remarks


def test_part_of_a_tile_is_said() -> None:
    kernel, _ = decided(matmul(attributes={"tile": (128, 128)}))
    tile = kernel.attributes["tile"]
    assert isinstance(tile, tuple)
    assert tile[:2] == (128, 128)
    assert len(tile) == 3


@pytest.mark.parametrize(
    ("arch", "unit", "copy"), [("sm_90a", "wgmma", "tma"), ("sm_80", "mma", "async")]
)
def test_units_and_copies_of_a_machine(arch: str, unit: str, copy: str) -> None:
    kernel, _ = decided(matmul(), arch)
    assert units(kernel) == [unit]
    assert {c for _, c, _ in staged(kernel)} == {copy}


def copied_for(reason: str) -> str:
    start = "`a` is copied once before the launch, to lines that begin at multiples of 128 bytes"
    return f"{start}: {reason}"


@pytest.mark.parametrize("k", [4095, 4098])
def test_a_pitch_that_tma_cannot_take(k: int) -> None:
    """Each element is moved for many tiles: an aligned copy pays."""
    kernel, remarks = decided(matmul(4096, 4096, k))
    assert units(kernel) == ["wgmma"]
    assert {c for _, c, _ in staged(kernel)} == {"tma"}
    assert all(o.attributes["repack"] for o in kernel.walk() if o.attributes.get("copy"))
    text = copied_for("the row pitch of `a` is no multiple of 16 bytes")
    assert text in [d.message for d in remarks]
    assert all(d.severity == "note" for d in remarks)
    assert "roles" in kernel.attributes


@pytest.mark.parametrize(("n", "first", "copy"), [(4095, "async", "plain"), (4098, "tma", "async")])
def test_a_pitch_of_what_is_read_once(n: int, first: str, copy: str) -> None:
    """Where one tile is loaded element by element there are no roles, and nobody issues TMA."""
    kernel = matmul(64, n, 4096, transposed=False, attributes={"tile": (64, 128, 64)})
    found, remarks = decided(kernel)
    assert [c for _, c, _ in staged(found)] == [first, copy]
    text = "not TMA: the row pitch of `b` is no multiple of 16 bytes"
    assert text in [d.message for d in remarks]
    assert ("roles" in found.attributes) == (copy == "async")


def test_an_array_that_is_not_aligned() -> None:
    _, remarks = decided(matmul(aligned=2))
    text = copied_for("`a` does not begin at a multiple of 16 bytes")
    assert text in [d.message for d in remarks]


def test_shared_memory_is_refused() -> None:
    said: Mapping[str, Attribute] = {"tile": (128, 256, 64), "pipeline_stages": 6}
    _, remarks = decided(matmul(attributes=said))
    (error,) = [d for d in remarks if d.severity == "error"]
    assert error.code == "T0740"
    assert "`a`: 6 x 128 x 64 bf16 = 98304 bytes" in error.notes
    assert "`b`: 6 x 256 x 64 bf16 = 196608 bytes" in error.notes
    assert error.helps[0] == "`schedule.pipeline_stages(4)` fits"


def test_registers_are_refused() -> None:
    _, remarks = decided(matmul(attributes={"tile": (256, 256, 64)}))
    (error,) = [d for d in remarks if d.severity == "error"]
    assert error.code == "T0741"
    assert "256 registers" in error.message
    assert "make `schedule.tile((256, 256, 64))` smaller" in error.helps


def test_refused_within_20_ms() -> None:
    said: Mapping[str, Attribute] = {"tile": (256, 256, 64), "pipeline_stages": 8}
    made = matmul(attributes=said)
    passes = decide(machine_named("cuda", "sm_90a"))
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        program = made.program
        for one in passes:
            program = one.run(program)
        best = min(best, time.perf_counter() - start)
    assert best < 0.02


@pytest.mark.parametrize(
    ("name", "value", "kernel", "reason"),
    [
        (
            "warp_specialize",
            True,
            matmul(256, 256, dtype=F32),
            "not every product is done by wgmma",
        ),
        ("padding", 1, matmul(), "a swizzle avoids the conflicts"),
        ("cluster", (2, 2), matmul(), "along one axis"),
        ("cluster", (16, 1), matmul(), "at most 8 groups"),
        ("warps", 6, matmul(), "warp groups of 4"),
        ("persistent", True, matmul(256, 256, dtype=F32), "not split into producer and consumers"),
    ],
)
def test_what_cannot_be_honoured_is_said(
    name: str, value: Attribute, kernel: Kernel, reason: str
) -> None:
    attributes = {**kernel.program.operations[0].attributes, name: value}
    operation = kernel.program.operations[0]
    made = Operation(operation.name, (), (), attributes, operation.regions)
    found, remarks = decided(Kernel(Program("schedule", (made,)), kernel.plan))
    (remark,) = [d for d in remarks if d.code == "T0742"]
    assert reason in remark.message
    assert origins_of(found)[name] == "legality"


def test_a_tile_that_matrix_units_cannot_take() -> None:
    kernel, remarks = decided(matmul(attributes={"tile": (64, 300, 32)}))
    assert units(kernel) == ["mma"]
    (remark,) = (r for r in remarks if r.code == "T0744")
    assert "its 304 columns are no multiple of 16 up to 256" in remark.message


def test_eight_bits_in_another_order_are_the_first_operand() -> None:
    """Which lanes read from shared memory: the unit reads only contiguous contractions."""
    right, _ = decided(matmul(dtype=F8E4M3, out=BF16))
    assert units(right) == ["wgmma"]
    assert "swap" not in right.attributes
    other, _ = decided(matmul(dtype=F8E4M3, out=BF16, transposed=False))
    assert units(other) == ["wgmma"]
    assert other.attributes["swap"] is True


def test_chained_products() -> None:
    kernel, remarks = decided(attention())
    assert kernel.attributes["roles"] == (4, 8)
    assert set(units(kernel)) == {"wgmma"}
    assert "order" not in kernel.attributes  # neighbours share nothing along both axes
    assert {s for s, _, _ in staged(kernel)} == {"shared"}
    assert [d.code for d in remarks] == ["T0748"]


def test_on_the_cpu_nothing_is_staged() -> None:
    kernel, remarks = decided(matmul(), "cpu")
    assert {s for s, _, _ in staged(kernel)} == {None}
    assert "roles" not in kernel.attributes
    assert not remarks


def test_no_open_size_is_left() -> None:
    for arch in ("sm_90a", "sm_80", "cpu"):
        kernel, _ = decided(matmul(100, 50, 7), arch)
        for operation in kernel.walk():
            for value in operation.results:
                if isinstance(value.type, TileType):
                    assert value.type.sizes
