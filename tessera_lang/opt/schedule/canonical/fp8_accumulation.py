"""Sums of products that a matrix unit keeps less exactly than the language does.

The asynchronous unit adds products of 8-bit floats in about 14 bits. So what it adds is one
iteration of the contraction (128 products where nobody says another tile), and the sums of
iterations are added in f32 outside it: their errors do not grow with the contraction. Owns the
rewriting. Must not know how products are lowered.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    LOOPS,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.opt.schedule.query.unit_legality import is_imprecise


@rewrites
def promote(program: Program, context: Context) -> Program:
    """``acc + a @ b`` as ``acc + (0 + a @ b)`` where the unit would round in between."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    wanted = {
        id(d.operation.results) for d in facts.dots
        if d.operation.attributes.get("unit") == "wgmma" and is_imprecise(d)
        and _is_carried(d.inside)
    }  # fmt: skip
    if not wanted:
        return program

    def step(operation: Operation) -> Replacement | None:
        if operation.name != DOT or id(operation.results) not in wanted:
            return None
        return _promoted(operation)

    return with_kernel(program, rewrite_operation(kernel, step))


def _is_carried(inside: tuple[Operation, ...]) -> bool:
    """Whether a product is run more than once a tile."""
    return any(o.name in LOOPS and not is_grid(o) for o in inside)


def _promoted(dot: Operation) -> Replacement:
    a, b, accumulator = dot.operands
    t = accumulator.tile_type
    zero = Operation("tile.constant", (), (Value(t.dtype, "zero"),), {"value": 0.0}, (), dot.span)
    start = Operation(PREFIX + "full", (zero.result,), (Value(t, "start"),), {}, (), dot.span)
    part = Operation(DOT, (a, b, start.result), (Value(t, "part"),), dot.attributes, (), dot.span)
    total = Operation(
        "tile.add", (accumulator, part.result), (Value(t, dot.result.name),), {}, (), dot.span
    )
    return Replacement((zero, start, part, total), (total.result,))
