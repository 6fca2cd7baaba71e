"""Rules of register tiles: what stays in the lanes, and what passes through scratch memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.interpreter.access_history import Memory, box_of
from tessera_backend.cpu.interpreter.accesses import touch
from tessera_backend.cpu.interpreter.element_arithmetic import (
    Array,
    element_type,
    numpy_type,
    reduced,
    scanned,
)
from tessera_backend.cpu.interpreter.strand import Rule, Strand
from tessera_lang.ir.core import BufferType, Operation, TileType


def shape_of(o: Operation) -> tuple[int, ...]:
    return o.result.tile_type.sizes


def _splat(s: Strand, o: Operation) -> Sequence[Any]:
    (value,) = s.get(o.operands)
    return (np.full(shape_of(o), value),)


def _coordinate(s: Strand, o: Operation) -> Sequence[Any]:
    shape, axis, t = shape_of(o), o.integer("axis"), o.result.tile_type
    along = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return (np.broadcast_to(along, shape).astype(numpy_type(t.dtype)),)


def _scratch(s: Strand, o: Operation) -> None:
    """Operations with scratch begin with a barrier, unless it is fresh, write all of it, meet a
    barrier, and read."""
    for value in o.operands[1:]:
        memory: Memory = s.values[value]
        if not o.attributes.get("fresh"):
            s.meet(o)
        box = box_of((0,) * len(memory.data.shape), memory.data.shape)
        touch(s, o, memory, "write", box, ("scratch", s.anew()))
        s.meet(o)
        touch(s, o, memory, "read", box, ("scratch", s.anew()))


def _reduce_tile(s: Strand, o: Operation) -> Sequence[Any]:
    _scratch(s, o)
    found = reduced(s.values[o.operands[0]], o.integer("axis"), str(o.attributes["kind"]))
    t = o.result.type
    dtype = element_type(t)
    return (found.astype(dtype),) if isinstance(t, TileType) else (dtype(found),)


def _scan_tile(s: Strand, o: Operation) -> Sequence[Any]:
    _scratch(s, o)
    kind, inclusive = str(o.attributes["kind"]), bool(o.attributes["inclusive"])
    axis, data = o.integer("axis"), s.values[o.operands[0]]
    if not o.attributes.get("reverse"):
        return (scanned(data, axis, kind, inclusive),)
    return (np.flip(scanned(np.flip(data, axis), axis, kind, inclusive), axis).copy(),)


def _expand_tile(s: Strand, o: Operation) -> Sequence[Any]:
    wide = np.expand_dims(s.values[o.operands[0]], o.integer("axis"))
    return (np.broadcast_to(wide, shape_of(o)).copy(),)


def _transpose_tile(s: Strand, o: Operation) -> Sequence[Any]:
    order: Any = o.attributes["permutation"]
    return (np.transpose(s.values[o.operands[0]], order),)


def _convert(s: Strand, o: Operation) -> Sequence[Any]:
    _scratch(s, o)
    return (s.values[o.operands[0]],)


def _slice_tile(s: Strand, o: Operation) -> Sequence[Any]:
    starts: Any = o.attributes["starts"]
    at = tuple(slice(a, a + n) for a, n in zip(starts, shape_of(o), strict=True))
    return (s.values[o.operands[0]][at],)


def _join_tiles(s: Strand, o: Operation) -> Sequence[Any]:
    return (np.concatenate(s.get(o.operands), axis=o.integer("axis")),)


def _dot(s: Strand, o: Operation) -> Sequence[Any]:
    a, b, accumulator, *starts = o.operands
    places = s.numbers(starts)
    sides: list[Array] = []
    for value in (a, b):
        if not isinstance(value.type, BufferType):
            sides.append(s.values[value])
            continue
        memory: Memory = s.values[value]
        rank = memory.data.ndim
        at, places = places[:rank], places[rank:]
        rest = [n - x for n, x in zip(memory.data.shape[-2:], at[-2:], strict=True)]
        box = box_of(at, (*(1,) * (rank - 2), *rest))
        touch(s, o, memory, "read", box, ("dot", id(o), tuple(at)))
        sides.append(memory.data[(*at[:-2], slice(at[-2], None), slice(at[-1], None))])
    total = s.values[accumulator]
    product = np.matmul(sides[0].astype(total.dtype), sides[1].astype(total.dtype))
    return ((total + product).astype(total.dtype),)


RULES: dict[str, Rule] = {
    "tile.splat": _splat,
    "tile.coordinate": _coordinate,
    "tile.reduce_tile": _reduce_tile,
    "tile.scan_tile": _scan_tile,
    "tile.expand_tile": _expand_tile,
    "tile.transpose_tile": _transpose_tile,
    "tile.convert": _convert,
    "tile.slice_tile": _slice_tile,
    "tile.join_tiles": _join_tiles,
    "tile.dot": _dot,
}
