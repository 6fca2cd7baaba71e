"""Loops of a lane that run a few times at most are written out, and their loads begin together.

A window of three elements is cut off at the edges of its array, so how often a loop over it runs is
known only to the run, and a lane waits for each element before it asks for the next. Where the
program says how often at most, there are as many copies of the body. A copy that the run does not
need does what the last that it needs does, again: nothing is read that was not, and where the loop
picks the greatest or least nothing more has to be done. Elsewhere its result is left out. Only
where a loop does not run at all is the nest of loops as it was. Owns the rewriting. Must not know
what bounds a loop.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.definitions import is_pure
from tessera_lang.ir.rewrite import Replacement, clone_operation, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.cost.lane_sized_iterations import Bounds
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import (
    FOR,
    LOAD,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.record import dataclass
from tessera_lang.target.tuned_constants import SHORT_COPIES

_PICKS = ("tile.max", "tile.min", "tile.and", "tile.or")


@rewrites
def write_out(program: Program, context: Context) -> Program:
    """The program with its short loops written out; itself where there are none."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    grid = facts.grid
    if grid is None or context.machine.target == "cpu":
        return program
    bounds = Bounds(facts)
    # Their innermost statements are those of the kernel, and their number that of all copies.
    roots: dict[int, _Nest] = {}
    for operation in grid.regions[0].operations:
        nest = _Nest.of(operation, facts, bounds) if operation.name == FOR else None
        if nest is not None and 1 < nest.copies() <= SHORT_COPIES:
            roots[id(operation)] = nest
    if not roots:
        return program
    by_result = {n.root.results[0]: n for n in roots.values()}

    def step(o: Operation) -> Replacement | None:
        nest = by_result.get(o.results[0]) if o.name == FOR and o.results else None
        return nest.written_out() if nest is not None else None

    return with_kernel(program, rewrite_operation(kernel, step))


@dataclass(frozen=True, slots=True, eq=False)
class _Nest:
    """A loop, and those in it, whose number of turns is known before it: at most ``most``."""

    root: Operation
    most: Mapping[Operation, int]

    @staticmethod
    def of(root: Operation, facts: Facts, bounds: Bounds) -> _Nest | None:
        """None where a loop does more than read and compute, or may run any number of times."""
        inner = {v for o in root.walk() for r in o.regions for v in r.arguments}
        inner |= {v for o in root.walk() if o is not root for v in o.results}
        most: dict[Operation, int] = {}
        for o in root.walk():
            if o.name == FOR:
                trips = bounds.trips(o)
                plain = len(o.strings("axes")) == 1 and not is_grid(o) and bool(o.results)
                lower, upper, step = o.operands[:3]
                by_ones = facts.constant(lower) == 0 and facts.constant(step) == 1
                if not plain or not by_ones or trips is None or trips < 1 or upper in inner:
                    return None
                if facts.constant(upper) is not None:
                    return None  # whoever makes code writes it out
                most[o] = trips
            elif o.regions or not (o.name == LOAD or o.name == "tile.yield" or is_pure(o)):
                return None
        return _Nest(root, most)

    def copies(self) -> int:
        """Of the innermost bodies."""
        return self._copies(self.root)

    def _copies(self, loop: Operation) -> int:
        inner = [o for o in loop.regions[0].operations if o.name == FOR]
        return self.most[loop] * max(1, sum(map(self._copies, inner)))

    def written_out(self) -> Replacement:
        """A condition: either all loops run, and then copies stand for them, or as they are."""
        b = ScheduleBuilder(self.root.span)
        with b.region() as made:
            one = b.index(1)
            tests = [b.cmp("ge", o.operands[1], one) for o in self.most]
            all_run = tests[0]
            for test in tests[1:]:
                all_run = b.binary("and", all_run, test)
            with b.region() as copies:
                b.yield_(*self._written(b, self.root, {}))
            with b.region() as loops:
                whole = b.append(clone_operation(self.root, {}))
                b.yield_(*whole.results)
            results = tuple(v.type for v in self.root.results)
            chosen = b.emit("tile.if", (all_run,), results, {}, (copies.region, loops.region))
            b.yield_()
        return Replacement(made.region.operations[:-1], chosen.results)

    def _written(
        self, b: ScheduleBuilder, loop: Operation, outer: Mapping[Value, Value]
    ) -> tuple[Value, ...]:
        """What a loop gives, of which the first turn is certain."""
        to = dict(outer)
        region = loop.regions[0]
        variable, *carried = region.arguments
        upper = to.get(loop.operands[1], loop.operands[1])
        now = [to.get(v, v) for v in loop.operands[3:]]
        last = b.binary("sub", upper, b.index(1))
        picks = _picks(loop)
        for turn in range(self.most[loop]):
            at = b.index(turn)
            runs = b.cmp("lt", at, upper) if turn else None
            body = {**to, variable: b.binary("min", at, last) if turn else at}
            body.update(zip(carried, now, strict=True))
            for o in region.operations[:-1]:
                if o.name == FOR:
                    body.update(zip(o.results, self._written(b, o, body), strict=True))
                else:
                    b.append(clone_operation(o, body))
            made = [body.get(v, v) for v in region.operations[-1].operands]
            now = [
                new if runs is None or pick else _chosen(b, runs, new, old)
                for new, old, pick in zip(made, now, picks, strict=True)
            ]
        return tuple(now)


def _picks(loop: Operation) -> list[bool]:
    """By what a loop carries, whether a turn that is done again changes nothing: the greatest of
    what there was and of something that is computed without it."""
    region = loop.regions[0]
    carried = region.arguments[1:]
    found: list[bool] = []
    for before, after in zip(carried, region.operations[-1].operands, strict=True):
        made = next((o for o in region.operations if after in o.results), None)
        picks = made is not None and made.name in _PICKS and before in made.operands
        readers = [o for o in loop.walk() if any(v in carried for v in o.operands)]
        found.append(picks and readers == [made])
    return found


def _chosen(b: ScheduleBuilder, condition: Value, new: Value, old: Value) -> Value:
    if isinstance(new.type, TileType):
        condition = b.full(condition, new.type.shape)
    return b.select(condition, new, old)
