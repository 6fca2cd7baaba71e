"""Stores into arrays, and parts put into tiles."""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile, tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import first_lane, nest, phase
from tessera_lang.lower.schedule_to_lanes.elements import element, row_index, view_index
from tessera_lang.lower.schedule_to_lanes.inner_axis import interchanged
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering, view_type
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import (
    destination,
    sources_of,
    store_tile,
)


def store(s: Lowering, op: Operation) -> None:
    """Every element of the extent into the array."""
    _write(s, op, "")


def scatter(s: Lowering, op: Operation) -> None:
    """Every element of the extent whose row there is."""
    value, view = op.operands[0], s.scalar(op.operands[1])
    sizes = tile_type(value).sizes
    numbers = op.operands[2:]
    starts, extents = numbers[: len(numbers) - len(sizes)], numbers[len(numbers) - len(sizes) :]
    dtype = view_type(op.operands[1]).dtype

    def one(index: Index) -> None:
        places = row_index(s, op, starts, index)
        s.b.store(s.b.cast(element(s, value, index), dtype), view, places, "guarded")

    phase(s, [s.root(view)], lambda: nest(s, sizes, _constants(s, extents), one))


def accumulate(s: Lowering, op: Operation) -> None:
    """One that ``map_grid`` left, because one iteration is all there is to it."""
    if view_type(op.operands[1]).dtype.bits < 32 and view_type(op.operands[1]).dtype.is_float:
        raise ValueError("an accumulation into a narrow array is rounded once: map_grid does it")
    _write(s, op, str(op.attributes["kind"]))


def _write(s: Lowering, op: Operation, kind: str) -> None:
    value, view = op.operands[0], s.scalar(op.operands[1])
    sizes = tile_type(value).sizes if is_tile(value) else ()
    numbers = op.operands[2:]
    starts = numbers[: len(numbers) - len(sizes)]
    extents = numbers[len(numbers) - len(sizes) :]
    dtype = view_type(op.operands[1]).dtype

    def one(index: Index) -> None:
        places = view_index(s, op, starts, index)
        new = s.b.cast(element(s, value, index), dtype)
        if kind:
            new = s.b.binary(kind, s.b.load(view, places, "proved"), new)
        s.b.store(new, view, places, "proved")

    def everything() -> None:
        if kind:
            s.touched[s.root(view)] = None
        if sizes or s.lanes == 1:
            nest(s, sizes, _constants(s, extents), one, interchanged(s, value, op))
        else:
            first_lane(s, lambda: one(()))

    phase(s, [s.root(view)], everything)


def _constants(s: Lowering, extents: tuple[Value, ...]) -> list[int | Value]:
    known = [s.numbers.constant(e) for e in extents]
    return [e if k is None else k for e, k in zip(extents, known, strict=True)]


def insert(s: Lowering, op: Operation) -> None:
    """The whole tile, in place where it dies; then the part over it."""
    base, part = op.operands[:2]
    rank = len(tile_type(part).sizes)
    starts, extents = op.operands[2 : 2 + rank], op.operands[2 + rank :]
    part_reads = dict.fromkeys(sources_of(s, part), False)
    dtype = s.stored_dtype(op.result)
    buffer = destination(s, op, op.result, dtype, {**sources_of(s, base), **part_reads})
    store_tile(s, base, buffer, s.domains.at(op.result, op))

    def one(index: Index) -> None:
        places = [s.add(s.scalar(start), at) for start, at in zip(starts, index, strict=True)]
        value = s.b.cast(element(s, part, index), buffer.dtype)
        s.b.store(value, buffer.value, places, "guarded")

    phase(s, [buffer.value],
          lambda: nest(s, tile_type(part).sizes, _constants(s, extents), one))  # fmt: skip
    s.stored[op.result] = buffer
