"""Strength reduction: quotients and remainders of a loop's variable become counters.

``for t in range(n): r = t // k; s = t - r * k`` divides in each iteration, in the way of the role
that says where tiles lie. Counters that are carried do the same by an addition and a comparison.
Where warps bring tiles themselves, ahead of the loop, quotients stay: they say where a tile of a
later iteration lies. Must not know where the loops come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import LEAVES
from tessera_lang.ir.rewrite import Replacement, replace_values, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of, names_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.def_use import definitions_of, users_of, values_inside
from tessera_lang.opt.schedule.query.kernel_facts import FOR, is_grid, kernel_of
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import INDEX


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """``quotient = number // divisor``: the ``number`` of the first level is the loop's variable,
    that of each further one the quotient before. ``rests``: what is left of the number. ``gone``:
    the operations that compute these. ``is_used``: whether anything but the next level reads the
    quotient."""

    quotient: Value
    divisor: Value
    rests: tuple[Value, ...]
    gone: tuple[Operation, ...]
    is_used: bool


@rewrites
def count(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    taken_apart = kernel.attributes.get("split") or kernel.attributes.get("stream")
    if kernel.attributes.get("roles") is None or taken_apart:
        return program
    known = definitions_of(kernel)

    def step(operation: Operation) -> Replacement | None:
        levels = _levels(operation, known)
        if not levels:
            return None
        made = _counting(operation, levels)
        return Replacement(made, made[-1].results[: len(operation.results)])

    return with_kernel(program, rewrite_operation(kernel, step))


def _levels(loop: Operation, known: Mapping[Value, Operation]) -> list[_Level]:
    """The divisions of a loop's variable, one after the other."""
    if loop.name != FOR or is_grid(loop) or len(names_of(loop)) != 1 or loop.holds(LEAVES):
        return []
    _, _, (by,) = bounds_of(loop)
    made = known.get(by)
    if made is None or made.name != "tile.constant" or made.attributes["value"] != 1:
        return []
    users, own, here = users_of(loop), values_inside(loop), set(loop.regions[0].operations)
    number, found = loop.regions[0].arguments[0], list[_Level]()
    while True:
        divisions = [o for o in users.get(number, ())
                     if o.name == "tile.floordiv" and o.operands[0] is number]  # fmt: skip
        if len(divisions) != 1 or divisions[0] not in here or divisions[0].operands[1] in own:
            return _with_uses(found, users)
        (division,) = divisions
        rests = {o for o in users[number] if o in here and _is_rest(o, division, known)}
        products = {known[o.operands[1]] for o in rests}
        products = {o for o in products if all(u in rests for u in users[o.result])}
        gone = {division, *rests, *products}
        number = division.result
        found.append(_Level(number, division.operands[1], tuple(o.result for o in rests),
                            tuple(gone), False))  # fmt: skip


def _is_rest(o: Operation, division: Operation, known: Mapping[Value, Operation]) -> bool:
    """Whether an operation is what a division leaves."""
    number, divisor = division.operands
    if o.name != "tile.sub" or o.operands[0] is not number:
        return False
    back = known.get(o.operands[1])
    return (
        back is not None
        and back.name == "tile.mul"
        and (set(back.operands) == {division.result, divisor})
    )


def _with_uses(
    levels: Sequence[_Level], users: Mapping[Value, Sequence[Operation]]
) -> list[_Level]:  # fmt: skip
    gone = {id(o) for level in levels for o in level.gone}
    return [
        replace(x, is_used=any(id(o) not in gone for o in users.get(x.quotient, ())))
        for x in levels
    ]


def _counting(loop: Operation, levels: Sequence[_Level]) -> tuple[Operation, ...]:
    """The operations in place of a loop; the last one is the loop with counters."""
    region, b = loop.regions[0], ScheduleBuilder(loop.span)
    variable = region.arguments[0]
    ((number,), _, _) = bounds_of(loop)
    first, counters = list[Value](), list[Value]()
    with b.region() as front:
        for level in levels:
            quotient = b.binary("floordiv", number, level.divisor)
            first.append(b.binary("sub", number, b.binary("mul", quotient, level.divisor)))
            first += [quotient] if level.is_used else []
            number = quotient
        b.yield_()
    to: dict[Value, Value] = {}
    with b.region() as body:
        end = region.terminator
        zero, one = b.index(0), b.index(1)
        more, nexts = one, list[Value]()
        for level in levels:
            rest = Value(INDEX, "rest")
            counters.append(rest)
            to.update(dict.fromkeys(level.rests, rest))
            grown = b.binary("add", rest, more)
            wraps = b.cmp("ge", grown, level.divisor)
            nexts.append(b.select(wraps, zero, grown))
            more = b.select(wraps, one, zero)
            if level.is_used:
                counters.append(Value(INDEX, "count"))
                to[level.quotient] = counters[-1]
                nexts.append(b.binary("add", counters[-1], more))
        b.yield_(*(to.get(v, v) for v in end.operands), *nexts)
    gone = {id(o) for level in levels for o in level.gone}
    kept = tuple(o for o in region.operations[:-1] if id(o) not in gone)
    inner = (*replace_values(kept, to), *body.region.operations)
    arguments = (variable, *region.arguments[1:], *counters)
    results = tuple(Value(v.type, v.name) for v in (*loop.results, *counters))
    made = replace(
        loop, operands=(*loop.operands, *first), results=results,
        regions=(Region(arguments, inner),),
    )  # fmt: skip
    return (*front.region.operations[:-1], made)
