"""Index set splitting: the iterations in which a condition is surely known stand apart.

``for j in ...: s = where(j + column <= i + row, s, -inf)`` becomes a loop over the iterations in
which the condition is true for all elements of a tile, without it, and one over the others. Several
conditions give up to three loops: before, where all are known, behind. No iteration is left out
and none runs in another order. Owns the decision and the rewriting; ``monotone_conditions`` has the
conditions. Must not know what the loop computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.definitions import MOVES
from tessera_lang.ir.rewrite import Replacement, clone_operation, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.cost.split_k_cost import parts_of
from tessera_lang.opt.schedule.loops.loop_peeling import divides, of_one_loop
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    FOR,
    Estimate,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.opt.schedule.query.monotone_conditions import Form, Turn, turns_of
from tessera_lang.opt.schedule.query.staging_rings import holds_staged, ring_marks
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import PEELED_REGISTERS, SPLIT_TRIPS
from tessera_lang.types.dtype import BOOL, INDEX

_FULL = PREFIX + "full"


@rewrites
def split(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if parts_of(kernel) > 1:
        return program  # groups that share a contraction take its loop apart themselves
    facts = facts_of(kernel)
    has_roles = "roles" in kernel.attributes
    if has_roles and 0 < kernel.integers("registers")[0] < PEELED_REGISTERS:
        return program  # the role that moves data has none left for another loop
    found: dict[int, tuple[Turn, ...]] = {}
    for loop, _ in facts.loops:
        if not _may_be_split(loop, facts, has_roles):
            continue
        turns = turns_of(loop, facts)
        conditions = tuple(t for t in turns if isinstance(t.known, bool))
        if divides(loop, facts) or not conditions:  # ends of tiles alone are `loop_peeling`'s
            turns = conditions
        if not turns and (mask := _mask(loop, facts)) is not None:
            context.note("T0748", "this is done in every iteration of the loop: its condition is "
                         "no comparison of sums of the loop's variable and of places in a tile, "
                         "which would hold for whole tiles", mask.span)  # fmt: skip
        if turns:
            found[id(loop.results)] = turns
            context.note("T0748", "the iterations of this loop in which a condition holds for "
                         "whole tiles stand apart, without it", loop.span)  # fmt: skip
    if not found:
        return program
    marks = ring_marks(facts)

    def step(operation: Operation) -> Replacement | None:
        turns = found.get(id(operation.results)) if operation.name == FOR else None
        if turns is None:
            return None
        made = _apart(operation, turns, facts)
        return Replacement(made, made[-1].results)

    made = rewrite_operation(with_attributes(kernel, marks), step)
    return tidy(with_kernel(program, made))


def _may_be_split(loop: Operation, facts: Facts, has_roles: bool) -> bool:
    """One counted axis with a known step, iterations enough, and rings that several loops can go
    through."""
    if loop.name != FOR or is_grid(loop) or len(loop.strings("axes")) != 1 or not loop.results:
        return False
    ((_,), (_,), (step,)) = bounds_of(loop)
    if (facts.constant(step) or 0) <= 0 or (not has_roles and holds_staged(loop)):
        return False
    trips = Estimate(facts, {}).trips(loop)
    return trips is None or trips >= SPLIT_TRIPS


def _mask(loop: Operation, facts: Facts) -> Operation | None:
    """A choice by element between products and anything else that changes with the variable."""
    if not loop.holds(DOT):
        return None
    variable = loop.regions[0].arguments[0]
    for o in loop.regions[0].operations:
        if o.name == "tile.select" and isinstance(o.operands[0].type, TileType):
            made = facts.definitions.get(o.operands[0])
            computed = made is not None and made.name == "tile.cmp"
            if computed and depends_on([o.operands[0]], variable, facts):
                return o
    return None


# --- where the loops begin and end ----------------------------------------------------------


def _apart(loop: Operation, turns: Sequence[Turn], facts: Facts) -> tuple[Operation, ...]:
    """The operations in place of a loop; the last one has its results."""
    ((lower,), (upper,), (step,)) = bounds_of(loop)
    variable = loop.regions[0].arguments[0]
    b = ScheduleBuilder(loop.span)
    with b.region() as made:
        places = _Places(b, variable, lower, upper, step)
        first, last = lower, upper
        for turn in turns:
            if turn.factor > 0:
                last = places.until(turn, last)
            else:
                first = places.begin(turn, first)
        if first is not lower and last is not upper:
            last = b.binary("max", first, last)
        carried = loop.operands[3:]
        loop = of_one_loop(loop, facts)
        other = _opposite(turns)
        if first is not lower:
            carried = _loop(b, loop, (lower, first, step), carried, other)
        known = {t.value: t.known for t in turns}
        if last is upper:
            _loop(b, loop, (first, upper, step), carried, known, final=True)
        else:
            carried = _loop(b, loop, (first, last, step), carried, known)
            _loop(b, loop, (last, upper, step), carried, other, final=True)
        b.yield_()
    return made.region.operations[:-1]


def _opposite(turns: Sequence[Turn]) -> dict[Value, bool | int]:
    """What is known in the other iterations: of one condition that is a number, its opposite."""
    if len(turns) != 1 or not turns[0].exact:
        return {}
    return {turns[0].value: not turns[0].known}


def _loop(
    b: ScheduleBuilder, loop: Operation, bounds: tuple[Value, Value, Value],
    carried: Sequence[Value], known: dict[Value, bool | int], final: bool = False,
) -> tuple[Value, ...]:  # fmt: skip
    """One of the loops: a copy, but for the last, which has the results."""
    rest = replace(loop, attributes={**loop.attributes, "remainder": True, "general": True})
    body = _Known(known).inside(loop) if known else rest
    made = replace(body if final else clone_operation(body, {}), operands=(*bounds, *carried))
    return b.append(made).results


class _Places:
    """The numbers at which loops meet: iterations of the one loop, or its end."""

    def __init__(
        self, b: ScheduleBuilder, variable: Value, lower: Value, upper: Value, step: Value
    ) -> None:
        self.b, self.variable = b, variable
        self.lower, self.upper, self.step = lower, upper, step

    def until(self, turn: Turn, last: Value) -> Value:
        """The first iteration in which ``factor * variable + rest <= 0`` does not hold."""
        b = self.b
        most = b.binary("floordiv", self._rest(turn, -1), b.index(turn.factor))
        count = b.binary("floordiv", b.binary("sub", most, self.lower), self.step)
        behind = self._iteration(b.binary("add", count, b.index(1)))
        return b.binary("min", behind, last)

    def begin(self, turn: Turn, first: Value) -> Value:
        """The first iteration in which ``rest <= -factor * variable`` holds."""
        b = self.b
        least = self._up(self._rest(turn, 1), b.index(-turn.factor))
        start = self._iteration(self._up(b.binary("sub", least, self.lower), self.step))
        return b.binary("max", b.binary("min", start, self.upper), first)

    def _iteration(self, number: Value) -> Value:
        b = self.b
        count = b.binary("max", number, b.index(0))
        return b.binary("add", self.lower, b.binary("mul", count, self.step))

    def _up(self, number: Value, by: Value) -> Value:
        """``number / by``, rounded up."""
        b = self.b
        more = b.binary("add", number, b.binary("sub", by, b.index(1)))
        return b.binary("floordiv", more, by)

    def _rest(self, turn: Turn, factor: int) -> Value:
        """A limit without the variable, times a factor."""
        b, form = self.b, Form({}, {}).plus(turn.limit, factor)
        total: Value | None = None
        for value, n in form.numbers.items():
            if value is self.variable:
                continue
            term = value if n == 1 else b.binary("mul", value, b.index(n))
            total = term if total is None else b.binary("add", total, term)
        constant = b.index(form.constant)
        return constant if total is None else b.binary("add", total, constant)


# --- what is known --------------------------------------------------------------------------


class _Known:
    """A loop in which some conditions and numbers are constants, with what follows."""

    def __init__(self, known: dict[Value, bool | int]) -> None:
        self.known = dict(known)

    def inside(self, loop: Operation) -> Operation:
        return rewrite_operation(loop, self._step)

    def _step(self, o: Operation) -> Replacement | None:
        if len(o.results) == 1 and not o.regions:
            if o.result in self.known:
                return self._constant(o, self.known[o.result])
            found = self._follows(o)
            return found if isinstance(found, Replacement | None) else self._constant(o, found)
        if o.name == "tile.if" and o.operands[0] in self.known:
            *inner, end = o.regions[0 if self.known[o.operands[0]] else 1].operations
            return Replacement(tuple(inner), end.operands)
        return None

    def _follows(self, o: Operation) -> Replacement | bool | int | None:
        """What an operation gives, where its operands are known."""
        here = [self.known.get(v) for v in o.operands]
        if not any(x is not None for x in here):
            return None
        if o.name == "tile.select":
            return None if here[0] is None else Replacement((), (o.operands[1 if here[0] else 2],))
        if o.name in ("tile.and", "tile.or"):
            return self._joined(o, here)
        if o.name in ("tile.max", "tile.min") and o.result.type == INDEX:
            return self._extreme(o, here)
        if o.name == "tile.not" and here[0] is not None:
            return not here[0]
        if (o.name in MOVES or o.name == _FULL) and isinstance(here[0], bool):
            return here[0]
        return None

    def _joined(self, o: Operation, here: Sequence[bool | int | None]) -> Replacement | bool | None:
        ends = o.name == "tile.or"  # the value that decides alone
        for x, other in zip(here, reversed(o.operands), strict=True):
            if x is not None:
                return ends if bool(x) is ends else Replacement((), (other,))
        return None

    def _extreme(self, o: Operation, here: Sequence[bool | int | None]) -> int | None:
        numbers = [int(x) for x in here if x is not None]
        if len(numbers) < 2:
            return None
        return max(numbers) if o.name == "tile.max" else min(numbers)

    def _constant(self, o: Operation, known: bool | int) -> Replacement:
        b = ScheduleBuilder(o.span)
        with b.region() as made:
            value = b.constant(known, BOOL) if isinstance(known, bool) else b.index(known)
            if isinstance(o.result.type, TileType):
                value = b.full(value, o.result.type.shape)
            b.yield_()
        self.known[value] = known
        return Replacement(made.region.operations[:-1], (value,))
