"""Tiles that lanes bring in pieces: a lane holds one piece at a time on its way.

Where elements are read one by one (lines that begin anywhere), the addresses of a whole tile do not
fit into the registers of the moving role. Owns how a layout is cut. Must not know rings.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, TileType, Value
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.opt.schedule.query.kernel_facts import LOAD
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pieces:
    """``count`` pieces of ``size`` along ``axis``, each of type ``tile``."""

    axis: int
    size: int
    count: int
    tile: TileType


def pieces_of(tile: TileType, most: int) -> Pieces | None:
    """How a tile is cut into such pieces: along its outermost registers; None where not."""
    layout = tile.layout
    if not isinstance(layout, RegisterLayout) or layout.register_count <= most:
        return None
    outermost = [
        (mode.extent, i, mode.axis, mode.stride)
        for i, mode in enumerate(layout.registers)
        if mode.axis is not None and mode.extent * mode.stride == tile.shape[mode.axis]
    ]
    if not outermost or max(outermost)[0] < 2:
        return None
    extent, i, axis, stride = max(outermost)
    wanted = -(-layout.register_count // most)
    count = next((c for c in range(wanted, extent) if extent % c == 0), extent)
    kept, size = extent // count, extent // count * stride
    registers = list(layout.registers)
    registers[i : i + 1] = [Mode(kept, axis, stride)] if kept > 1 else []
    shape = tuple(size if a == axis else n for a, n in enumerate(tile.shape))
    part = replace(layout, registers=tuple(registers))
    return Pieces(axis, size, count, replace(tile, shape=shape, layout=part))


def bring(body: Body, load: Operation, buffer: Value, slot: Value, most: int) -> bool:
    """A load to a slot of a buffer, piece after piece; False where it is not cut."""
    t = body.layouts.type_of(load.result)
    access = access_of(load)
    if load.name != LOAD or body.layouts.memory_layout(load) != t.layout:
        return False
    cut = pieces_of(t, most)
    if cut is None:
        return False
    b = body.builder
    vector = body.facts.vector_bytes(access)
    attributes: dict[str, Attribute] = {
        "dims": access.dims, "steps": access.steps, "vector": vector, "whole": False,
    }  # fmt: skip
    starts, extents = body.scalars(access.starts), body.scalars(access.extents)
    zero, size = b.index(0), b.index(cut.size)
    with b.region(("piece", zero.type)) as made:
        at = b.binary("mul", made.arguments[0], size)
        dim, step = access.dims[cut.axis], access.steps[cut.axis]
        moved = at if step == 1 else b.binary("mul", at, b.index(step))
        there = [b.binary("add", s, moved) if d == dim else s for d, s in enumerate(starts)]
        rest = b.binary("min", size, b.binary("sub", extents[cut.axis], at))
        left = [b.binary("max", zero, rest) if a == cut.axis else e for a, e in enumerate(extents)]
        operands = (body.scalar(access.view), *there, *left)
        tile = b.emit("tile.load_tile", operands, (cut.tile,), attributes).result
        inner = [at if a == cut.axis else zero for a in range(len(access.dims))]
        b.emit("tile.write_tile", (tile, buffer, slot, *inner))
        b.yield_()
    b.for_(zero, b.index(cut.count), b.index(1), (), made.region)
    return True
