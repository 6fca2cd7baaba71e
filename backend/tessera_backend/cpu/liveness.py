"""Which varying values live across pieces. Must not know LLVM."""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.cpu.group_plan import Control, GroupPlan, Meet, Node, Piece
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.types.dtype import DType


def piece_inputs(piece: Piece) -> tuple[Value, ...]:
    """Scalars-of-a-lane that a piece uses and does not define, in order of use.

    Arrays (views, buffers) are left out: they are the same for every lane.
    """
    found: dict[Value, None] = {}
    inside: set[Value] = set()

    def operation(op: Operation) -> None:
        for value in op.operands:
            if value not in inside:
                found.setdefault(value)
        for region in op.regions:
            nested(region)
        inside.update(op.results)

    def nested(region: Region) -> None:
        inside.update(region.arguments)
        for op in region.operations:
            operation(op)

    for op in piece.operations:
        operation(op)
    for value, _ in piece.stores:
        if value not in inside:
            found.setdefault(value)
    return tuple(v for v in found if _is_number(v))


def _is_number(value: Value) -> bool:
    return isinstance(value.type, DType)


def find_spilled(plan: GroupPlan) -> dict[Value, None]:
    """Values to keep in arrays, in order of first need."""
    spilled: dict[Value, None] = {}
    owned: set[Value] = set()
    scalars = plan.scalars

    def need(value: Value) -> None:
        if scalars.is_scalar(value) or value in owned or not _is_number(value):
            return
        loop = scalars.loop_of(value)
        if loop is not None:
            need(loop.operands[0])
            return
        again = scalars.again(value)
        if again is None:
            spilled.setdefault(value)
            return
        for operand in again.operands:
            need(operand)

    def nodes(items: Sequence[Node]) -> None:
        for node in items:
            if isinstance(node, Piece):
                for value in piece_inputs(node):
                    need(value)
            elif isinstance(node, Meet):
                for value in node.operation.operands:
                    need(value)
            elif isinstance(node, Control):
                control(node)

    def control(node: Control) -> None:
        op = node.operation
        for region in op.regions:
            owned.update(region.arguments[1:] if op.name == "tile.for" else region.arguments)
        owned.update(op.results)
        for value in op.operands:
            need(value)
        for items in node.regions:
            nodes(items)

    nodes(plan.root.regions[0])
    return spilled
