"""Extents of tiles of one element, in the loop that goes over these elements: each is 1.

Such a loop stops where the array does, so what is left of it is never less than one element. Owns
the rewriting. Must not know why tiles have one element.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Facts, facts_of, kernel_of
from tessera_lang.types.dtype import INDEX


@rewrites
def unit_extents(program: Program, context: Context) -> Program:
    """The program with 1 for ``max(0, min(1, n - i))`` where ``i`` goes to ``n`` by ones."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    ends: dict[Value, Value] = {}
    for loop, _ in facts.loops:
        if loop.name == FOR:
            axes = len(loop.strings("axes"))
            for axis in range(axes):
                if facts.constant(loop.operands[axis + 2 * axes]) == 1:
                    ends[loop.regions[0].arguments[axis]] = loop.operands[axis + axes]
    if not ends:
        return program

    def one(operation: Operation) -> Replacement | None:
        if operation.name != "tile.max" or not _is_one(operation, facts, ends):
            return None
        made = Operation("tile.constant", (), (Value(INDEX, operation.result.name),),
                         {"value": 1}, (), operation.span)  # fmt: skip
        return Replacement((made,), made.results)

    return with_kernel(program, rewrite_operation(kernel, one))


def _is_one(operation: Operation, facts: Facts, ends: dict[Value, Value]) -> bool:
    """``max(0, min(1, n - i))``, with the operands in any order."""
    for zero, rest in (operation.operands, operation.operands[::-1]):
        if facts.constant(zero) != 0 or (least := facts.definitions.get(rest)) is None:
            continue
        if least.name != "tile.min":
            continue
        for one, left in (least.operands, least.operands[::-1]):
            if facts.constant(one) == 1 and _is_left(left, facts, ends):
                return True
    return False


def _is_left(value: Value, facts: Facts, ends: dict[Value, Value]) -> bool:
    definition = facts.definitions.get(value)
    if definition is None or definition.name != "tile.sub":
        return False
    end, at = definition.operands
    return at in ends and facts.same(end, ends[at])
