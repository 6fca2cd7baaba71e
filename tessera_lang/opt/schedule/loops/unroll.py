"""``schedule.unroll(n)``: n iterations of the innermost loops in one, and a loop for the rest.

Owns which loops are unrolled, and the remark where one is not. Iterations stay in order, so no
result changes. Must not know what the body does.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.rewrite import Replacement, clone_operations, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of, names_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    overruled,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import FOR, LOOPS, kernel_of
from tessera_lang.opt.schedule.query.staging_rings import holds_staged
from tessera_lang.record import replace
from tessera_lang.target.tuned_constants import UNROLLED_OPERATIONS
from tessera_lang.types.dtype import INDEX

_WEIGHTS = {
    PREFIX + name: weight
    for weight, names in ((100, ("dot",)), (30, ("reduce", "scan", "sort", "gather")),
                          (15, ("load", "store", "prefetch")))
    for name in names
}  # fmt: skip
_STAGED = "the loop moves tiles through shared memory, and the steps of each are unrolled already"


@rewrites
def unroll(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    said = kernel.attributes.get("unroll")
    if not isinstance(said, int) or said < 2:
        return program
    innermost = [o for o in kernel.walk() if _is_innermost(o)]
    loops = [o for o in innermost if not holds_staged(o)]
    if not loops:
        reason = _STAGED if innermost else "no loop of the kernel runs in order"
        return with_kernel(program, overruled(kernel, "unroll", 1, context, reason))
    if len(loops) < len(innermost):
        loop = next(o for o in innermost if holds_staged(o))
        context.note("T0742", f"`schedule.unroll({said})` is not honoured here: {_STAGED}",
                     loop.span)  # fmt: skip
    times = min(said, *(max(1, UNROLLED_OPERATIONS // _weight(o.regions[0])) for o in loops))
    if times < said:
        reason = f"so many bodies are more than {UNROLLED_OPERATIONS} operations; {times} are not"
        kernel = overruled(kernel, "unroll", times, context, reason)

    def step(operation: Operation) -> Replacement | None:
        if times < 2 or not _is_innermost(operation) or holds_staged(operation):
            return None
        made = _unrolled(operation, times)
        return Replacement(made, made[-1].results)

    return with_kernel(program, rewrite_operation(kernel, step))


def _weight(body: Region) -> int:
    return sum(_WEIGHTS.get(o.name, 1) for o in body.walk())


def _is_innermost(operation: Operation) -> bool:
    """Whether iterations run in order in one group, and hold no loop."""
    if operation.name != FOR:
        return False
    mapping = operation.strings("mapping")
    return mapping[-1] != "grid" and not any(
        o.holds(LOOPS) for o in operation.regions[0].operations
    )


def _unrolled(loop: Operation, times: int) -> tuple[Operation, ...]:
    """The operations in place of a loop; the last one has its results."""
    axes = len(names_of(loop))
    if axes > 1:
        return (_with_inner_unrolled(loop, times),)
    b = ScheduleBuilder(loop.span)
    with b.region() as made:
        ((lower,), (upper,), (step,)) = bounds_of(loop)
        wide = b.binary("mul", step, b.index(times))
        gap = b.binary("max", b.binary("sub", upper, lower), b.index(0))
        # Of the iterations that exist: how many are whole bodies of ``times``.
        count = b.binary("floordiv", b.binary("add", gap, b.binary("sub", step, b.index(1))), step)
        whole = b.binary("floordiv", count, b.index(times))
        middle = b.binary("add", lower, b.binary("mul", whole, wide))
        main = b.append(_main(loop, (lower, middle, wide), step, times))
        rest = replace(loop, operands=(middle, upper, step, *(main.results or loop.operands[3:])))
        b.append(rest)
        b.yield_()
    return made.region.operations[:-1]


def _main(
    loop: Operation, bounds: tuple[Value, Value, Value], step: Value, times: int
) -> Operation:
    """The loop over ``times`` iterations at once."""
    (variable, *carried) = (Value(v.type, v.name) for v in loop.regions[0].arguments)
    b = ScheduleBuilder(loop.span)
    with b.region() as made:
        now: Sequence[Value] = carried
        for i in range(times):
            at = variable
            if i:
                at = b.binary("add", variable, b.binary("mul", step, b.index(i)))
            to = dict(zip(loop.regions[0].arguments, (at, *now), strict=True))
            *body, end = clone_operations(loop.regions[0].operations, to)
            for operation in body:
                b.append(operation)
            now = end.operands
        b.yield_(*now)
    body = Region((variable, *carried), made.region.operations)
    results = tuple(Value(v.type, v.name) for v in loop.results)
    return replace(
        loop, operands=(*bounds, *loop.operands[3:]), results=results, regions=(body,)
    )  # fmt: skip


def _with_inner_unrolled(loop: Operation, times: int) -> Operation:
    """The loop over all axes but the last around the unrolled one over the last."""
    axes = names_of(loop)
    region, last = loop.regions[0], len(axes) - 1
    bounds = bounds_of(loop)
    inner_carried = tuple(Value(v.type, v.name) for v in region.arguments[len(axes) :])
    outer_carried = tuple(Value(v.type, v.name) for v in inner_carried)
    mapping = loop.strings("mapping")
    to = dict(zip(region.arguments[len(axes) :], inner_carried, strict=True))
    variable = Value(INDEX, region.arguments[last].name)
    body = clone_operations(region.operations, {**to, region.arguments[last]: variable})
    inner = Operation(
        FOR, (*(part[last] for part in bounds), *outer_carried),
        tuple(Value(v.type, v.name) for v in loop.results),
        {**loop.attributes, "axes": axes[last:], "mapping": mapping[last:]},
        (Region((variable, *inner_carried), body),), loop.span,
    )  # fmt: skip
    made = _unrolled(inner, times)
    end = Operation("tile.yield", made[-1].results, span=loop.span)
    operands = tuple(v for part in bounds for v in part[:last])
    return replace(
        loop, operands=(*operands, *loop.operands[3 * len(axes) :]),
        attributes={**loop.attributes, "axes": axes[:last], "mapping": mapping[:last]},
        regions=(Region((*region.arguments[:last], *outer_carried), (*made, end)),),
    )  # fmt: skip
