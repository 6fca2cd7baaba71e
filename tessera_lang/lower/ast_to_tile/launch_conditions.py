"""``where`` clauses -> conditions that the launch checks once.

Owns which expressions are sizes. Must not know how a launch checks them.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.lower.ast_to_tile.context import Lowering, Unsupported
from tessera_lang.sema.side_tables import Builtin, Constant, Local, TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.target.launch_plan import Compared, Comparison, Condition
from tessera_lang.target.tuned_constants import LAUNCH_COMPARISONS
from tessera_lang.types.shape import Dim, DimOperator, Sym, dim_op
from tessera_lang.types.type import Tensor

_NEGATED: dict[str, Comparison] = {
    "==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<",
}  # fmt: skip

Clause = tuple[Compared, ...]


def require(lowering: Lowering, typed: TypedFunction) -> None:
    """What a called function requires, of sizes of this kernel: the launch sees to it, whether the
    call is reached or not. Its frame is the current one."""
    for node in typed.conditions:
        found = _conditions(lowering, node)
        if any(not c.symbols <= lowering.symbols.keys() for c in found):
            help_text = "write an `assert`, or state it with the kernel"
            raise Unsupported(
                node.span, "a `where` condition of a size that the run finds", help_text
            )
        lowering.conditions.extend(c for c in found if c not in lowering.conditions)


def conditions(lowering: Lowering, clauses: tuple[ast.Expr, ...]) -> tuple[Condition, ...]:
    """What the launch checks: all of them hold, each a comparison or one of several. What is no
    comparison of sizes is an error."""
    return tuple(c for clause in clauses for c in _conditions(lowering, clause))


def _conditions(lowering: Lowering, node: ast.Expr) -> list[Condition]:
    if isinstance(node, ast.BoolOp) and node.operator == "and":
        return [c for value in node.values for c in _conditions(lowering, value)]
    try:
        found = _clauses(lowering, node, True)
    except Unsupported as fault:
        lowering.report(fault)
        return []
    text, place = lowering.text(node.span), lowering.position(node.span)
    return [Condition(*clause[0], text, place, clause[1:]) for clause in found if clause]


def _clauses(lowering: Lowering, node: ast.Expr, wanted: bool) -> list[Clause]:
    """Clauses that all hold where ``node`` is ``wanted``. One without comparisons never holds: sema
    has reported it, where it is not one of several."""
    known = lowering.frame.typed.constants.get(node)
    if isinstance(known, bool):
        return [] if known is wanted else [()]
    match node:
        case ast.BoolOp():
            parts = [_clauses(lowering, value, wanted) for value in node.values]
            if (node.operator == "and") is wanted:
                return [clause for part in parts for clause in part]
            return _one_of(node, parts)
        case ast.Unary(operator="not"):
            return _clauses(lowering, node.operand, not wanted)
        case ast.Compare():
            steps = _steps(lowering, node)
            if wanted:
                return [(step,) for step in steps]
            return [tuple((a, _NEGATED[o], b) for a, o, b in steps)]
        case _:
            raise _refused(node)


def _one_of(node: ast.Expr, parts: list[list[Clause]]) -> list[Clause]:
    """One part holds: every choice of a clause from each."""
    found: list[Clause] = [()]
    for part in parts:
        found = [(*a, *b) for a in found for b in part]
        if sum(map(len, found)) > LAUNCH_COMPARISONS:
            help_text = "write several conditions, joined by `and`"
            raise Unsupported(node.span, "a `where` condition of so many alternatives", help_text)
    return found


def _steps(lowering: Lowering, node: ast.Compare) -> list[Compared]:
    made: list[Compared] = []
    left = size_of(lowering, node.first)
    for operator, item in zip(node.operators, node.rest, strict=True):
        right = size_of(lowering, item)
        if operator not in _NEGATED or left is None or right is None:
            raise _refused(node)
        made.append((left, cast("Comparison", operator), right))
        left = right
    return made


def _refused(node: ast.Expr) -> Unsupported:
    """Sema lets comparisons of sizes through, and no others."""
    help_text = "size names, integers, + - * // % min max ceil_div may stand here"
    return Unsupported(node.span, "this kind of `where` condition", help_text)


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
            if isinstance(symbol, Local) and symbol.kind == "size":
                return typed.sizes.get(symbol, Sym(node.id))
            return None
        case ast.Subscript(value=ast.Attribute(value=array, name="shape"), items=(axis,)):
            return _size_of_axis(typed, array, axis)
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


def _size_of_axis(typed: TypedFunction, array: ast.Expr, item: ast.Expr) -> Dim | None:
    """``x.shape[i]`` of a parameter."""
    types = dict(zip(typed.parameters, typed.parameter_types, strict=True))
    symbol, axis = typed.symbols.get(array), item.value if isinstance(item, ast.IntLit) else None
    if isinstance(item, ast.Unary) and isinstance(item.operand, ast.IntLit):
        axis = -item.operand.value
    t = types.get(symbol) if isinstance(symbol, Local) else None
    return t.shape[axis] if isinstance(t, Tensor) and axis is not None else None


def _apply(lowering: Lowering, operator: DimOperator, items: tuple[ast.Expr, ...]) -> Dim | None:
    result: Dim | None = None
    for item in items:
        size = size_of(lowering, item)
        if size is None:
            return None
        result = size if result is None else dim_op(operator, result, size)
    return result
