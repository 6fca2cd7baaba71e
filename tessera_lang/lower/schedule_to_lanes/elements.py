"""One element of a tile, at an index, as scalar operations.

Owns how each lazy operation is read element by element. An index beyond what memory holds is
never used for an access: either the loop's bound says so, or the loop is made in two versions
(mode ``assume``: the numbers that have to be in order are collected), or the access is guarded.
Must not know loops.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile, tile_type
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering, view_type
from tessera_lang.types.dtype import BOOL, INDEX, DType


def element(s: Lowering, value: Value, index: Index) -> Value:
    """The element of ``value`` (a scalar is its only one)."""
    if not is_tile(value):
        return s.scalar(value)
    known = s.memo.get((value, index))
    if known is None:
        known = s.memo[value, index] = _made(s, value, index)
    return known


def _made(s: Lowering, value: Value, index: Index) -> Value:
    buffer = s.stored.get(value)
    if buffer is not None:
        s.touched[buffer.value] = None
        read = s.b.load(buffer.value, index, "proved")
        return s.b.cast(read, tile_type(value).dtype)
    op = s.source.definition[value]
    rule = _RULES.get(op.name.removeprefix(PREFIX), _elementwise)
    with s.b.at(op.span):
        return rule(s, op, index)


def _elementwise(s: Lowering, op: Operation, index: Index) -> Value:
    operands = [element(s, v, index) for v in op.operands]
    dtype = tile_type(op.result).dtype
    return s.b.emit(op.name, operands, (dtype,), op.attributes, (), (op.result.name,)).result


def _full(s: Lowering, op: Operation, index: Index) -> Value:
    return s.scalar(op.operands[0])


def _iota(s: Lowering, op: Operation, index: Index) -> Value:
    return s.b.cast(index[_axis(op)], tile_type(op.result).dtype)


def _same(s: Lowering, op: Operation, index: Index) -> Value:
    return element(s, op.operands[0], index)


def _expand(s: Lowering, op: Operation, index: Index) -> Value:
    axis = _axis(op)
    return element(s, op.operands[0], (*index[:axis], *index[axis + 1 :]))


def _broadcast(s: Lowering, op: Operation, index: Index) -> Value:
    before, after = tile_type(op.operands[0]).sizes, tile_type(op.result).sizes
    zero = s.index(0)
    moved = (i if a == b else zero for i, a, b in zip(index, before, after, strict=True))
    return element(s, op.operands[0], tuple(moved))


def _transpose(s: Lowering, op: Operation, index: Index) -> Value:
    permutation = op.integers("permutation")
    moved: list[Value] = list(index)
    for i, axis in enumerate(permutation):
        moved[axis] = index[i]
    return element(s, op.operands[0], tuple(moved))


def _mask(s: Lowering, op: Operation, index: Index) -> Value:
    fill, extents = op.operands[1], op.operands[2:]
    inside = _all_below(s, [(i, e) for i, e in zip(index, extents, strict=True)])
    if inside is None:
        return element(s, op.operands[0], index)
    return s.b.select(inside, element(s, op.operands[0], index), s.scalar(fill))


def _extract(s: Lowering, op: Operation, index: Index) -> Value:
    inner = op.operands[0]
    before, after = tile_type(inner).sizes, tile_type(op.result).sizes
    moved: list[Value] = []
    outside: list[tuple[Value, int]] = []
    for axis, start in enumerate(op.operands[1:]):
        known = s.numbers.constant(start)
        if known == 0:
            moved.append(index[axis])
            continue
        at = s.b.binary("add", index[axis], s.scalar(start))
        moved.append(at)
        if known is not None and 0 <= known <= before[axis] - after[axis]:
            s.below[at] = [before[axis]]
        else:
            outside.append((at, before[axis]))
    tests = [
        t for at, n in outside
        for t in (s.b.cmp("ge", at, s.index(0)), s.b.cmp("lt", at, s.index(n)))
    ]  # fmt: skip
    for at, n in outside:
        s.below[at] = [n]
    return guarded(s, _all(s, tests), lambda: element(s, inner, tuple(moved)),
                   tile_type(inner).dtype)  # fmt: skip


def _load(s: Lowering, op: Operation, index: Index) -> Value:
    rank = len(index)
    starts = op.operands[1 : len(op.operands) - rank]
    extents = op.operands[len(op.operands) - rank :]
    view = s.scalar(op.operands[0])
    places = view_index(s, op, starts, index)
    inside = _all_below(s, list(zip(index, extents, strict=True)))
    s.touched[s.root(view)] = None
    dtype = view_type(op.operands[0]).dtype
    how = "guarded" if op.attributes.get("outside") else "proved"
    return guarded(s, inside, lambda: s.b.load(view, places, how), dtype)


def _gather(s: Lowering, op: Operation, index: Index) -> Value:
    rank = len(index)
    numbers = op.operands[1 : len(op.operands) - rank]
    extents = op.operands[len(op.operands) - rank :]
    view = s.scalar(op.operands[0])
    s.touched[s.root(view)] = None
    inside = _all_below(s, list(zip(index, extents, strict=True)))

    def read() -> Value:
        return s.b.load(view, row_index(s, op, numbers, index), "guarded")

    return guarded(s, inside, read, view_type(op.operands[0]).dtype)


def row_index(s: Lowering, op: Operation, numbers: tuple[Value, ...], index: Index) -> list[Value]:
    """The index into the array of a gather or scatter."""
    dims = dims_of(op)
    places: list[Value] = []
    for axis, number in enumerate(numbers):
        at = index[dims.index(axis)] if axis in dims else None
        if is_tile(number):
            assert at is not None
            places.append(s.b.cast(element(s, number, (at,)), INDEX))
        else:
            start = s.scalar(number)
            places.append(start if at is None else s.add(start, at))
    return places


def view_index(s: Lowering, op: Operation, starts: tuple[Value, ...], index: Index) -> list[Value]:
    """The index into the array of a load or store."""
    dims, steps = dims_of(op), op.integers("steps")
    places: list[Value] = []
    for axis, start in enumerate(starts):
        at = s.scalar(start)
        if axis in dims:
            number = dims.index(axis)
            step = steps[number]
            moved = index[number] if step == 1 else s.b.binary("mul", index[number], s.index(step))
            at = s.add(at, moved)
        places.append(at)
    return places


def dims_of(op: Operation) -> list[int]:
    return list(op.integers("dims"))


# --- guards ----------------------------------------------------------------------------------


def _all_below(s: Lowering, pairs: list[tuple[Value, Value]]) -> Value | None:
    """Whether each index is less than its extent; None where it is known to be."""
    tests: list[Value] = []
    for at, extent in pairs:
        key = s.numbers.key(extent)
        if _is_below(s, at, key):
            continue
        limit = s.limits.get(at)
        if s.mode == "assume" and limit is not None:
            s.assumed[s.numbers.key(limit), key] = (limit, extent)
        else:
            tests.append(s.b.cmp("lt", at, s.scalar(extent)))
    return _all(s, tests)


def _is_below(s: Lowering, at: Value, key: object) -> bool:
    for known in s.below.get(at, ()):
        if known == key or (isinstance(known, int) and isinstance(key, int) and known <= key):
            return True
    return isinstance(key, int) and key > 0 and s.is_zero(at)


def _all(s: Lowering, tests: list[Value]) -> Value | None:
    if not tests:
        return None
    both = tests[0]
    for test in tests[1:]:
        both = s.b.binary("and", both, test)
    return both


def guarded(s: Lowering, inside: Value | None, read: Callable[[], Value], dtype: DType) -> Value:
    """``read()`` where ``inside`` holds, else 0."""
    if inside is None:
        return read()
    with s.b.region() as then, s.inside():
        s.b.yield_(read())
    with s.b.region() as otherwise, s.inside():
        zero: bool | float = False if dtype == BOOL else 0
        s.b.yield_(s.b.constant(zero, dtype))
    return s.b.if_(inside, then.region, otherwise.region)[0]


def _axis(op: Operation) -> int:
    return op.integer("axis")


_RULES = {
    "full": _full, "iota": _iota, "prefetch": _same, "expand": _expand, "broadcast": _broadcast,
    "transpose": _transpose, "mask": _mask, "extract": _extract, "load": _load,
    "gather": _gather,
}  # fmt: skip
