"""Loop coalescing: a nest of loops that only adds to a product becomes one loop.

``for r: for s: for c: acc += f[.., c, r, s] @ x[c, p + r, q + s]`` with few channels runs its
innermost loop once or twice, and each run begins and ends on its own: tiles of the next one are not
on their way, and the sums of the last are waited for. One loop over all iterations, in the same
order, has neither. Its number is divided into those of the loops, so conditions that hold anyway go
first. Owns which nests those are and the one loop. Must not know how products are made.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Program, Region, Value
from tessera_lang.ir.definitions import LEAVES, is_number
from tessera_lang.ir.rewrite import Replacement, clone_operations, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of, names_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.def_use import values_inside
from tessera_lang.opt.schedule.query.implied_bounds import asserted_truths
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    FOR,
    Estimate,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.record import dataclass, replace
from tessera_lang.target.tuned_constants import COALESCED_TRIPS
from tessera_lang.types.dtype import INDEX


@dataclass(frozen=True, slots=True, eq=False)
class Nest:
    """Loops, outermost first, and the numbers that stand in front of each further one."""

    loops: tuple[Operation, ...]
    between: tuple[Operation, ...]


@rewrites
def coalesce_loops(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu" or not kernel.holds(DOT):
        return program
    nests = nests_of(kernel)
    if not nests:
        return program
    truths = asserted_truths(kernel)
    if truths:
        kernel = rewrite_operation(kernel, lambda o: _where_true(o, truths))
        nests = nests_of(kernel)
    for nest in nests:
        names = ", ".join(f"`{n}`" for loop in nest.loops for n in names_of(loop))
        context.note("T0748", f"the loops over {names} run as one: the innermost has few"
                     " iterations, and tiles of the next ones are brought meanwhile",
                     nest.loops[0].span)  # fmt: skip
    by_loop = {id(nest.loops[0]): nest for nest in nests}

    def step(operation: Operation) -> Replacement | None:
        nest = by_loop.get(id(operation))
        if nest is None:
            return None
        made = _one_loop(nest)
        return Replacement(made, made[-1].results)

    return with_kernel(program, rewrite_operation(kernel, step))


def _where_true(o: Operation, truths: set[Value]) -> Replacement | None:
    """Without an assertion that holds, and what is chosen then."""
    if not o.operands or o.operands[0] not in truths:
        return None
    if o.name == "tile.assert":
        return Replacement()
    return Replacement((), (o.operands[1],)) if o.name == "tile.select" else None


# --- which ---------------------------------------------------------------------------------------


def nests_of(kernel: Operation) -> list[Nest]:
    """The nests that are worth it, none in another."""
    facts = facts_of(kernel)
    found = [nest for loop, _ in facts.loops if (nest := _nest(loop, facts)) is not None]
    inner = {id(loop) for nest in found for loop in nest.loops[1:]}
    return [nest for nest in found if id(nest.loops[0]) not in inner]


def _nest(outer: Operation, facts: Facts) -> Nest | None:
    """The nest that a loop is the outermost of; None where it is none that is worth it."""
    loops, between = [outer], list[Operation]()
    if not _is_plain(outer):
        return None
    while (found := _only_loop(loops[-1])) is not None:
        inner, numbers = found
        loops.append(inner)
        between += numbers
    own = values_inside(outer)
    bounds = [v for loop in loops[1:] for part in bounds_of(loop) for v in part]
    if len(loops) < 2 or not _multiplies(loops[-1]) or any(v in own for v in bounds):
        return None
    trips = Estimate(facts, {}).trips(loops[-1])
    if trips is None or trips >= COALESCED_TRIPS:
        return None
    return Nest(tuple(loops), tuple(between))


def _is_plain(loop: Operation) -> bool:
    """Whether a loop runs in order in one group, as nobody has said anything of."""
    said = ("pipeline_stages", "unroll", "independent")
    return (
        loop.name == FOR and not is_grid(loop) and len(names_of(loop)) == 1
        and "grid" not in loop.strings("mapping") and not any(n in loop.attributes for n in said)
        and bool(loop.results)
    )  # fmt: skip


def _only_loop(outer: Operation) -> tuple[Operation, list[Operation]] | None:
    """The loop in a loop that hands on what is carried as it is, and the numbers beside it."""
    *operations, end = outer.regions[0].operations
    loops = [o for o in operations if o.name == FOR]
    numbers = [o for o in operations if o.name != FOR]
    if len(loops) != 1 or not all(is_number(o) for o in numbers) or not _is_plain(loops[0]):
        return None
    (inner,) = loops
    same = inner.operands[3:] == outer.regions[0].arguments[1:]
    return (inner, numbers) if same and end.operands == inner.results else None


def _multiplies(loop: Operation) -> bool:
    """Whether an innermost loop multiplies in each iteration, and has no other end than its own."""
    operations = loop.regions[0].operations
    return any(o.name == DOT for o in operations) and not any(
        o.name == FOR or loop.holds(LEAVES) for o in operations
    )


# --- the one loop --------------------------------------------------------------------------------


def _one_loop(nest: Nest) -> tuple[Operation, ...]:
    """The operations in place of a nest; the last one is the loop."""
    b = ScheduleBuilder(nest.loops[0].span)
    with b.region() as made:
        counts = [_count(b, loop) for loop in nest.loops]
        total = counts[0]
        for count in counts[1:]:
            total = b.binary("mul", total, count)
        b.append(_loop(nest, (b.index(0), total, b.index(1)), counts))
        b.yield_()
    return made.region.operations[:-1]


def _count(b: ScheduleBuilder, loop: Operation) -> Value:
    """How often a loop runs."""
    ((lower,), (upper,), (step,)) = bounds_of(loop)
    gap = b.binary("max", b.binary("sub", upper, lower), b.index(0))
    return b.binary("floordiv", b.binary("add", gap, b.binary("sub", step, b.index(1))), step)


def _loop(
    nest: Nest, bounds: tuple[Value, Value, Value], counts: Sequence[Value]
) -> Operation:  # fmt: skip
    outer, last = nest.loops[0], nest.loops[-1]
    name = "_".join(n for loop in nest.loops for n in names_of(loop))
    arguments = last.regions[0].arguments[1:]
    at, carried = Value(INDEX, name), tuple(Value(v.type, v.name) for v in arguments)
    to: dict[Value, Value] = dict(zip(arguments, carried, strict=True))
    b = ScheduleBuilder(outer.span)
    with b.region() as made:
        rest = at
        for loop, count in reversed(list(zip(nest.loops, counts, strict=True))):
            number = rest
            if loop is not outer:
                rest = b.binary("floordiv", number, count)
                number = b.binary("sub", number, b.binary("mul", rest, count))
            ((lower,), _, (step,)) = bounds_of(loop)
            variable = loop.regions[0].arguments[0]
            to[variable] = b.binary("add", lower, b.binary("mul", number, step))
        for operation in clone_operations((*nest.between, *last.regions[0].operations), to):
            b.append(operation)
    attributes: dict[str, Attribute] = {**last.attributes, "axes": (name,), "mapping": ("loop",)}
    attributes.pop("plain", None)
    results = tuple(Value(v.type, v.name) for v in outer.results)
    body = Region((at, *carried), made.region.operations)
    return replace(
        outer, operands=(*bounds, *outer.operands[3:]), results=results, attributes=attributes,
        regions=(body,),
    )  # fmt: skip
