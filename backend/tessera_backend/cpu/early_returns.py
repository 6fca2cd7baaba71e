"""Early returns of single lanes become an ``else``: ``if c: return`` and the rest.

What follows a return under a varying condition is put under the opposite condition, so that
one test a group finds whether all its lanes go on. Must not know LLVM.
"""

from __future__ import annotations

from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity, uniformity
from tessera_lang.ir.core import Operation, Program, Region
from tessera_lang.ir.pass_type import Pass
from tessera_lang.record import replace


def nest_returns(program: Program) -> Program:
    """The program with the same meaning; itself where nothing returns early."""
    (kernel,) = program.operations
    region = kernel.regions[0]
    nested = _nest(region.operations, uniformity(kernel))
    if nested is region.operations:
        return program
    made = replace(kernel, regions=(Region(region.arguments, nested),))
    return replace(program, operations=(made,))


NEST_RETURNS = Pass(
    "nest_returns", "tile", "tile", nest_returns,
    does="makes code after an early `return` the `else` of its condition",
)  # fmt: skip


def _nest(operations: tuple[Operation, ...], uniform: Uniformity) -> tuple[Operation, ...]:
    for number, op in enumerate(operations[:-1]):
        side = _returning_side(op)
        if side is None or uniform.is_uniform(op.operands[0]):
            continue
        rest = _nest(operations[number + 1 :], uniform)
        if len(rest) == 1:
            return operations
        end = Operation("tile.yield")
        staying = op.regions[1 - side]
        sides = [Region((), (*op.regions[side].operations[:-1], end))]
        sides.insert(1 - side, Region((), (*staying.operations[:-1], *rest[:-1], end)))
        return (*operations[:number], replace(op, regions=tuple(sides)), rest[-1])
    return operations


def _returning_side(op: Operation) -> int | None:
    """The side of an ``if`` that ends in a return, where the other falls through."""
    if op.name != "tile.if" or op.results:
        return None
    ends = [region.terminator.name for region in op.regions]
    if sorted(ends) != ["tile.return", "tile.yield"]:
        return None
    return ends.index("tile.return")
