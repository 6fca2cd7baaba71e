"""Elements of a tile behind its extent that reach nothing anybody sees.

A copy engine is not told where a tile ends, only where its array does; what it brings behind the
end of the tile is of the array too. That changes nothing where those elements only make elements
of products, and of what is computed from these at the same place, which no store writes. Owns
that walk. Must not know copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import ARRAY_WRITES, BOXES, ELEMENT_WISE, is_pure
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    FOR,
    MASK,
    PREFETCH,
    REDUCE,
    TRANSPOSE,
    Facts,
)

_BOUNDED = {MASK, *(ARRAY_WRITES & BOXES)}
"""Operations that see nothing behind their extents, which are their last operands."""

_Place = tuple[Value, int]
"""A tile, and an axis of it along which elements behind the extent may be anything."""


def is_unseen(tile: Value, axis: int, terms: Sequence[Value], facts: Facts) -> bool:
    """Whether elements of ``tile`` along ``axis`` behind the least of ``terms`` are seen nowhere,
    whatever they hold."""
    ends = {id(r.terminator): o for o in facts.kernel.walk() for r in o.regions}
    waiting, seen = [(tile, axis)], set[_Place]()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        for user in facts.users.get(place[0], ()):
            if id(user) in ends:
                more = _handed_on(user, ends[id(user)], place)
            else:
                more = _further(user, place, terms, facts)
            if more is None:
                return False
            waiting += more
    return True


def _further(
    user: Operation, place: _Place, terms: Sequence[Value], facts: Facts
) -> list[_Place] | None:
    """Where those elements get to by one operation; None where they may be seen."""
    value, axis = place
    if user.name == FOR:
        return _carried(user, place)
    if user.name == DOT:
        return _multiplied(user, place)
    if user.name == TRANSPOSE:
        return [(user.result, user.integers("permutation").index(axis))]
    if user.name == REDUCE:
        own = user.integer("axis")
        if own != axis:
            return [(user.result, axis - (own < axis))]
        return [] if _is_within(user.operands[1], terms, facts) else None
    if user.name in _BOUNDED:
        extent = user.operands[axis - len(value.tile_type.shape)]
        bounded = value is user.operands[0] and _is_within(extent, terms, facts)
        return [] if bounded else None
    same = user.name == PREFETCH or (user.name in ELEMENT_WISE and is_pure(user))
    if not same or not isinstance(user.result.type, TileType):
        return None
    return [(user.result, axis)]


def _multiplied(dot: Operation, place: _Place) -> list[_Place] | None:
    """Rows of the first operand and columns of the second are those of the result."""
    value, axis = place
    a, b, total = dot.operands
    last = len(dot.result.tile_type.shape) - 1
    kept = ((a, last - 1), (b, last), (total, axis))
    if any(value is operand and axis != own for operand, own in kept):
        return None
    return [(dot.result, axis)]


def _carried(loop: Operation, place: _Place) -> list[_Place]:
    value, axis = place
    count = len(loop.strings("axes"))
    carried, inner = loop.operands[3 * count :], loop.regions[0].arguments[count:]
    found = [i for i, v in enumerate(carried) if v is value]
    return [(v, axis) for i in found for v in (inner[i], loop.results[i])]


def _handed_on(end: Operation, around: Operation, place: _Place) -> list[_Place] | None:
    value, axis = place
    inner: Sequence[Value] = ()
    if around.name == FOR:
        inner = around.regions[0].arguments[len(around.strings("axes")) :]
    elif around.name != "tile.if":
        return None
    found = [i for i, v in enumerate(end.operands) if v is value]
    return [(v, axis) for i in found for v in (around.results[i], *inner[i : i + 1])]


def _is_within(extent: Value, terms: Sequence[Value], facts: Facts) -> bool:
    """Whether an extent is surely no more than each of some numbers."""
    bounds = _bounds(extent, facts)
    return all(any(facts.same(b, t) for b in bounds) for t in terms)


def _bounds(extent: Value, facts: Facts) -> list[Value]:
    """Numbers that an extent is surely not more than, where those are not negative: of a minimum
    its parts, and of a choice that is 0 otherwise what is chosen."""
    found, waiting = dict[Value, None](), [extent]
    while waiting:
        value = waiting.pop()
        if value in found:
            continue
        found[value] = None
        made = facts.definitions.get(value)
        if made is not None and made.name == "tile.min":
            waiting += made.operands
        elif made is not None and _is_choice(made, facts):
            waiting.append(made.operands[1])
    return list(found)


def _is_choice(made: Operation, facts: Facts) -> bool:
    return made.name == "tile.select" and facts.constant(made.operands[2]) == 0
