"""Random programs over whole arrays, on the CPU, as the code of a GPU, and on one."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from tests.fuzz.array_programs import differs, program, tried
from tests.sampling import few

CASES = list(itertools.product(range(40), ("cpu", "sm_90a", "sm_80")))
"""Programs of a block of seeds, on a target."""


@pytest.mark.parametrize(("block", "where"), CASES)
@pytest.mark.sample(1)
def test_programs_are_what_numpy_has(
    block: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", "" if where == "cpu" else where)
    for seed in range(5 * block, 5 * block + 5):
        what, said = tried(seed)
        assert what == "right" or what.startswith("refused"), f"seed {seed}: {what}: {said}"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, 20))]
)
def test_programs_on_a_gpu(block: int) -> None:
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        what, said = tried(seed, "cuda")
        assert what == "right" or what.startswith("refused"), f"seed {seed}: {what}: {said}"


def test_most_programs_are_not_refused(whole: bool) -> None:
    """A generator of what is refused would find nothing."""
    counts = Counter(tried(seed)[0] for seed in few(range(600, 640), 14, whole))
    assert counts["right"] >= 0.85 * counts.total(), counts


def test_programs_have_what_they_are_for() -> None:
    text = "".join(program(seed).source for seed in range(300))
    for part in ("op.sum(", "op.max(", "keepdims=True", "axis=(", "op.transpose(", "op.triu(", "@",
                 "op.cumsum(", "op.argmax(",
                 "op.roll(", "op.take(", "op.tile(", "op.sort(", "op.reshape(", "op.einsum(",
                 "op.clip(", "op.sign(", "op.where(", "f8e5m2[", "bf16[", "i8[",
                 "+= ", "= op.empty(", "for _ in range("):  # fmt: skip
        assert part in text, part


def test_a_difference_of_one_bit_is_one() -> None:
    zeros = np.zeros(3, np.float32)
    assert differs(zeros, -zeros) and not differs(zeros, zeros.copy())
    assert differs(zeros, zeros.astype(np.float64)) and differs(zeros, zeros[:2])
    nan = np.full(3, np.nan, np.float32)
    assert not differs(nan, -nan) and differs(nan, zeros)
