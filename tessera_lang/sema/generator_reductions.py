"""Reductions over the items of a comprehension in a kernel, as loops in front of their statement.

Owns ``sum``, ``max``, ``min``, ``any`` and ``all`` of ``(e for x in y)``, which a kernel adds up in
a variable. Must not know types, or how loops are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tessera_lang.record import field_names, replace
from tessera_lang.sema.bound_names import expressions, targets
from tessera_lang.sema.tree_transforms import free_name, is_call, unwritten, with_values
from tessera_lang.source import Span
from tessera_lang.syntax import ast

_REDUCTIONS = ("sum", "max", "min", "any", "all")
_HEADS: dict[type[Any], tuple[str, ...]] = {
    ast.If: ("test",), ast.For: ("iterable",), ast.Return: ("value",), ast.Assign: ("value",),
    ast.AnnotatedAssign: ("value",), ast.AugmentedAssign: ("value",), ast.ExprStmt: ("value",),
}  # fmt: skip
"""What of a statement is computed once, when it is reached."""


_MOST_TERMS = 64


Written = Callable[[ast.Comprehension], ast.Expr]


def _added_up(items: ast.Expr, written: Written) -> ast.Expr | None:
    """``sum(k * p for k in range(3))`` as the sum of its terms, which may be arrays; None where
    what it goes over is not written out."""
    found = written(items) if isinstance(items, ast.Comprehension) else items
    if not isinstance(found, ast.ListExpr) or not 0 < len(found.items) <= _MOST_TERMS:
        return None
    total: ast.Expr = ast.IntLit(items.span, 0)
    for item in found.items:
        total = ast.Binary(items.span, "+", items.span, total, item)
    return total


def before_statement(s: ast.Stmt, names: set[str], written: Written) -> tuple[ast.Stmt, ...]:
    """The loops of a statement's reductions, and the statement with what they give; empty where it
    has none. ``names``: those of the function, to which the new ones are added; ``written`` gives
    the items of a comprehension as a list, where they are known."""
    made: list[ast.Stmt] = []
    new: dict[str, Any] = {}
    for name in _HEADS.get(type(s), ()):
        old = getattr(s, name)
        if old is None or not any(map(_is_of_items, expressions(old))):
            continue
        found = _taken(old, names, made, written)
        if found is not old:
            new[name] = found
    return (*made, replace(s, **new)) if new else ()


def _is_of_items(e: ast.Expr) -> bool:
    return isinstance(e, ast.Comprehension) or (
        is_call(e, "sum") and len(e.arguments) == 1 and isinstance(e.arguments[0], ast.ListExpr)
    )


def _taken(node: Any, names: set[str], made: list[ast.Stmt], written: Written) -> Any:
    """The tree with a variable in the place of each reduction; ``made`` gets the loops."""
    if isinstance(node, tuple):
        parts = cast("tuple[Any, ...]", node)
        found = tuple(_taken(x, names, made, written) for x in parts)
        return parts if all(a is b for a, b in zip(found, parts, strict=True)) else found
    for name in _REDUCTIONS:
        if is_call(node, name) and name not in names and len(node.arguments) == 1:
            (items,) = node.arguments
            terms = _added_up(items, written) if name == "sum" else None
            if terms is not None:
                return _taken(terms, names, made, written)
            if isinstance(items, ast.Comprehension):
                return _looped(name, items, names, made)
    if isinstance(node, (Span, ast.Comprehension, ast.Lambda)) or not field_names(node):
        return node
    new: dict[str, Any] = {}
    for name in field_names(node):
        old = getattr(node, name)
        if isinstance(old, Span | str):
            continue
        found = _taken(old, names, made, written)
        if found is not old:
            new[name] = found
    return replace(node, **new) if new else node


def _looped(name: str, e: ast.Comprehension, names: set[str], made: list[ast.Stmt]) -> ast.Expr:
    span = e.span
    total = free_name({"sum": "total", "max": "greatest", "min": "least"}.get(name, "found"), names)
    made.append(ast.Assign(span, unwritten(span, total), _first(name, span)))
    made.append(_loop(name, e, unwritten(span, total), names))
    return unwritten(span, total)


def _first(name: str, span: Span) -> ast.Expr:
    """What a reduction of no items gives; of ``max`` and ``min`` what every number changes."""
    if name in ("any", "all"):
        return ast.BoolLit(span, name == "all")
    if name == "sum":
        return ast.IntLit(span, 0)
    inf = unwritten(span, "inf")
    return ast.Unary(span, "-", inf) if name == "max" else inf


def _loop(name: str, e: ast.Comprehension, total: ast.Name, names: set[str]) -> ast.Stmt:
    """The loop of a comprehension, whose names are its own."""
    bound = [t.id for t in targets(ast.Assign(e.span, e.target, e.element))
             if isinstance(t, ast.Name)]  # fmt: skip
    own: dict[str, ast.Expr] = {n: unwritten(e.span, free_name(n, names)) for n in bound}
    target, element, conditions = (with_values(x, own) for x in (e.target, e.element, e.conditions))
    if e.joined:
        body: ast.Stmt = _loop(name, element, total, names)
    else:
        body = _step(name, element, total)
    for condition in reversed(conditions):
        body = ast.If(e.span, condition, (body,), ())
    return ast.For(e.span, target, e.iterable, (body,))


def _step(name: str, element: ast.Expr, total: ast.Name) -> ast.Stmt:
    span = element.span
    match name:
        case "sum":
            return ast.AugmentedAssign(span, replace(total), "+", span, element)
        case "max" | "min":
            call = ast.Call(span, unwritten(span, name), (replace(total), element))
            return ast.Assign(span, replace(total), call)
        case _:
            test = element if name == "any" else ast.Unary(span, "not", element)
            found = ast.BoolLit(span, name == "any")
            return ast.If(span, test, (ast.Assign(span, replace(total), found),), ())
