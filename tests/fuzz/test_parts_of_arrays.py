"""Random element-wise statements on parts of arrays: as NumPy, and cut into groups that fit."""

from __future__ import annotations

import itertools

import pytest

from tests.fuzz.parts_of_arrays import divided, program, tried

CASES = list(itertools.product(range(40), ("cpu", "sm_90a", "sm_80")))
"""Programs of a block of seeds, on a target."""


@pytest.mark.parametrize(("block", "where"), CASES)
@pytest.mark.sample(1)
def test_statements_are_what_numpy_has(
    block: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", "" if where == "cpu" else where)
    for seed in range(8 * block, 8 * block + 8):
        what, said = tried(seed)
        assert what == "right", f"seed {seed}: {what}: {said}"


@pytest.mark.gpu
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, 10))]
)
def test_statements_on_a_gpu(block: int) -> None:
    for seed in range(1000 + 30 * block, 1030 + 30 * block):
        what, said = tried(seed, "cuda")
        assert what == "right", f"seed {seed}: {what}: {said}"


@pytest.mark.parametrize("block", range(40))
@pytest.mark.sample(1)
def test_large_ones_are_cut(block: int) -> None:
    """A million elements: no loops over elements (T0747) or in order (T0706), nothing spilled
    (T0881), and groups that
    are neither few nor of single elements, unless the program says how wide they are."""
    pytest.importorskip("llvmlite")
    for seed in range(10 * block, 10 * block + 10):
        made = program(seed, large=True)
        found = divided(made, "sm_90a")
        text = f"seed {seed}: {found}: {made.source}"
        assert not found.told, text
        for groups, elements in found.launches:
            if "tile_range" not in made.source:
                assert elements <= 8192, text
                assert groups <= 1 + 64 * made.stored() // 512, text


def test_programs_have_what_they_are_for() -> None:
    text = "".join(program(seed).source for seed in range(200))
    for part in ("+=", "tile_range", "op.flip(", "::2", "1:4", "t = ", "op.where(", "0:1", ", 0]"):
        assert part in text, part
