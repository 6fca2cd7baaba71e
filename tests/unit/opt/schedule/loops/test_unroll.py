"""``schedule.unroll``: bodies in a row and a loop for the rest, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.ir.core import Program
from tests.unit.opt.schedule.decided import from_source

SUMS = """
@op.kernel
def f(A: f32[m, n], o: mut f32[m]):
    {}
    for i in op.tile_range(m, step=8):
        acc = op.zeros((8,), f32)
        for j in op.tile_range(n, step=16):
            acc = acc * 0.5 + op.sum(A[i:i+8, j:j+16], axis=1)
        o[i:i+8] = acc
"""
TWO_AXES = """
@op.kernel
def f(A: f32[m, n], o: mut f32[1]):
    {}
    total = 0.0
    for i, j in op.tile_range(m, n, step=(4, 8)):
        total = total * 0.25 + op.sum(A[i:i+4, j:j+8])
    o[0] = total
"""
PRODUCT = """
@op.kernel
def f(A: bf16[m, k], B: bf16[k, n]) -> f32[m, n]:
    {}
    return A @ B
"""


@pytest.mark.parametrize("source", [SUMS, TWO_AXES], ids=["sums", "two axes"])
@pytest.mark.parametrize("times", [3, 8])
@pytest.mark.slow
def test_results_are_the_same(source: str, times: int) -> None:
    plain = tessera.compile(source.format("pass"), target="cpu").f
    said = tessera.compile(source.format(f"schedule.unroll({times})"), target="cpu").f
    rng = np.random.default_rng(0)
    for m, n in ((9, 1), (5, 47), (8, 200)):
        a = rng.uniform(-1, 1, (m, n)).astype(np.float32)
        found = [np.full(m if source is SUMS else 1, np.nan, np.float32) for _ in range(2)]
        plain(a, found[0])
        said(a, found[1])
        assert np.array_equal(*found), (m, n)


def unrolled(source: str, arch: str) -> tuple[Program, list[str]]:
    made = from_source(source, arch=arch, name="f")
    return made.schedule, [d.message for d in made.remarks if d.code == "T0742"]


def loops(program: Program) -> int:
    return sum(o.name == "tessera.schedule.for" for o in program.walk())


@pytest.mark.parametrize("arch", ["native", "sm_80", "sm_90a"])
def test_a_loop_becomes_two(arch: str) -> None:
    before, _ = unrolled(SUMS.format("pass"), arch)
    after, remarks = unrolled(SUMS.format("schedule.unroll(4)"), arch)
    assert loops(after) == loops(before) + 1 and not remarks
    reduces = [sum(o.name.endswith("schedule.reduce") for o in p.walk()) for p in (before, after)]
    assert reduces[1] == reduces[0] + 4


def test_a_loop_over_staged_tiles_is_reported() -> None:
    _, remarks = unrolled(PRODUCT.format("schedule.unroll(4)"), "sm_90a")
    assert any("schedule.unroll(4)" in r and "shared memory" in r for r in remarks)


def test_bodies_have_a_limit() -> None:
    _, remarks = unrolled(SUMS.format("schedule.unroll(1024)"), "sm_80")
    assert any("1024 operations" in r for r in remarks)


def test_heavy_bodies_have_a_nearer_one() -> None:
    """A product or a reduction is much code: a hundred of them took minutes to compile."""
    program, remarks = unrolled(PRODUCT.format("schedule.unroll(1000)"), "native")
    dots = sum(o.name.endswith("schedule.dot") for o in program.walk())
    assert 1 < dots <= 12 and any("1024 operations" in r for r in remarks)
    program, _ = unrolled(SUMS.format("schedule.unroll(1000)"), "native")
    assert sum(o.name.endswith("schedule.reduce") for o in program.walk()) < 64
