"""Reductions by one lane: of the last axis in partial results, of another by whole lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.element_loops import know, loop, nest, phase
from tessera_lang.lower.schedule_to_lanes.reduction_steps import (
    Reduction,
    combined,
    element_at,
    identity,
    in_order,
    result_index,
)
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.target.tuned_constants import LINE_OPERATIONS, LINES_AT_ONCE, PARTIAL_RUN
from tessera_lang.types.dtype import BOOL, INDEX


def _partials(r: Reduction) -> int:
    """A power of two, at most 256 bytes of partial results and an eighth of the axis."""
    most = max(1, min(256 // r.dtype.bytes, r.size // 4))
    return 1 << (most.bit_length() - 1)


def rows(s: Lowering, r: Reduction, buffer: Buffer, scalar: bool) -> None:
    p = _partials(r)
    part = s.take(r.dtype, (p,), "partial") if p >= 4 else None

    def row(outer: Index) -> None:
        total = in_order(s, r, outer) if part is None else _by_partials(s, r, outer, part, p)
        s.b.store(total, buffer.value, result_index(s, outer, scalar), "proved")

    phase(s, [buffer.value], lambda: nest(s, r.sizes, r.extents, row))
    if part is not None:
        s.give_back(part)


def _by_partials(s: Lowering, r: Reduction, outer: Index, part: Buffer, p: int) -> Value:
    b, zero, count = s.b, s.index(0), s.index(p)
    upper = s.bound(r.extent)
    first = identity(s, r.kind, r.dtype)
    loop(s, zero, count, lambda at: b.store(first, part.value, [at], "proved"))

    def step(base: Value, at: Value) -> None:
        place = b.binary("add", base, at)
        know(s, place, r.size, r.extent)
        new = element_at(s, r, r.at(outer, place))
        old = b.load(part.value, [at], "proved")
        b.store(combined(s, r.kind, old, new), part.value, [at], "proved")

    whole = b.binary("mul", b.binary("floordiv", upper, count), count)
    with b.region(("base", INDEX)) as body, s.inside():
        base = body.arguments[0]
        loop(s, zero, count, lambda at: step(base, at))
        b.yield_()
    b.for_(zero, whole, count, (), body.region)
    loop(s, zero, b.binary("sub", upper, whole), lambda at: step(whole, at))
    return _tree(s, r.kind, part, p)


def _tree(s: Lowering, kind: str, part: Buffer, p: int) -> Value:
    """Partial l takes in l + half, the halves from large to small."""
    b = s.b
    half = p // 2
    while half >= 16:
        middle = s.index(half)

        def fold(at: Value, middle: Value = middle) -> None:
            low = b.load(part.value, [at], "proved")
            high = b.load(part.value, [b.binary("add", at, middle)], "proved")
            b.store(combined(s, kind, low, high), part.value, [at], "proved")

        loop(s, s.index(0), middle, fold)
        half //= 2
    values = [b.load(part.value, [s.index(i)], "proved") for i in range(2 * half)]
    while len(values) > 1:
        half = len(values) // 2
        values = [
            combined(s, kind, x, y) for x, y in zip(values[:half], values[half:], strict=True)
        ]
    return values[0]


# --- one lane, another axis -------------------------------------------------------------------


def columns(s: Lowering, r: Reduction, buffer: Buffer) -> None:
    """Whole lines of the later axes at a time, several of them in one pass: each result is read and
    written once for all of them, and as many lines are on their way from memory."""
    before, after = r.sizes[: r.axis], r.sizes[r.axis :]
    extents_before, extents_after = r.extents[: r.axis], r.extents[r.axis :]
    runs = r.size > 2 * PARTIAL_RUN and r.kind in ("add", "mul") and r.dtype.is_float
    temporary = s.take(r.dtype, tuple(after), "run") if runs else None

    def fill(target: Buffer, head: Index) -> None:
        first = identity(s, r.kind, r.dtype)
        nest(s, after, extents_after,
             lambda i: s.b.store(first, target.value, (*head, *i), "proved"))  # fmt: skip

    def take_in(target: Buffer, head: Index, outer: Index, lines: Sequence[Value]) -> None:
        def one(i: Index) -> None:
            total = s.b.load(target.value, (*head, *i), "proved")
            for at in lines:
                total = combined(s, r.kind, total, element_at(s, r, (*outer, at, *i)))
            s.b.store(total, target.value, (*head, *i), "proved")

        nest(s, after, extents_after, one)

    def block(outer: Index) -> None:
        fill(buffer, outer)
        if temporary is None:
            upper = s.bound(r.extent)
            _lines(s, r, s.index(0), upper, outer,
                   lambda lines: take_in(buffer, outer, outer, lines))  # fmt: skip
            return
        _in_runs(s, r, buffer, temporary, outer, fill, take_in)

    phase(s, [buffer.value], lambda: nest(s, before, extents_before, block))
    if temporary is not None:
        s.give_back(temporary)


def _lines(
    s: Lowering, r: Reduction, lower: Value, upper: Value, outer: Index,
    take_in: Callable[[Sequence[Value]], None],
) -> None:  # fmt: skip
    """Lines ``lower`` to ``upper`` in order: ``_at_once`` of them at a time, then the rest."""
    b, count = s.b, _at_once(s, r, lower, outer)

    def lines(first: Value) -> None:
        ats = [s.add(first, s.index(number)) for number in range(count)]
        for at in ats:
            know(s, at, r.size, r.extent)
        take_in(ats)

    if count == 1:
        loop(s, lower, upper, lines)
        return
    step = s.index(count)
    length = b.binary("max", b.binary("sub", upper, lower), s.index(0))
    whole = s.add(lower, b.binary("mul", b.binary("floordiv", length, step), step))
    with b.region(("base", INDEX)) as body, s.inside():
        lines(body.arguments[0])
        b.yield_()
    b.for_(lower, whole, step, (), body.region)
    count = 1
    loop(s, whole, upper, lines)


def _at_once(s: Lowering, r: Reduction, lower: Value, outer: Index) -> int:
    """How many lines a pass takes in, by the operations on data that make an element. A lane of a
    GPU has others beside it that wait for memory, and few registers."""
    if not s.on_cpu:
        return 1
    zeros = tuple(s.index(0) for _ in r.sizes[r.axis :])

    def one() -> None:
        element_at(s, r, (*outer, lower, *zeros))

    made = [inner for op in s.capture(one) for inner in op.walk()]
    operations = sum(map(_is_of_data, made))
    return max(1, min(LINES_AT_ONCE, r.size, LINE_OPERATIONS // max(1, operations)))


def _is_of_data(op: Operation) -> bool:
    """Whether an operation is more than a place, a condition or a constant."""
    kinds = [result.type for result in op.results]
    return bool(op.operands and kinds and not op.regions) and not {INDEX, BOOL} & {*kinds}


def _in_runs(
    s: Lowering, r: Reduction, buffer: Buffer, run: Buffer, outer: Index,
    fill: Callable[[Buffer, Index], None],
    take_in: Callable[[Buffer, Index, Index, Sequence[Value]], None],
) -> None:  # fmt: skip
    upper, length = s.bound(r.extent), s.index(PARTIAL_RUN)
    after, extents = r.sizes[r.axis :], r.extents[r.axis :]

    def add(i: Index) -> None:
        old = s.b.load(buffer.value, (*outer, *i), "proved")
        new = s.b.load(run.value, i, "proved")
        s.b.store(combined(s, r.kind, old, new), buffer.value, (*outer, *i), "proved")

    with s.b.region(("base", INDEX)) as body, s.inside():
        base = body.arguments[0]
        know(s, base, r.size, r.extent)
        last = s.b.binary("min", s.b.binary("add", base, length), upper)
        fill(run, ())
        _lines(s, r, base, last, outer, lambda lines: take_in(run, (), outer, lines))
        nest(s, after, extents, add)
        s.b.yield_()
    s.b.for_(s.index(0), upper, length, (), body.region)
