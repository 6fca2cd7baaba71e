"""Factors that lie across the vectors of lanes are loaded with their axes turned round.

Lanes that multiply and add read vectors along the contraction of a first factor and along the
columns of a second one. In ``x @ w.T`` the second lies the other way. Where such products fill a
multiprocessor, so that a role brings their tiles, the transpose becomes part of the load, which
``staging`` then lets read from a copy whose lines run along the vectors. Owns the rewriting.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.fma_operands import fills, lanes_line, may_be_plain
from tessera_lang.opt.schedule.query.kernel_facts import (
    TRANSPOSE,
    Facts,
    Load,
    Operand,
    facts_of,
    kernel_of,
    swaps_last,
)
from tessera_lang.opt.schedule.query.repack_profitability import turned_copy
from tessera_lang.record import replace


@rewrites
def turn_loads(program: Program, context: Context) -> Program:
    """The program with transposes in its loads; itself where a role would not bring all tiles."""
    kernel = kernel_of(program)
    if not context.machine.has_roles or "roles" in context.refusals:
        return program
    facts = facts_of(kernel)
    one_flow = kernel.attributes.get("warp_specialize") is False
    if not facts.dots or facts.grid is None or one_flow:
        return program
    if not all(may_be_plain(d) and fills(d) for d in facts.dots):
        return program
    turned = [x for d in facts.dots for x in (d.a, d.b) if lanes_line(x, facts) >= 0]
    if not turned or not all(_can_be_turned(x, facts) for x in turned):
        return program
    loads = {x.load.operation for x in turned if x.load is not None}
    return with_kernel(program, rewrite_operation(kernel, lambda o: _step(o, loads, facts)))


def _can_be_turned(operand: Operand, facts: Facts) -> bool:
    """Whether a tile has no other use than its transpose, and a copy of its array pays."""
    load = operand.load
    return load is not None and operand.swapped and _is_turned_only(load, facts) and (
        turned_copy(load, facts) is not None
    )  # fmt: skip


def _is_turned_only(load: Load, facts: Facts) -> bool:
    users = facts.users.get(load.operation.result, [])
    return len(load.tile.shape) == 2 and all(u.name == TRANSPOSE and swaps_last(u) for u in users)


def _step(o: Operation, loads: set[Operation], facts: Facts) -> Replacement | None:
    if o in loads:
        (before,) = o.results
        t = before.tile_type
        made = Value(replace(t, shape=t.shape[::-1]), before.name)
        *head, first, second = o.operands
        attributes = dict(o.attributes)
        for name in ("dims", "steps"):
            attributes[name] = o.integers(name)[::-1]
        load = replace(o, operands=(*head, second, first), results=(made,), attributes=attributes)
        return Replacement((load,), (made,))
    if o.name == TRANSPOSE and facts.definitions.get(_before(o, facts)) in loads:
        return Replacement((), (o.operands[0],))
    return None


def _before(o: Operation, facts: Facts) -> Value:
    """What a transpose turns, as it was before the loads changed."""
    return facts.definitions[o.result].operands[0]
