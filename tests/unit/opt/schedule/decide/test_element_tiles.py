"""Sizes of tiles that are computed element by element: loops one after the other share no room."""

from __future__ import annotations

import math

import pytest

from tessera_lang.ir.core import Operation, TileType
from tests.unit.opt.schedule.decided import from_source

TWO_SUMS = """
@op.kernel
def kernel(a: f32[m, n], p: f32[m, n], q: f32[m, n]):
    near = op.sqrt(op.sum((a - p) * (a - p), axis=1))
    far = op.sqrt(op.sum((a - q) * (a - q), axis=1))
    return op.mean(max(near - far + 1.0, 0.0))
"""
THREE_LOOPS = """
@op.kernel
def kernel(x: f32[m, n]) -> f32[m, n]:
    e = exp(x - op.max(x, axis=1, keepdims=True))
    return e / op.sum(e, axis=1, keepdims=True)
"""
TURNED = """
@op.kernel
def kernel(x: f32[m, n], y: f32[n, m]) -> f32[m, n]:
    return x + y.T
"""
ALL = """
@op.kernel
def kernel(x: f32[a, b, c], y: f32[c]): return op.sum(x * y[None, None, :])
"""


def loaded(kernel: Operation) -> list[tuple[int, ...]]:
    """The shapes of the tiles that a kernel loads of its arrays, in order."""
    found = [o.result.type for o in kernel.walk() if o.name == "tessera.schedule.load"]
    return [t.sizes for t in found if isinstance(t, TileType)]


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (TWO_SUMS, "a: f32[32768, 8192], p: f32[32768, 8192], q: f32[32768, 8192]"),
        (THREE_LOOPS, "x: f32[1000, 1000000]"),
    ],
)
def test_each_of_several_loops_reads_long_parts_of_a_row(text: str, shapes: str) -> None:
    found = loaded(from_source(text, shapes).schedule.operations[0])
    assert found
    assert all(shape[-1] == 1024 for shape in found)


def test_a_tile_read_along_both_axes_is_a_square() -> None:
    found = from_source(TURNED, "x: f32[4096, 4096], y: f32[4096, 4096]").schedule
    assert loaded(found.operations[0]) == [(64, 64), (64, 64)]


@pytest.mark.parametrize(("last", "width"), [(512, 512), (100, 128), (100000, 1024)])
def test_no_part_of_a_row_is_wider_than_the_row(last: int, width: int) -> None:
    """What a short row leaves is for more rows."""
    shapes = f"x: f32[64, 512, {last}], y: f32[{last}]"
    found = loaded(from_source(ALL, shapes).schedule.operations[0])
    assert [shape[-1] for shape in found] == [width] * len(found)
    assert max(map(math.prod, found)) == 2048


def test_groups_that_no_smaller_tile_makes_more_of_keep_large_ones() -> None:
    text = """
@op.kernel
def kernel(x: f32[m, n], y: mut f32[m]):
    for i in op.tile_range(m, step=1):
        y[i] = op.sum(x[i, :])
"""
    found = loaded(from_source(text, "x: f32[8, 10000000], y: f32[8]").schedule.operations[0])
    assert found[0][-1] >= 1024
