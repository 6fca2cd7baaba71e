"""Short expressions as they are written, for help texts.

Owns the text. Must not know types.
"""

from __future__ import annotations

from tessera_lang.sema.bound_names import children
from tessera_lang.syntax import ast


def source_of(e: ast.Expr) -> str:
    """A short expression as it is written, for help texts."""
    if not _is_short(e):
        return "..."
    match e:
        case ast.Name():
            return e.id
        case ast.IntLit() | ast.FloatLit() | ast.BoolLit():
            return str(e.value)
        case ast.Attribute():
            return f"{source_of(e.value)}.{e.name}"
        case ast.Subscript():
            items = ", ".join(item_source(i) for i in e.items) or "()"
            return f"{source_of(e.value)}[{items}]"
        case ast.Call():
            named = (f"{k.name}={source_of(k.value)}" for k in e.keywords)
            given = ", ".join((*map(source_of, e.arguments), *named))
            return f"{source_of(e.function)}({given})"
        case ast.TupleExpr() if len(e.items) > 1:
            return f"({', '.join(map(source_of, e.items))})"
        case ast.Binary() | ast.Unary() | ast.Compare() | ast.BoolOp() | ast.Conditional():
            return _operation(e, 0)
        case _:
            return "..."


_MOST_PARTS = 12
"""Longer expressions are not repeated in a help."""
_STRENGTH = {
    "or": 2, "and": 3, "not": 4, "|": 6, "^": 7, "&": 8, "<<": 9, ">>": 9, "+": 10, "-": 10,
    "*": 11, "/": 11, "//": 11, "%": 11, "@": 11, "**": 13,
}  # fmt: skip
_COMPARE, _CONDITIONAL, _SIGN = 5, 1, 12


def _is_short(e: ast.Expr) -> bool:
    todo, seen = [e], 0
    while todo and seen <= _MOST_PARTS:
        todo.extend(children(todo.pop()))
        seen += 1
    return seen <= _MOST_PARTS


def is_simple(e: ast.Expr) -> bool:
    """Whether an expression stands beside any operator without brackets."""
    return not isinstance(e, ast.Binary | ast.Unary | ast.Compare | ast.BoolOp | ast.Conditional)


def _operation(e: ast.Expr, around: int) -> str:
    """An operation with the brackets that it needs within one that binds as ``around`` says."""
    match e:
        case ast.Binary():
            own = _STRENGTH[e.operator]
            right = own if e.operator == "**" else own + 1
            left = own + 1 if e.operator == "**" else own
            text = f"{_operation(e.left, left)} {e.operator} {_operation(e.right, right)}"
        case ast.Unary():
            own = _STRENGTH["not"] if e.operator == "not" else _SIGN
            space = " " if e.operator == "not" else ""
            text = f"{e.operator}{space}{_operation(e.operand, own)}"
        case ast.Compare():
            own = _COMPARE
            parts = (
                f" {o} {_operation(x, own + 1)}" for o, x in zip(e.operators, e.rest, strict=True)
            )
            text = _operation(e.first, own + 1) + "".join(parts)
        case ast.BoolOp():
            own = _STRENGTH[e.operator]
            text = f" {e.operator} ".join(_operation(v, own + 1) for v in e.values)
        case ast.Conditional():
            own = _CONDITIONAL
            then, test = _operation(e.then, own + 1), _operation(e.test, own + 1)
            text = f"{then} if {test} else {_operation(e.orelse, own)}"
        case _:
            return source_of(e)
    return f"({text})" if own < around else text


def item_source(e: ast.Expr) -> str:
    """An index or slice as it is written."""
    match e:
        case ast.NoneLit():
            return "None"
        case ast.SliceExpr():
            lower, upper = (item_source(x) if x is not None else "" for x in (e.lower, e.upper))
            return f"{lower}:{upper}" + (f":{item_source(e.step)}" if e.step is not None else "")
        case ast.Binary(left=ast.Name() | ast.IntLit(), right=ast.Name() | ast.IntLit()):
            return f"{source_of(e.left)}{e.operator}{source_of(e.right)}"
        case ast.Unary(operator="-", operand=ast.Name() | ast.IntLit()):
            return f"-{source_of(e.operand)}"
        case _:
            return source_of(e)
