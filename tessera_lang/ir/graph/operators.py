"""The one table of operators of Graph IR, and the rows that printer, parser and verifier read.

Owns ``OPERATORS`` and ``GRAPH_OPS``. Must not know who builds, rewrites or lowers the operations.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, TensorType, VerifyError
from tessera_lang.ir.graph.axis_operators import MOVES, PRODUCTS, REDUCTIONS
from tessera_lang.ir.graph.axis_preserving_operators import ORDER, SOFTMAX
from tessera_lang.ir.graph.builder import FUNCTION, RETURN
from tessera_lang.ir.graph.calls import CALL, CALL_OP, check_call
from tessera_lang.ir.graph.convolutions import CONVOLUTIONS
from tessera_lang.ir.graph.custom import (
    WITH_GRADIENT,
    WITH_GRADIENT_OP,
    check_with_gradient,
)
from tessera_lang.ir.graph.elementwise import ARITHMETIC, CHOICE, FUNCTIONS
from tessera_lang.ir.graph.operator import PREFIX, OperandError, Operator, table
from tessera_lang.ir.graph.regions import REGION_OPS, check_for, check_if, check_while
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef

OPERATORS: dict[str, Operator] = table(
    FUNCTIONS, ARITHMETIC, CHOICE, PRODUCTS, CONVOLUTIONS, REDUCTIONS, SOFTMAX, ORDER, MOVES
)

GRAPH_OPS: dict[str, OpDef] = {
    FUNCTION: OpDef(
        FUNCTION, (), "graph_function", results=0, terminators=((RETURN,),), effect="nested",
        attributes=(AttributeDef("sym_name", "str"), AttributeDef("parameters", "strs")),
    ),
    CALL: CALL_OP,
    WITH_GRADIENT: WITH_GRADIENT_OP,
    **REGION_OPS,
    RETURN: OpDef(RETURN, ("values...",), "graph_return", results=0, effect="exit"),
    **{PREFIX + name: one.definition for name, one in OPERATORS.items()},
}  # fmt: skip


def is_operator(operation: Operation) -> bool:
    """Whether an operation is an operator of the table, and no call or control flow."""
    return operation.name.removeprefix(PREFIX) in OPERATORS


def operator_of(operation: Operation) -> Operator:
    """The row of an operation that is an operator."""
    return OPERATORS[operation.name.removeprefix(PREFIX)]


def _check_operator(operation: Operation) -> None:
    types: list[TensorType] = []
    for value in operation.operands:
        if not isinstance(value.type, TensorType):
            raise VerifyError("takes tensors", operation)
        types.append(value.type)
    try:
        wanted = operator_of(operation).type_of(tuple(types), operation.attributes)
    except OperandError as error:
        raise VerifyError(str(error), operation) from None
    if operation.result.type != wanted:
        raise VerifyError(f"gives {wanted}", operation)


def _check_function(operation: Operation) -> None:
    arguments = operation.regions[0].arguments
    if len(operation.strings("parameters")) != len(arguments):
        raise VerifyError("has a name for each argument", operation)
    if not all(isinstance(v.type, TensorType) for v in arguments):
        raise VerifyError("takes tensors", operation)


def _check_return(operation: Operation) -> None:
    if not all(isinstance(v.type, TensorType) for v in operation.operands):
        raise VerifyError("gives tensors", operation)


GRAPH_RULES = {
    "graph_operator": _check_operator,
    "graph_function": _check_function,
    "graph_return": _check_return,
    "graph_call": check_call,
    "graph_with_gradient": check_with_gradient,
    "graph_if": check_if,
    "graph_while": check_while,
    "graph_for": check_for,
}
"""Type rules, by the name that a row gives them."""
