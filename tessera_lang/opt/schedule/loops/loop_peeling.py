"""Loop peeling: the last iteration apart, where tiles of all others are full and need no masks.

``for t in range(0, n, step)`` becomes a loop over the whole steps, in which what clips a tile to
``n`` is a number, and one over what is left. Only where reductions or masks read such a number:
loads and stores clip for nothing. Owns the decision and the rewriting. Must not know what the
loop computes.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.definitions import BOUNDED
from tessera_lang.ir.rewrite import Replacement, clone_operation, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.cost.split_k_cost import parts_of
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    FOR,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.opt.schedule.query.staging_rings import ring_marks
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import PEELED_REGISTERS


@rewrites
def peel(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if "roles" not in kernel.attributes or parts_of(kernel) > 1:
        return program  # groups that share a contraction take its loop apart themselves
    if 0 < kernel.integers("registers")[0] < PEELED_REGISTERS:
        return program  # the role that moves data has none left for another loop
    facts = facts_of(kernel)
    found: dict[int, tuple[Value, ...]] = {}
    for loop, _ in facts.loops:
        clips = _clips(loop, facts)
        if clips and _reads_one(loop, clips, facts) and not divides(loop, facts):
            found[id(loop.results)] = clips
            context.note("T0748", "the last iteration of this loop stands apart: in the others all "
                         "tiles are full, and nothing is masked", loop.span)  # fmt: skip
    if not found:
        return program
    marks = ring_marks(facts)

    def step(operation: Operation) -> Replacement | None:
        clips = found.get(id(operation.results)) if operation.name == FOR else None
        if clips is None:
            return None
        made = _apart(operation, clips, facts)
        return Replacement(made, made[-1].results)

    return with_kernel(program, rewrite_operation(with_attributes(kernel, marks), step))


def _clips(loop: Operation, facts: Facts) -> tuple[Value, ...]:
    """The numbers of a loop's body that are ``min(c, upper - variable)`` with ``c`` no more than
    its step: ``c``, but for the last iteration."""
    if loop.name != FOR or is_grid(loop) or len(loop.strings("axes")) != 1:
        return ()
    ((_,), (upper,), (step,)) = bounds_of(loop)
    size = facts.constant(step)
    variable = loop.regions[0].arguments[0]
    if size is None or not loop.results:
        return ()
    out: list[Value] = []
    for operation in loop.regions[0].operations:
        if operation.name != "tile.min":
            continue
        for a, b in (operation.operands, reversed(operation.operands)):
            most, rest = facts.constant(a), facts.definitions.get(b)
            if (
                most is not None and most <= size and rest is not None
                and rest.name == "tile.sub" and rest.operands[1] is variable
                and facts.same(rest.operands[0], upper)
            ):  # fmt: skip
                out.append(operation.result)
                break
    return tuple(out)


def _reads_one(loop: Operation, clips: tuple[Value, ...], facts: Facts) -> bool:
    """Whether a reduction or a mask goes no further than such a number."""
    known = set(clips)
    for operation in loop.regions[0].operations:
        read = [v for v in operation.operands if v in known]
        if read and operation.name in ("tile.max", "tile.min"):
            known.add(operation.result)
        elif read and operation.name in BOUNDED:
            return True
    return False


def divides(loop: Operation, facts: Facts) -> bool:
    """Whether the step surely divides the bound, so that every iteration is full."""
    ((lower,), (upper,), (step,)) = bounds_of(loop)
    size, arguments = facts.constant(step), list(facts.arguments)
    divisors = facts.kernel.integers("divisors")
    end = facts.constant(upper)
    if facts.constant(lower) != 0 or size is None:
        return False
    if end is not None:
        return end % size == 0
    if upper not in arguments:
        return False
    place = arguments.index(upper)
    return place < len(divisors) and divisors[place] % size == 0


def _apart(loop: Operation, clips: tuple[Value, ...], facts: Facts) -> tuple[Operation, ...]:
    """The operations in place of a loop; the last one has its results."""
    ((lower,), (upper,), (step,)) = bounds_of(loop)
    b = ScheduleBuilder(loop.span)
    with b.region() as made:
        gap = b.binary("max", b.binary("sub", upper, lower), b.index(0))
        whole = b.binary("mul", b.binary("floordiv", gap, step), step)
        middle = b.binary("add", lower, whole)
        piece = of_one_loop(loop, facts)
        full = clone_operation(_filled(piece, clips, facts), {})
        b.append(replace(full, operands=(lower, middle, *loop.operands[2:])))
        rest = {**piece.attributes, "general": True}
        b.append(replace(loop, operands=(middle, upper, step, *full.results), attributes=rest))
        b.yield_()
    return made.region.operations[:-1]


def of_one_loop(loop: Operation, facts: Facts) -> Operation:
    """The loop with the number that its pieces share: its own, where it is a piece already."""
    taken = max((o.integer("origin", -1) for o, _ in facts.loops), default=-1)
    place = next(i for i, (o, _) in enumerate(facts.loops) if o.results is loop.results)
    origin = loop.attributes.get("origin", taken + 1 + place)
    rest = {n: a for n, a in loop.attributes.items() if n != "general"}
    return replace(loop, attributes={**rest, "origin": origin})


def _filled(loop: Operation, clips: tuple[Value, ...], facts: Facts) -> Operation:
    """The loop in which clipped sizes are whole ones, and what is made of them alone is known."""
    known: dict[Value, int] = {}

    def number(value: Value) -> int | None:
        return known[value] if value in known else facts.constant(value)

    def step(operation: Operation) -> Replacement | None:
        if operation.name not in ("tile.max", "tile.min"):
            return None
        found = [n for n in map(number, operation.operands) if n is not None]
        if operation.result not in clips and len(found) < 2:
            return None
        size = found[0] if operation.result in clips else _FOLD[operation.name](found)
        b = ScheduleBuilder(operation.span)
        with b.region() as one:
            value = b.index(size, operation.result.name)
            b.yield_()
        known[value] = size
        return Replacement(one.region.operations[:-1], (value,))

    return rewrite_operation(loop, step)


_FOLD = {"tile.max": max, "tile.min": min}
