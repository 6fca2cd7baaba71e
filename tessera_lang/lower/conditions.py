"""``where`` clauses -> conditions that the launch checks once.

Owns which expressions are sizes. Must not know how a launch checks them.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.lower.context import Lowering, Unsupported
from tessera_lang.sema.typed import Builtin, Constant, Local
from tessera_lang.syntax import ast
from tessera_lang.target.plan import Condition
from tessera_lang.types.shape import Dim, DimOperator, Sym, dim_op

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def conditions(lowering: Lowering, clauses: tuple[ast.Expr, ...]) -> tuple[Condition, ...]:
    """One condition per comparison; what is no comparison of sizes is an error."""
    return tuple(c for clause in clauses for c in _clause(lowering, clause))


def _clause(lowering: Lowering, node: ast.Expr) -> list[Condition]:
    if isinstance(node, ast.BoolOp) and node.operator == "and":
        return [c for value in node.values for c in _clause(lowering, value)]
    if isinstance(node, ast.Compare):
        made: list[Condition] = []
        left = size_of(lowering, node.first)
        for operator, item in zip(node.operators, node.rest, strict=True):
            right = size_of(lowering, item)
            if operator not in _COMPARISONS or left is None or right is None:
                return _refuse(lowering, node)
            text, place = lowering.text(node.span), lowering.position(node.span)
            made.append(Condition(left, operator, right, text, place))
            left = right
        return made
    return _refuse(lowering, node)


def _refuse(lowering: Lowering, node: ast.Expr) -> list[Condition]:
    """Sema lets comparisons of sizes through, and no others."""
    help_text = "size names, integers, + - * // % min max ceil_div may stand here"
    lowering.report(Unsupported(node.span, "this kind of `where` condition", help_text))
    return []


def size_of(lowering: Lowering, node: ast.Expr) -> Dim | None:
    """The size that an expression is, or None."""
    typed = lowering.frame.typed
    known = typed.constants.get(node)
    if isinstance(known, int):
        return int(known)
    match node:
        case ast.IntLit():
            return node.value
        case ast.Name():
            symbol = typed.symbols.get(node)
            if isinstance(symbol, Constant) and isinstance(symbol.value, int):
                return symbol.value
            is_size = isinstance(symbol, Local) and symbol.kind == "size"
            return Sym(node.id) if is_size else None
        case ast.Binary(operator="+" | "-" | "*" | "//" | "%" as operator):
            return _apply(lowering, operator, (node.left, node.right))
        case ast.Unary(operator="-"):
            inner = size_of(lowering, node.operand)
            return None if inner is None else dim_op("-", 0, inner)
        case ast.Call():
            function = typed.symbols.get(node.function)
            if isinstance(function, Builtin) and function.name in ("min", "max", "ceil_div"):
                if not node.keywords and len(node.arguments) >= 2:
                    return _apply(lowering, cast("DimOperator", function.name), node.arguments)
            return None
        case _:
            return None


def _apply(lowering: Lowering, operator: DimOperator, items: tuple[ast.Expr, ...]) -> Dim | None:
    result: Dim | None = None
    for item in items:
        size = size_of(lowering, item)
        if size is None:
            return None
        result = size if result is None else dim_op(operator, result, size)
    return result
