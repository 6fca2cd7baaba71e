"""Loop interchange: a loop over the parts of a sum goes outside of the loop that it sums over.

``for r: for j: C[j] += e`` sums over ``r``: the parts of ``C`` are independent, the terms of a sum
are not, so ``j`` goes outside. Owns which loops are taken apart, put together and turned for it,
and the order of the axes of a loop inside of another. Whether two iterations meet is asked of
``query/array_dependence.py``. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.opt.schedule.parallel.independence import verdicts
from tessera_lang.opt.schedule.parallel.loop_distribution import distributed
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import (
    fused,
    is_quiet,
    joined,
    names_of,
    split,
    sunk,
    with_region,
)
from tessera_lang.opt.schedule.parallel.sink_conditions import sink_conditions
from tessera_lang.opt.schedule.query.array_dependence import (
    ACCUMULATE,
    FOR,
    Nest,
    accesses_in,
    depends,
)
from tessera_lang.opt.schedule.query.def_use import (
    arrays_of,
    definitions_of,
)
from tessera_lang.record import dataclass, replace

_WHILE = "tile.while"


Form = tuple[tuple[str, int, int], ...]


def form_of(o: Operation) -> Form:
    """What an operation holds, whatever its values are called."""
    return tuple((x.name, len(x.operands), len(x.results)) for x in o.walk())


def interchange_loops(program: Program) -> Program:
    """The program whose loops at the top are interchanged where more of them can be spread then,
    or keep their sums."""
    (kernel,) = program.operations
    region = kernel.regions[0]
    interchange = Interchange(definitions_of(kernel), arrays_of(kernel))
    operations = tuple(x for o in region.operations for x in interchange.turned(o))
    return with_region(program, Region(region.arguments, operations))


@dataclass(frozen=True, slots=True)
class Interchange:
    """What is known of a kernel whose loops are turned."""

    definitions: Mapping[Value, Operation]
    arrays: Mapping[Value, Value]

    def with_(self, o: Operation) -> Interchange:
        own = definitions_of(o)
        if all(self.definitions.get(v) is made for v, made in own.items()):
            return self
        return Interchange({**self.definitions, **own}, self.arrays)

    # --- loops at the top of a kernel -----------------------------------------------------------

    def turned(self, o: Operation, above: frozenset[Form] = frozenset()) -> list[Operation]:
        """An operation at the top of a kernel, as loops of which more can be spread, or which keep
        their sums; itself where there are none. ``above``: the loops that it is a part of. A part
        with all that one of them has (what it carries needs everything) is taken apart no more."""
        if o.name != FOR or not (_holds_loops(o) or self._writes_much(o)):
            return [o]
        torn = self._torn(o)
        if self._spread(o) and not torn:
            return [o]
        for made in self._as_one(o):
            if self._spread(made) and not (torn and self._torn(made)):
                return [made]
        for deep in (False, True) if torn else (False,):
            parts = distributed(o, self.arrays, deep)
            if parts is None:
                continue
            seen = above | {form_of(o)}
            loops = [joined(part) for part in parts]
            if any(form_of(x) in seen for x in loops):
                continue
            made_ = [x for part in loops for x in self.with_(part).turned(part, seen)]
            whole = not any(self._torn(x) for x in made_)
            if whole and (torn or any(self._spread(x) for x in made_)):
                return made_
        return [o]

    def _as_one(self, o: Operation) -> Iterator[Operation]:
        """The loop together with the loops in it, from the outside to the inside."""
        if o.results:
            return
        for _ in range(_MOST_AXES):
            made = sunk(o, self.arrays) or sunk(self._gathered(o), self.arrays)
            if made is None:
                return
            yield made
            o = made

    def _gathered(self, o: Operation) -> Operation:
        """The loop whose inner loops are as few as can be: without conditions around them, and
        neighbours over the same numbers as one."""
        (region,) = o.regions
        *operations, end = sink_conditions(region).operations
        i = 0
        while i < len(operations):
            j = next((j for j in range(i + 1, len(operations)) if operations[j].name == FOR), None)
            made = None
            if operations[i].name == FOR and j is not None:
                made = self._pair(operations[i], operations[i + 1 : j], operations[j])
            if made is None or j is None:
                i += 1
            else:
                operations[i : j + 1] = [*operations[i + 1 : j], made]
                i = j - 1
        return replace(o, regions=(Region(region.arguments, (*operations, end)),))

    def _pair(
        self, first: Operation, between: Sequence[Operation], second: Operation
    ) -> Operation | None:
        """Two loops as one, where no iteration of one meets another iteration of the other."""
        written = {a.array for a in accesses_in(first, self.arrays) if a.writes}
        if not all(map(is_quiet, between)) or any(
            a.array in written for o in between for a in accesses_in(o, self.arrays)
        ):
            return None
        made = fused(first, second, self.definitions)
        if made is None:
            return None
        nest = Nest(made, {**self.definitions, **definitions_of(made)})
        found = accesses_in(made, self.arrays)
        count = len(accesses_in(first, self.arrays))
        for a in found[:count]:
            for b in found[count:]:
                if a.array is not b.array or not (a.writes or b.writes):
                    continue
                if a.operation.name == b.operation.name == ACCUMULATE and a.kind == b.kind:
                    continue
                if not all(nest.disjoint(axis, a, b) for axis in range(len(names_of(made)))):
                    return None
        return made

    def _spread(self, o: Operation) -> bool:
        if o.name != FOR:
            return False
        own = self.with_(o)
        return any(v.grid for v in verdicts(o, own.definitions, self.arrays))

    def _writes_much(self, o: Operation) -> bool:
        return sum(a.writes for a in accesses_in(o, self.arrays)) > 1

    # --- sums that are rounded more than once -----------------------------------------------------

    def _torn(self, o: Operation) -> bool:
        """Whether a loop that a sum is over stands around one that its place depends on."""
        sums = [x for x in o.nested(ACCUMULATE) if is_narrow(x)]
        if not sums:
            return False
        own = self.with_(o)
        levels = dict(own._levels(o, (), True))
        return any(own._is_torn(x, levels[x]) for x in sums)

    def _is_torn(self, o: Operation, levels: Sequence[Sequence[Value]]) -> bool:
        over = False
        for variables in levels:
            uses = any(depends(v, variables, self.definitions) for v in o.operands[2:])
            if uses and over:
                return True
            over = over or not uses
        return False

    def _levels(
        self, o: Operation, around: tuple[tuple[Value, ...], ...], top: bool = False
    ) -> Iterator[tuple[Operation, tuple[tuple[Value, ...], ...]]]:
        """Each sum, with the variables of the loops around it that will run in order, outermost
        first; at the top what is spread does not."""
        if o.name == ACCUMULATE:
            yield o, around
        if o.name == FOR:
            first, rest = self._parted(o)
            arguments = o.regions[0].arguments
            order = rest if top else [*first, *rest]
            around = (*around, *((arguments[i],) for i in order))
        elif o.name == _WHILE:
            around = (*around, tuple(v for r in o.regions for v in r.arguments))
        for region in o.regions:
            for inner in region.operations:
                yield from self._levels(inner, around)

    def _parted(self, o: Operation) -> tuple[list[int], list[int]]:
        """The axes of a loop of which iterations are independent, and the others."""
        found = verdicts(o, self.definitions, self.arrays)
        every = range(len(found))
        return [i for i in every if found[i].grid], [i for i in every if not found[i].grid]

    # --- loops inside of others -------------------------------------------------------------------

    def inside(self, o: Operation) -> list[Operation]:
        """A loop inside of another as loops that run in order, with all in them: the axes that are
        summed over are the inner ones."""
        made = self._untorn(o) if _is_summing(o) else [o]
        return [self._ordered(x) for x in made]

    def _untorn(self, o: Operation) -> list[Operation]:
        """A loop as loops that keep their sums; itself where there are none."""
        if not self._torn(o):
            return [o]
        for made in self._as_one(o):
            if not self._torn(made):
                return [made]
        for deep in (False, True):
            parts = distributed(o, self.arrays, deep) or []
            made_ = [x for part in parts for x in self.with_(part)._untorn(joined(part))]
            if made_ and not any(self._torn(x) for x in made_):
                return made_
        return [o]

    def _ordered(self, o: Operation) -> Operation:
        """The operation with all its axes in order, those that are summed over behind others."""
        if not o.regions:
            return o
        own = self.with_(o)
        if _is_summing(o) and not o.results and len(names_of(o)) > 1:
            found = verdicts(o, own.definitions, self.arrays)
            first, rest = own._parted(o)
            if rest:
                o = split(o, first, rest, {i: found[i].reason for i in rest})
        regions = tuple(
            Region(r.arguments, tuple(x for inner in r.operations for x in own.inside(inner)))
            for r in o.regions
        )
        if o.name != FOR:
            return replace(o, regions=regions)
        mapping = ("loop",) * len(names_of(o))
        return replace(o, regions=regions, attributes={**o.attributes, "mapping": mapping})


_MOST_AXES = 8
"""Loops in each other that are put together."""


def is_narrow(o: Operation) -> bool:
    """Whether a sum is kept in another dtype than its array has."""
    tile, view = o.operands[:2]
    return tile.tile_type.dtype != view.view_type.dtype


def _is_summing(o: Operation) -> bool:
    return o.name == FOR and o.holds(ACCUMULATE)


def _holds_loops(o: Operation) -> bool:
    return any(x is not o for x in o.nested(FOR))
