"""Control flow on data in Graph IR: operations whose regions are functions of their operands.

``graph.if`` takes a condition, then what its two regions take; ``graph.while`` takes the values
that it carries, then what its regions take besides: the first region says whether it goes on, the
second gives the values anew. A region reads nothing but its arguments, so that it is a graph of its
own. Owns what these operations are. Must not know how a region is made or run.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Region, Value, VerifyError
from tessera_lang.ir.graph.builder import FUNCTION, RETURN
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.types.dtype import BOOL

IF, WHILE = "graph.if", "graph.while"

REGION_OPS: dict[str, OpDef] = {
    IF: OpDef(IF, ("condition", "operands..."), "graph_if", results=-1,
              terminators=((RETURN,), (RETURN,))),
    WHILE: OpDef(WHILE, ("operands...",), "graph_while", results=-1,
                 terminators=((RETURN,), (RETURN,)), attributes=(AttributeDef("carried", "int"),)),
}  # fmt: skip


def function_of(region: Region, name: str = "region") -> Operation:
    """A region as a function."""
    names = tuple(v.name or f"x{i}" for i, v in enumerate(region.arguments))
    return Operation(FUNCTION, attributes={"sym_name": name, "parameters": names},
                     regions=(region,))  # fmt: skip


def _types(values: Sequence[Value]) -> list[object]:
    return [v.type for v in values]


def _is_number(values: Sequence[Value]) -> bool:
    return (
        len(values) == 1 and values[0].tensor_type.dtype == BOOL and not values[0].tensor_type.rank
    )


def check_if(operation: Operation) -> None:
    """Raises VerifyError."""
    condition, *operands = operation.operands
    if not _is_number([condition]):
        raise VerifyError("takes a bool of no axes", operation)
    for region in operation.regions:
        if _types(region.arguments) != _types(operands):
            raise VerifyError("has regions that take its operands", operation)
        if _types(region.terminator.operands) != _types(operation.results):
            raise VerifyError("has regions that give its results", operation)
    _check_closed(operation)


def check_while(operation: Operation) -> None:
    """Raises VerifyError."""
    carried = operation.integer("carried")
    if _types(operation.operands[:carried]) != _types(operation.results):
        raise VerifyError("gives the values that it carries", operation)
    for region in operation.regions:
        if _types(region.arguments) != _types(operation.operands):
            raise VerifyError("has regions that take its operands", operation)
    goes_on, body = operation.regions
    if not _is_number(goes_on.terminator.operands):
        raise VerifyError("has a first region that gives a bool of no axes", operation)
    if _types(body.terminator.operands) != _types(operation.results):
        raise VerifyError("has a second region that gives the values that it carries", operation)
    _check_closed(operation)


def _check_closed(operation: Operation) -> None:
    for region in operation.regions:
        known = set(region.arguments)
        for o in region.operations:
            if not known.issuperset(o.operands):
                raise VerifyError("has regions that read their arguments only", operation)
            known.update(o.results)
