"""Reductions in which each lane takes its share, and those that look for a place."""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Value
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.def_use import tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import first_lane, know, nest, phase
from tessera_lang.lower.schedule_to_lanes.elements import element
from tessera_lang.lower.schedule_to_lanes.reduction_steps import (
    Reduction,
    combined,
    element_at,
    identity,
    in_order,
    result_index,
)
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.types.dtype import BOOL, INDEX, DType


def by_lanes(s: Lowering, r: Reduction, buffer: Buffer, scalar: bool) -> None:
    """Each result by as many lanes as there are for it, then by one."""
    share = max(1, min(s.lanes // max(1, prod(r.sizes)), r.size))
    if share == 1:

        def alone(outer: Index) -> None:
            total = in_order(s, r, outer)
            s.b.store(total, buffer.value, result_index(s, outer, scalar), "proved")

        phase(s, [buffer.value], lambda: nest(s, r.sizes, r.extents, alone))
        return
    part = s.take(r.dtype, (*r.sizes, share), "partial")

    def one(index: Index) -> None:
        outer, first = index[:-1], index[-1]
        upper = s.bound(r.extent)
        with s.b.region(("i", INDEX), ("total", r.dtype)) as body, s.inside():
            at, total = body.arguments
            know(s, at, r.size, r.extent)
            s.b.yield_(combined(s, r.kind, total, element_at(s, r, r.at(outer, at))))
        start = identity(s, r.kind, r.dtype)
        total = s.b.for_(first, upper, s.index(share), (start,), body.region)[0]
        s.b.store(total, part.value, index, "proved")

    phase(s, [part.value],
          lambda: nest(s, [*r.sizes, share], [*r.extents, share], one))  # fmt: skip

    def together(outer: Index) -> None:
        s.touched[part.value] = None
        with s.b.region(("l", INDEX), ("total", r.dtype)) as body:
            at, total = body.arguments
            new = s.b.load(part.value, (*outer, at), "proved")
            s.b.yield_(combined(s, r.kind, total, new))
        start = identity(s, r.kind, r.dtype)
        total = s.b.for_(s.index(0), s.index(share), s.index(1), (start,), body.region)[0]
        s.b.store(total, buffer.value, result_index(s, outer, scalar), "proved")

    def everything() -> None:
        if scalar:
            first_lane(s, lambda: together(()))
        else:
            nest(s, r.sizes, r.extents, together)

    phase(s, [buffer.value], everything)
    s.give_back(part)


def first_index(s: Lowering, r: Reduction, buffer: Buffer, scalar: bool) -> None:
    """The first index of the extreme; the first NaN is the extreme. 0 where there is nothing."""
    kind = "max" if r.kind == "argmax" else "min"
    dtype = tile_type(r.value).dtype

    def line(outer: Index) -> None:
        upper = s.bound(r.extent)
        types = [("i", INDEX), ("best", dtype), ("place", INDEX)]
        with s.b.region(*types) as body, s.inside():
            at, best, place = body.arguments
            know(s, at, r.size, r.extent)
            new = element(s, r.value, r.at(outer, at))
            better = _is_better(s, kind, new, best, at, dtype)
            s.b.yield_(s.b.select(better, new, best), s.b.select(better, at, place))
        start = (identity(s, kind, dtype), s.index(0))
        found = s.b.for_(s.index(0), upper, s.index(1), start, body.region)[1]
        s.b.store(s.b.cast(found, r.dtype), buffer.value, result_index(s, outer, scalar), "proved")

    def everything() -> None:
        if not r.sizes and s.lanes > 1:
            first_lane(s, lambda: line(()))
        else:
            nest(s, r.sizes, r.extents, line)

    phase(s, [buffer.value], everything)


def _is_better(s: Lowering, kind: str, new: Value, best: Value, at: Value, dtype: DType) -> Value:
    b = s.b
    if dtype == BOOL:
        better = b.binary("and", new, b.unary("not", best))
        if kind == "min":
            better = b.binary("and", b.unary("not", new), best)
        return better
    better = b.cmp("gt" if kind == "max" else "lt", new, best)
    if not dtype.is_float:
        return better
    number = b.cmp("eq", best, best)
    return b.binary("or", b.binary("and", better, number),
                    b.binary("and", b.cmp("ne", new, new), number))  # fmt: skip
