"""How warps share a tile that a row or column is spread over."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tessera_lang.analysis.resources.register_layouts import blocked, canonical
from tessera_lang.ir.core import TileType
from tests.unit.lower.schedule_to_tile.test_dtypes import compiled, operations, run

BIASED = """
@op.kernel
def f(x: f32[m, n], b: f32[n]):
    y = op.empty_like(x)
    y[:, :] = x + b[None, :]
    return y
"""


def registers(text: str, *arrays: np.ndarray) -> set[int]:
    """Of a lane, in the tiles of one axis that memory gives."""
    found = compiled(text, *arrays)
    tiles = [o.result.type for o in operations(found, "tile.load_tile")]
    return {
        t.layout.register_count for t in tiles
        if isinstance(t, TileType) and len(t.shape) == 1 and t.layout is not None
    }  # fmt: skip


def test_what_is_spread_over_rows_is_held_once() -> None:
    x, b = np.ones((1024, 4096), np.float32), np.arange(4096, dtype=np.float32)
    assert registers(BIASED, x, b) == {8}  # 32 where warps have rows of their own
    small, row = x[:5, :1030], b[:1030]
    assert np.array_equal(run(compiled(BIASED, small.copy(), row), small.copy(), row), small + row)


@pytest.mark.parametrize("shape", [(4, 1024), (8, 256), (1, 64), (3, 7)])
def test_warps_beside_each_other_hold_every_element(shape: tuple[int, int]) -> None:
    for vector in (1, 4):
        layout = blocked(shape, vector, 4, beside=True)
        rest = canonical(layout.without_axis(0))
        held = layout.register_count * 128
        assert held >= prod(shape)
        assert rest.register_count <= canonical(blocked(shape, vector, 4)).register_count
