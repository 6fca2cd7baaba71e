"""How much an iteration of the grid does, where that is so little that one lane can do it.

Owns the bounds of numbers that the program itself says: ``min(a + 7, n) - a`` is at most 7. Must
not know what a schedule makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import COUNTED_LOOPS, ELEMENT_ACCESSES, LOOP_EXITS
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.kernel_facts import FOR, STORE, Facts
from tessera_lang.record import dataclass, field

_TAKEN = tuple(PREFIX + n for n in (
    "for", "load", "store", "reduce", "expand", "transpose", "mask", "iota", "full", "parameter",
    "broadcast",
))  # fmt: skip
"""Operations on tiles that one lane does element by element as well as a group does."""
_IF = "tile.if"
_MOST_LOOKED_AT = 200
"""Parts of numbers; the expressions of indices that people write have a few tens."""


def one_lane_can(grid: Operation) -> bool:
    """Whether an iteration has nothing that lanes do together."""
    for operation in grid.walk():
        if operation is grid:
            continue
        if operation.name.startswith(PREFIX) and operation.name not in _TAKEN:
            return False
        if operation.regions and operation.name not in COUNTED_LOOPS and operation.name != _IF:
            return False
        if operation.name in LOOP_EXITS or operation.name == "tile.print":
            return False
    return True


def is_scalar(grid: Operation) -> bool:
    """Whether an iteration has no tile of several elements: lanes of a group would all do the
    same."""
    return all(
        n == 1
        for o in grid.walk() for v in o.results if isinstance(v.type, TileType)
        for n in v.type.shape
    )  # fmt: skip


def elements_of_an_iteration(facts: Facts, grid: Operation) -> int | None:
    """How many elements an iteration reads and writes at most, a tile of an open size counted as
    one element; None where that is not known."""
    total, bounds = 0, Bounds(facts)
    inside = [(x.operation.result.type, x.inside) for x in facts.reads]
    inside += [(o.operands[0].type, around) for o, around in facts.stores]
    inside += [(None, around) for o, around in _walked(grid) if o.name in ELEMENT_ACCESSES]
    for tile, around in inside:
        count = _elements(tile)
        for loop in around[around.index(grid) + 1 :] if grid in around else ():
            trips = 1 if loop.name == _IF else bounds.trips(loop)
            if trips is None:
                return None
            count *= trips
        total += count
    return total


def _walked(grid: Operation) -> Iterator[tuple[Operation, tuple[Operation, ...]]]:
    """Everything in the loop, with what is around it."""
    waiting: list[tuple[Operation, tuple[Operation, ...]]] = [(grid, (grid,))]
    while waiting:
        at, around = waiting.pop()
        for region in at.regions:
            for operation in region.operations:
                yield operation, around
                if operation.regions:
                    waiting.append((operation, (*around, operation)))


def held_by_an_iteration(grid: Operation) -> int:
    """Elements of the largest tile of a size that the program says, as one lane would hold it."""
    tiles = [v.type for o in grid.walk() for v in o.results if isinstance(v.type, TileType)]
    return max(map(_elements, tiles), default=1)


def neighbours_lie_together(facts: Facts, grid: Operation) -> bool:
    """Whether iterations that follow each other touch the same elements, or such that follow each
    other: of every array, along its last axis."""
    last = grid.regions[0].arguments[len(grid.strings("axes")) - 1]
    places = [x.starts for x in facts.reads]
    for store, _ in facts.stores:
        places.append(store.operands[2 : 2 + len(store.operands[1].view_type.shape)])
    for starts in places:
        moved = [last in _needs(facts, start) for start in starts]
        if any(moved[:-1]):
            return False
    return True


def _elements(tile: object) -> int:
    count = 1
    if isinstance(tile, TileType):
        for n in tile.shape:
            count *= n if isinstance(n, int) else 1
    return count


def _needs(facts: Facts, value: Value) -> set[Value]:
    """What a number is computed of: arguments of loops, and what has no definition."""
    found: set[Value] = set()
    waiting, seen = [value], {value}
    while waiting:
        at = waiting.pop()
        definition = facts.definitions.get(at)
        if definition is None:
            found.add(at)
        for operand in definition.operands if definition is not None else ():
            if operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return found


@dataclass(slots=True, eq=False)
class Bounds:
    """The most that numbers of a kernel are; each is looked at once."""

    facts: Facts
    known: dict[tuple[Value, Value | None], int | None] = field(
        default_factory=dict[tuple[Value, "Value | None"], "int | None"]
    )

    def trips(self, loop: Operation) -> int | None:
        """How often the body of a loop runs at most; None: not known."""
        if loop.name != FOR:
            return None
        axes, product = len(loop.strings("axes")), 1
        for axis in range(axes):
            lower, upper, step = (loop.operands[axis + part * axes] for part in range(3))
            by = self.facts.constant(step)
            if by is None:
                definition = self.facts.definitions.get(step)
                if definition is None or definition.name != PREFIX + "parameter":
                    return None
                by = 1  # an open size
            most = self.most(upper, None if self.facts.constant(lower) == 0 else lower)
            if most is None or by < 1:
                return None
            product *= max(0, -(-most // by))
        return product

    def most(self, value: Value, less: Value | None) -> int | None:
        """The most that ``value`` is, or that it is more than ``less``; None: not known."""
        key = value, less
        if key not in self.known:
            self.known[key] = None  # beyond the limit of what is looked at it stays so
            if len(self.known) < _MOST_LOOKED_AT:
                self.known[key] = self._found(value, less)
        return self.known[key]

    def _found(self, value: Value, less: Value | None) -> int | None:
        definition = self.facts.definitions.get(value)
        name = definition.name.removeprefix("tile.") if definition is not None else ""
        operands = list(definition.operands) if definition is not None else list[Value]()
        if less is not None:
            apart = _difference(self.facts, value, less)
            if apart is not None:
                return apart
        if name in ("min", "max"):
            found = [self.most(v, less) for v in operands]
            known = [n for n in found if n is not None]
            if name == "max" and len(known) == len(found):
                return max(known)
            if name == "min" and known:
                return min(known)
        if less is not None:
            below = self.facts.definitions.get(less)
            # It is no more than what exceeds any part of a maximum.
            parts = below.operands if below is not None and below.name == "tile.max" else ()
            over = [self.most(value, part) for part in parts]
            return min((n for n in over if n is not None), default=None)
        return self._of_arithmetic(value, name, operands)

    def _of_arithmetic(self, value: Value, name: str, operands: list[Value]) -> int | None:
        match name:
            case "constant":
                return self.facts.constant(value)
            case "sub":
                return self.most(operands[0], operands[1])
            case "add":
                known = [n for v in operands if (n := self.most(v, None)) is not None]
                return sum(known) if len(known) == len(operands) else None
            case "mod":
                by = self.facts.constant(operands[1])
                return by - 1 if by is not None and by > 0 else None
            case "floordiv" | "mul":
                by, most = self.facts.constant(operands[1]), self.most(operands[0], None)
                if by is None or by < 1 or most is None:
                    return None
                return most // by if name == "floordiv" else most * by
            case _:
                return None


def _difference(facts: Facts, a: Value, b: Value) -> int | None:
    """``a - b`` where it is a number: both are the same sum of products by numbers, but for it."""
    terms: dict[Value, int] = {}
    number, looked_at = 0, 0
    waiting = [(a, 1), (b, -1)]
    while waiting:
        looked_at += 1
        if looked_at > _MOST_LOOKED_AT:
            return None  # what adds up to itself again and again has as many parts as you like
        value, times = waiting.pop()
        constant = facts.constant(value)
        if constant is not None:
            number += times * constant
            continue
        definition = facts.definitions.get(value)
        parts = _parts(facts, definition) if definition is not None else ()
        if parts:
            waiting += [(part, times * by) for part, by in parts]
            continue
        key = next((known for known in terms if facts.same(known, value)), value)
        terms[key] = terms.get(key, 0) + times
    return None if any(terms.values()) else number


def _parts(facts: Facts, operation: Operation) -> tuple[tuple[Value, int], ...]:
    """What is added up, and how often each; nothing for other operations."""
    if operation.name in ("tile.add", "tile.sub"):
        a, b = operation.operands
        return (a, 1), (b, 1 if operation.name == "tile.add" else -1)
    if operation.name == "tile.mul":
        for one, other in (operation.operands, operation.operands[::-1]):
            by = facts.constant(one)
            if by is not None:
                return ((other, by),)
    return ()


def is_stored_small(facts: Facts, most: int) -> bool:
    """Whether every store of an iteration is of at most so many elements."""
    return all(o.name == STORE and _elements(o.operands[0].type) <= most for o, _ in facts.stores)
