"""Where one test decides for many guarded accesses, before the first of them.

Neighbouring operations of a block make a group where the indices of their accesses are known ahead:
sums of values from before the group, in a loop at its first and last iteration. Where the tests of
a group hold, all its accesses are inside; where they do not, nothing is known. Must not know what
is made of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_lang.analysis.guards.bounds_conditions import Bound, Needs, Sum, Terms, near, needs_of
from tessera_lang.analysis.guards.hoistable_values import NEAR, Ahead, KernelValues
from tessera_lang.analysis.ranges.accesses import ACCESSES
from tessera_lang.ir.core import Operation, Region
from tessera_lang.ir.definitions import (
    BUFFERS,
    LOOP_EXITS,
    LOOPS,
)
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import INDEX

MOST_OPERATIONS = 400
"""Of a group, nested ones included: there will be two copies of it."""
_MOST_STARTS = 6
_FIXED = {"tile.view", *BUFFERS, *(d.name for d in TILE_LEVEL_OPS)}


@dataclass(frozen=True, slots=True)
class Group:
    """Operations ``start .. stop - 1`` of a block: ``accesses`` are inside where ``tests`` hold.

    ``moved``: operations that give values of the tests, to be done ahead, in order. ``together``:
    lanes meet within; the tests are about all of them, so that all go the same way. ``bounds``: of
    a loop that is the whole group; they are inside as long as its counter keeps to them.
    """

    start: int
    stop: int
    accesses: frozenset[Operation]
    tests: tuple[Sum, ...]
    moved: tuple[Operation, ...]
    bounds: tuple[Bound, ...] = ()
    together: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """A guarded access within a group. ``certain``: no condition is between."""

    operation: Operation
    certain: bool
    looped: bool


def leaves(operation: Operation) -> bool:
    """Whether control may go from within an operation to behind its block."""
    loop, scope = operation.name in LOOPS, operation.name == "tile.scope"
    return any(_exits(region, loop, scope) for region in operation.regions)


def _exits(region: Region, in_loop: bool, in_scope: bool) -> bool:
    for operation in region.operations:
        name = operation.name
        if name == "tile.return":
            return True
        if name in LOOP_EXITS and not in_loop:
            return True
        if name == "tile.leave" and not in_scope:
            return True
        loop, scope = in_loop or name in LOOPS, in_scope or name == "tile.scope"
        if any(_exits(inner, loop, scope) for inner in operation.regions):
            return True
    return False


def is_guarded(operation: Operation) -> bool:
    return operation.name in ACCESSES and operation.attributes["bounds"] == "guarded"


@dataclass(slots=True)
class GroupFinder:
    """Groups of the blocks of one kernel."""

    values: KernelValues

    # --- groups -------------------------------------------------------------------------------

    def groups(self, operations: Sequence[Operation], settled: frozenset[Operation]) -> list[Group]:
        """The groups of a block, in order; none is about the accesses in ``settled``."""
        found: list[Group] = []
        at, end = 0, len(operations) - (operations[-1].name in _EXITS)
        while at < end:
            stop = at
            while stop < end and not _fixed(operations[stop]):
                stop += 1
            group = self._within(operations, at, stop, settled)
            if group is None and stop < end and _may_meet(operations[stop]):
                group = self._split_or_whole(operations, stop, stop + 1, settled, together=True)
            at = group.stop if group is not None else stop + 1
            if group is not None:
                found.append(group)
        return found

    def _within(
        self, operations: Sequence[Operation], at: int, end: int, settled: frozenset[Operation]
    ) -> Group | None:
        """The first group of operations ``at .. end - 1``, none of which is fixed."""
        starts = [
            i for i in range(at, end)
            if any(is_guarded(o) and o not in settled for o in operations[i].walk())
        ]  # fmt: skip
        for start in starts[:_MOST_STARTS]:
            stop, size = start, 0
            while stop < end and size <= MOST_OPERATIONS:
                size += sum(1 for _ in operations[stop].walk())
                stop += 1
            stop -= size > MOST_OPERATIONS
            group = self._split_or_whole(operations, start, stop, settled)
            if group is not None:
                return group
        return None

    def _split_or_whole(
        self, operations: Sequence[Operation], start: int, stop: int,
        settled: frozenset[Operation], together: bool = False,
    ) -> Group | None:  # fmt: skip
        """A loop that is inside up to some iteration is a group of its own."""
        if start >= stop:
            return None
        ahead = Ahead(self.values, self.values.places[operations[start]], together)
        group: Group | None = None
        if self._may_split(operations[start]):
            group = self._group(operations, start, start + 1, settled, ahead, operations[start])
        if group is None:
            group = self._group(operations, start, stop, settled, ahead)
        return group

    def _may_split(self, loop: Operation) -> bool:
        if loop.name != "tile.for" or _breaks(loop.regions[0]):
            return False
        lower, upper, step = (self.values.known.interval(v) for v in loop.operands[:3])
        whole = lower[0] == lower[1] and upper[0] == upper[1]
        return loop.operands[0].type == INDEX and 1 <= step[0] == step[1] <= NEAR and not whole

    def _group(
        self, operations: Sequence[Operation], start: int, stop: int,
        settled: frozenset[Operation], ahead: Ahead, split: Operation | None = None,
    ) -> Group | None:  # fmt: skip
        found = [
            (number, access)
            for number, access in _accesses(operations, start, stop)
            if access.operation not in settled
        ]
        tests, taken, worth = Needs(), dict[Operation, int](), 0
        for number, access in found:
            needed = needs_of(access.operation, ahead, split) if access.certain else None
            if needed is not None and tests.join(needed):
                taken[access.operation] = number
                worth += 2 if access.looped else 1
        if worth < 2 or (split is not None and not tests.bounds):
            return None
        for number, access in found:
            if access.operation not in taken:
                needed = needs_of(access.operation, ahead, split)
                if needed is not None and tests.covers(needed):
                    taken[access.operation] = number
        if split is not None:
            lower = ahead.form(split.operands[0])
            if lower is None or near(tests, lower, ahead) is None:
                return None
        sums = tuple(self._sum(terms, constant) for terms, constant in tests.sums.items())
        bounds = tuple(
            Bound(factor, self._sum(terms, constant))
            for (terms, factor), constant in tests.bounds.items()
        )
        moved = _needed(tuple(ahead.moved), (*sums, *(bound.most for bound in bounds)))
        last = max(taken.values()) + 1
        return Group(start, last, frozenset(taken), sums, moved, bounds, ahead.together)

    def _sum(self, terms: Terms, constant: int) -> Sum:
        return Sum(tuple((self.values.atoms[a], c) for a, c in terms), constant)


def decided(finder: GroupFinder, kernel: Operation) -> dict[Operation, tuple[Operation, int]]:
    """Accesses that a test ahead decides, with the operation it stands before, and for how many."""
    found: dict[Operation, tuple[Operation, int]] = {}
    _decide(finder, kernel.regions[0].operations, frozenset(), found)
    return found


def _decide(
    finder: GroupFinder, operations: Sequence[Operation], settled: frozenset[Operation],
    found: dict[Operation, tuple[Operation, int]],
) -> None:  # fmt: skip
    at = 0
    for group in (*finder.groups(operations, settled), None):
        for operation in operations[at : len(operations) if group is None else group.start]:
            for region in operation.regions:
                _decide(finder, region.operations, settled, found)
        if group is not None:
            first = operations[group.start]
            found.update(dict.fromkeys(group.accesses, (first, len(group.accesses))))
            part = operations[group.start : group.stop]
            _decide(finder, part, settled | group.accesses, found)
            at = group.stop


_EXITS = {d.name for d in TILE_OPS.values() if d.is_terminator}


def _breaks(region: Region) -> bool:
    """Whether a ``break`` leaves the loop that a region is the body of."""
    return any(
        operation.name == "tile.break"
        or (operation.name not in LOOPS and any(_breaks(r) for r in operation.regions))
        for operation in region.operations
    )


def _fixed(operation: Operation) -> bool:
    """Whether lanes meet in an operation, or it is there but once."""
    return any(inner.name in _FIXED or _meets(inner) for inner in operation.walk())


def _meets(operation: Operation) -> bool:
    return TILE_OPS[operation.name].effect in ("sync", "warp")


def _may_meet(operation: Operation) -> bool:
    """Whether an operation is a loop that may be there twice, if all lanes take the same."""
    if operation.name not in LOOPS:
        return False
    names = [inner.name for inner in operation.walk()]
    return len(names) <= MOST_OPERATIONS and _FIXED.isdisjoint(names)


def _accesses(
    operations: Sequence[Operation], start: int, stop: int
) -> Iterator[tuple[int, _Found]]:
    """Guarded accesses of a block, with the number of the operation they are in."""
    certain = True
    for number in range(start, stop):
        for found in _inside(operations[number], certain, False):
            yield number, found
        certain = certain and not leaves(operations[number])


def _inside(operation: Operation, certain: bool, looped: bool) -> Iterator[_Found]:
    if is_guarded(operation):
        yield _Found(operation, certain, looped)
    within = certain and operation.name != "tile.if"
    for region in operation.regions:
        here = within
        for inner in region.operations:
            yield from _inside(inner, here, looped or operation.name in LOOPS)
            here = here and not leaves(inner)


def _needed(moved: tuple[Operation, ...], sums: tuple[Sum, ...]) -> tuple[Operation, ...]:
    """Of the operations those that the sums need."""
    wanted = {value for one in sums for value, _ in one.terms}
    kept: list[Operation] = []
    for operation in reversed(moved):
        if operation.result in wanted:
            kept.append(operation)
            wanted.update(operation.operands)
    return tuple(reversed(kept))
