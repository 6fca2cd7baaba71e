"""Arrays of which every element belongs to one lane, held against every lane of small launches."""

from __future__ import annotations

import itertools

import pytest

from tessera_lang.analysis.races.lane_owned_arrays import owned
from tests.unit.lowering import optimized

HEAD = "@kernel tile[{tile}] grid[{grid}]\ndef k({parameters}):\n"


def names(body: str, tile: str = "(64,)", grid: str = "(n,)",
          parameters: str = "x: f32[n], out: mut f32[n]") -> set[str]:  # fmt: skip
    text = HEAD.format(tile=tile, grid=grid, parameters=parameters)
    kernel = optimized(text + "".join(f"    {line}\n" for line in body.splitlines())).operations[0]
    return {p.name for p in owned(kernel)[0]}


OWN = [
    "i = grid_tile_linear_id()\nif i < n: out[i] = x[i]",
    "i = grid_tile_linear_id() * 4\nfor k in range(4):\n    if i + k < n: out[i + k] = 1.0",
    "i = grid_tile_linear_id() * 4\nif i + 3 < n:\n    out[i] = 1.0\n    out[i + 3] = 1.0\n"
    "else:\n    for k in range(i, n): out[k] = 2.0",
    "i = grid_tile_linear_id()\nif i < n:\n    out[i] = 1.0\n    out[i] += x[i]",
    "out[group_linear_id() * 128 + (63 - tile_linear_id()) * 2] = 1.0",
    "if tile_linear_id() == 0: out[group_linear_id()] = 1.0",
    "if tile_linear_id() == 5:\n    for k in range(3): out[group_linear_id() * 3 + k] = 1.0",
]
SHARED = [
    "if tile_linear_id() < 2: out[group_linear_id()] = 1.0",
    "if tile_linear_id() == 0: out[group_linear_id()] = 1.0\n"
    "if tile_linear_id() == 1: out[group_linear_id()] = x[1]",
    "if tile_linear_id() == 0: out[0] = 1.0",
    "i = grid_tile_linear_id()\nif i < n: out[i // 2] = x[i]",
    "i = grid_tile_linear_id()\nfor k in range(2):\n    if i + k < n: out[i + k] = 1.0",
    "i = grid_tile_linear_id()\nif i + 1 < n:\n    out[i] = 1.0\n    out[n - 1 - i] = 1.0",
    "out[tile_linear_id()] = 1.0",
    "out[group_linear_id()] = 1.0",
    "out[group_linear_id() * 63 + tile_linear_id()] = 1.0",
    "i = grid_tile_linear_id()\nif i < n: out[i] = x[i]\nif i == 0: out[n - 1] = 2.0",
    "i = grid_tile_linear_id() * 4\nfor k in range(i, n): out[k] = 2.0",
]


@pytest.mark.parametrize("body", OWN)
def test_every_lane_its_own(body: str) -> None:
    assert "out" in names(body)


@pytest.mark.parametrize("body", SHARED)
def test_lanes_that_may_meet(body: str) -> None:
    assert "out" not in names(body)


def test_axes_tell_ids_together() -> None:
    two = "x: f32[n, m], out: mut f32[n, m]"
    body = "i = group_id(0) * 8 + tile_id(0)\nj = group_id(1) * 16 + tile_id(1)\n"
    body += "if i < n and j < m: out[{}] = 1.0"
    how = {"tile": "(8, 16)", "grid": "(n, m)", "parameters": two}
    assert "out" in names(body.format("i, j"), **how)
    assert "out" not in names(body.format("i, 0"), **how)


@pytest.mark.parametrize(("stride", "step"), list(itertools.product((1, 2, 5, 8), (1, 3, 8, 40))))
def test_affine_places_against_every_lane(stride: int, step: int) -> None:
    """``lane * stride + group * step + (0 to 2)``, lanes of a group of 4 and any 3 groups."""
    body = f"i = tile_linear_id() * {stride} + group_linear_id() * {step}\n"
    body += "for k in range(3):\n    if i + k < n: out[i + k] = 1.0"
    places = [
        {lane * stride + group * step + k for k in range(3)}
        for lane in range(4) for group in range(3)
    ]  # fmt: skip
    apart = sum(map(len, places)) == len(set[int]().union(*places))
    assert ("out" in names(body, tile="(4,)")) <= apart
