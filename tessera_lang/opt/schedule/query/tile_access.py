"""Where a tile lies in an array, of the operations that read or write one.

Owns the record of the operands by what they are. Must not know what moves a tile.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, TileType, Value, ViewType
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class TileAccess:
    """``starts`` and ``dims`` one for each axis of the array and of the tile; ``extents`` and
    ``steps`` one for each axis of the tile. ``lines``: the axis of the view along which elements
    lie next to each other in a copy that is read in its place, -1 where the view itself says it.
    ``result``: the tile that is read; None of what is written."""

    tile: TileType
    view: Value
    starts: tuple[Value, ...]
    extents: tuple[Value, ...]
    dims: tuple[int, ...]
    steps: tuple[int, ...]
    lines: int = -1
    result: Value | None = None


def access_of(operation: Operation) -> TileAccess:
    """Of a ``load``, ``gather``, ``store``, ``scatter`` or ``accumulate``, whose operands are
    ``[tile,] view, starts..., extents...``; the steps of a gather are all 1."""
    operands = operation.operands
    at = next(i for i, v in enumerate(operands) if isinstance(v.type, ViewType))
    view, numbers = operands[at], operands[at + 1 :]
    tile = operands[0] if at else operation.result
    rank, dims = len(view.view_type.shape), operation.integers("dims")
    steps = operation.integers("steps") or (1,) * len(dims)
    lines = operation.attributes.get("lines", -1)
    return TileAccess(
        tile.tile_type, view, numbers[:rank], numbers[rank:], dims, steps,
        lines if isinstance(lines, int) else -1, None if at else tile,
    )  # fmt: skip
