"""Arguments of calls of the language's own functions: by place or name, as numbers."""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_tile.context import Lowering, Unsupported
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType


def scalar(lowering: Lowering, node: ast.Expr) -> Value:
    """The number that an expression gives."""
    value = lowering.expression(lowering, node)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(node.span, "this value here")
    return value


def argument(node: ast.Call, position: int, name: str) -> ast.Expr | None:
    """The argument at a position, or given by name."""
    if position < len(node.arguments):
        return node.arguments[position]
    return next((k.value for k in node.keywords if k.name == name), None)


def needed(node: ast.Call, position: int, name: str) -> ast.Expr:
    """The same, where sema has seen to it that it is there."""
    found = argument(node, position, name)
    if found is None:
        raise Unsupported(node.span, f"this call without `{name}`")
    return found
