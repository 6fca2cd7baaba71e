"""Loops over the elements of a tile.

With one lane: a nest of loops over the extent, the last axis inside. With many: the elements of
the capacity are dealt out to the lanes in turn, and those beyond the extent are skipped. Owns the
two versions of a loop (see ``elements``) and the barriers before what a loop reads and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.types.dtype import INDEX

Extents = Sequence[int | Value]
Body = Callable[[Index], None]


def phase(s: Lowering, writes: Sequence[Value], build: Callable[[], None]) -> None:
    """What ``build`` makes, behind the barrier it needs, in two versions where extents that are
    not known to be in order would have to be compared for each element."""
    touched, s.touched = s.touched, {}
    operations, assumed = _attempt(s, "assume", build)
    guarded: tuple[Operation, ...] = ()
    if assumed:
        guarded, _ = _attempt(s, "guard", build)
    s.ready(list(s.touched), list(writes))
    s.touched = touched
    if not assumed:
        s.splice(operations)
        return
    holds = [s.b.cmp("le", s.bound(least), s.scalar(most)) for least, most in assumed]
    every = holds[0]
    for one in holds[1:]:
        every = s.b.binary("and", every, one)
    with s.b.region() as then:
        s.splice(operations)
        s.b.yield_()
    with s.b.region() as otherwise:
        s.splice(guarded)
        s.b.yield_()
    s.b.if_(every, then.region, otherwise.region)


def _attempt(
    s: Lowering, mode: str, build: Callable[[], None]
) -> tuple[tuple[Operation, ...], list[tuple[int | Value, Value]]]:
    before, s.assumed = s.assumed, {}
    outer, s.mode = s.mode, "assume" if mode == "assume" else "guard"
    operations = s.capture(build)
    assumed, s.assumed, s.mode = list(s.assumed.values()), before, outer
    return operations, assumed


def nest(
    s: Lowering,
    sizes: Sequence[int],
    extents: Extents,
    body: Body,
    interchanged: Value | None = None,
) -> None:
    """``body`` for every index; ``sizes``: the capacity, ``extents``: how much of it is there.

    To be called inside ``phase`` (or where ``body`` needs no guards and no barrier).
    ``interchanged``: with one lane, a condition under which the last axis but one goes inside."""
    if s.lanes > 1:
        _dealt(s, sizes, extents, body)
        return
    order = list(range(len(sizes)))
    if interchanged is None:
        _loops(s, sizes, extents, body, order, {})
        return
    with s.b.region() as then, s.inside():
        _loops(s, sizes, extents, body, [*order[:-2], order[-1], order[-2]], {})
        s.b.yield_()
    with s.b.region() as otherwise, s.inside():
        _loops(s, sizes, extents, body, order, {})
        s.b.yield_()
    s.b.if_(interchanged, then.region, otherwise.region)


def loop(s: Lowering, lower: Value, upper: Value, body: Callable[[Value], None]) -> None:
    """A plain loop of steps of 1."""
    with s.b.region(("i", INDEX)) as region, s.inside():
        body(region.arguments[0])
        s.b.yield_()
    s.b.for_(lower, upper, s.index(1), (), region.region)


def along(s: Lowering, size: int, extent: int | Value, body: Callable[[Value], None]) -> None:
    """``body`` for 0 .. extent in every lane; the index is known to be inside."""
    if extent == 1:
        body(s.index(0))
        return
    upper = s.bound(extent)

    def inner(at: Value) -> None:
        know(s, at, size, extent)
        body(at)

    loop(s, s.index(0), upper, inner)


def know(s: Lowering, at: Value, size: int, extent: int | Value) -> None:
    """The index ``at`` runs below ``extent``, which is at most ``size``."""
    s.below[at] = [size, s.numbers.key(extent)]
    s.limits[at] = extent


def _loops(
    s: Lowering, sizes: Sequence[int], extents: Extents, body: Body, order: Sequence[int],
    known: dict[int, Value],
) -> None:  # fmt: skip
    """One loop an axis, the first of ``order`` outside."""
    if not order:
        body(tuple(known[axis] for axis in range(len(sizes))))
        return
    axis, *rest = order

    def inner(at: Value) -> None:
        _loops(s, sizes, extents, body, rest, {**known, axis: at})

    along(s, sizes[axis], extents[axis], inner)


def first_lane(s: Lowering, build: Callable[[], None]) -> None:
    """What one lane does for the group."""
    first = s.b.cmp("eq", s.b.lane_linear(), s.index(0))
    with s.b.region() as then, s.inside():
        build()
        s.b.yield_()
    with s.b.region() as otherwise:
        s.b.yield_()
    s.b.if_(first, then.region, otherwise.region)


def _dealt(s: Lowering, sizes: Sequence[int], extents: Extents, body: Body) -> None:
    """Lane l takes elements l, l + lanes, ... of the capacity."""
    total = prod(sizes)
    bounds = [s.bound(e) for e in extents]
    lane = s.b.lane_linear()

    def one(number: Value) -> None:
        index: list[Value] = []
        rest = number
        for axis in reversed(range(len(sizes))):
            if sizes[axis] == 1:
                index.insert(0, s.index(0))
            elif axis == 0 or prod(sizes[:axis]) == 1:
                index.insert(0, rest)
            else:
                size = s.index(sizes[axis])
                index.insert(0, s.b.binary("mod", rest, size))
                rest = s.b.binary("floordiv", rest, size)
        tests = [
            s.b.cmp("lt", at, upper)
            for at, upper, size, extent in zip(index, bounds, sizes, extents, strict=True)
            if not (isinstance(extent, int) and extent >= size)
        ]
        for at, size, extent in zip(index, sizes, extents, strict=True):
            if not s.is_zero(at):
                know(s, at, size, extent)
        if not tests:
            body(tuple(index))
            return
        inside = tests[0]
        for test in tests[1:]:
            inside = s.b.binary("and", inside, test)
        with s.b.region() as then, s.inside():
            body(tuple(index))
            s.b.yield_()
        with s.b.region() as otherwise:
            s.b.yield_()
        s.b.if_(inside, then.region, otherwise.region)

    with s.b.region(("e", INDEX)) as region, s.inside():
        one(region.arguments[0])
        s.b.yield_()
    s.b.for_(lane, s.index(total), s.index(s.lanes), (), region.region)
