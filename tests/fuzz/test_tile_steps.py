"""Results of products stored to every so many rows and columns, by whichever way they leave."""

from __future__ import annotations

import pytest

from tests.tile_programs_by_hand.program import Numbers, Program, of
from tests.tile_programs_by_hand.test_programs import wrong

TEXT = """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], c: mut {dtype}[{r}*m, {s}*n]):
    for i, j in op.tile_range(m, n, step=({t}, {u})):
        acc = op.zeros(({t}, {u}), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+{t}, p:p+64] @ b[p:p+64, j:j+{u}]
        end = min({r}*i+{r}*{t}+{r}-1, {r}*m)
        c[{r}*i+{r}-1:end:{r}, {s}*j:min({s}*j+{s}*{u}, {s}*n):{s}] = {v}
"""
STEPS = [(1, 2), (2, 1), (2, 3)]
TILES = [(64, 64), (128, 128), (64, 48)]


@pytest.mark.parametrize("target", ["cpu", "sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("dtype", "steps", "tile"),
    [
        pytest.param(d, s, t, marks=() if (s, t) == (STEPS[0], TILES[0]) else pytest.mark.slow)
        for d in ("f32", "bf16")
        for s in STEPS
        for t in TILES
    ],
)
@pytest.mark.sample(3)
def test_results_in_steps(
    dtype: str, steps: tuple[int, int], tile: tuple[int, int], target: str
) -> None:
    (r, s), (t, u) = steps, tile
    value = "acc" if dtype == "f32" else f"acc.to({dtype})"

    def right(given: Numbers) -> Numbers:
        c = given["c"].copy()
        c[r - 1 :: r, ::s] = given["a"] @ given["b"]
        return of(c=c)

    program = Program(
        "stored in steps", 1, TEXT.format(dtype=dtype, r=r, s=s, t=t, u=u, v=value),
        of(a=("bf16", "m k"), b=("bf16", "k n"), c=(dtype, f"{r}*m {s}*n")), right,
        of(m=t + 7, k=72, n=2 * u + 5), of(), tolerance=1e-5 if dtype == "f32" else 8e-3,
    )  # fmt: skip
    assert not wrong(program, target)
