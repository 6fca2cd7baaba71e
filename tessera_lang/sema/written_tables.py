"""Tuples of numbers of a file where a function goes through them.

Owns which names of a file are such, and that a loop over one, or over the places of one, is a loop
over what is written out. Must not know how such a loop is spelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tessera_lang.record import field_names, replace
from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.source import Span
from tessera_lang.syntax import ast

Tables = Mapping[str, ast.TupleExpr]


def tables_of(body: tuple[ast.Stmt, ...]) -> Tables:
    """Tuples of numbers, or of such tuples, that a file gives a name once."""
    counts = Counter(t.id for s in statements(body) for t in targets(s) if isinstance(t, ast.Name))
    return {
        s.target.id: s.value
        for s in body
        if isinstance(s, ast.Assign) and isinstance(s.target, ast.Name)
        and counts[s.target.id] == 1 and isinstance(s.value, ast.TupleExpr) and _numbers(s.value)
    }  # fmt: skip


def _numbers(e: ast.Expr) -> bool:
    if isinstance(e, ast.TupleExpr):
        return bool(e.items) and all(map(_numbers, e.items))
    if isinstance(e, ast.Unary):
        return e.operator == "-" and _numbers(e.operand)
    return isinstance(e, (ast.IntLit, ast.FloatLit))


def written(node: Any, tables: Tables) -> Any:
    """A node of a function with the tables that it goes through; its parts are written already."""
    if isinstance(node, ast.For):
        over = _rows(node, tables)
        return node if over is None else replace(node, iterable=over)
    if isinstance(node, ast.Comprehension):
        over = _table(node.iterable, tables)
        return node if over is None else replace(node, iterable=over)
    if isinstance(node, ast.Call) and node.arguments and _is_array(node.function):
        table = _table(node.arguments[0], tables)
        if table is not None:
            return replace(node, arguments=(_as_list(table), *node.arguments[1:]))
    return node


def _is_array(e: ast.Expr) -> bool:
    return (isinstance(e, ast.Attribute) and e.name == "array"
            and isinstance(e.value, ast.Name) and e.value.id == "op")  # fmt: skip


def _as_list(e: ast.Expr) -> ast.Expr:
    if isinstance(e, ast.TupleExpr):
        return ast.ListExpr(e.span, tuple(map(_as_list, e.items)))
    return e


def _table(e: ast.Expr, tables: Tables) -> ast.Expr | None:
    """The tuple that a name is, or an item of it by a literal, at the place of the name."""
    if isinstance(e, ast.Name) and e.id in tables:
        return _at(tables[e.id], e.span)
    if isinstance(e, ast.Subscript) and len(e.items) == 1 and isinstance(e.items[0], ast.IntLit):
        outer, place = _table(e.value, tables), e.items[0].value
        items = outer.items if isinstance(outer, ast.TupleExpr) else ()
        return items[place] if place < len(items) else None
    return None


def _at(e: ast.Expr, span: Span) -> ast.Expr:
    match e:
        case ast.TupleExpr():
            return ast.TupleExpr(span, tuple(_at(x, span) for x in e.items))
        case ast.Unary():
            return replace(e, span=span, operand=_at(e.operand, span))
        case ast.IntLit() | ast.FloatLit():
            return replace(e, span=span)
        case _:
            return e


def _rows(s: ast.For, tables: Tables) -> ast.Expr | None:
    """What a loop goes through: a table, tables side by side, or the places of one."""
    over = s.iterable
    table = _table(over, tables)
    if table is not None or not isinstance(over, ast.Call) or over.keywords:
        return table
    name = over.function.id if isinstance(over.function, ast.Name) else ""
    if name in ("enumerate", "zip"):
        made = tuple(_table(a, tables) or a for a in over.arguments)
        same = all(a is b for a, b in zip(made, over.arguments, strict=True))
        return None if same else replace(over, arguments=made)
    if name != "range" or not isinstance(s.target, ast.Name):
        return None
    bounds = [_whole(a, tables) for a in over.arguments]
    known = [b for b in bounds if b is not None]
    if len(known) < len(bounds) or not 1 <= len(known) <= 3 or 0 in known[2:]:
        return None
    if not _chooses(s.body, s.target.id, tables):
        return None
    places = tuple(_number(over.span, i) for i in range(*known))
    return ast.TupleExpr(over.span, places) if places else None


def _number(span: Span, value: int) -> ast.Expr:
    literal = ast.IntLit(span, abs(value))
    return literal if value >= 0 else ast.Unary(span, "-", literal)


def _whole(e: ast.Expr, tables: Tables) -> int | None:
    if isinstance(e, ast.Unary) and e.operator == "-":
        value = _whole(e.operand, tables)
        return None if value is None else -value
    if isinstance(e, ast.Call) and isinstance(e.function, ast.Name) and e.function.id == "len":
        table = _table(e.arguments[0], tables) if len(e.arguments) == 1 else None
        return len(table.items) if isinstance(table, ast.TupleExpr) else None
    return e.value if isinstance(e, ast.IntLit) else None


def _chooses(node: Any, name: str, tables: Tables) -> bool:
    """Whether a table is subscripted by what a name is a part of."""
    todo: list[Any] = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            todo.extend(item)  # pyright: ignore[reportUnknownArgumentType]
            continue
        if isinstance(item, ast.Subscript) and _of_table(item, tables) and _names(item.items, name):
            return True
        todo.extend(_parts(item))
    return False


def _of_table(e: ast.Subscript, tables: Tables) -> bool:
    base: ast.Expr = e
    while isinstance(base, ast.Subscript):
        base = base.value
    return isinstance(base, ast.Name) and base.id in tables


def _names(node: Any, name: str) -> bool:
    todo: list[Any] = [node]
    while todo:
        item = todo.pop()
        if isinstance(item, ast.Name) and item.id == name:
            return True
        todo.extend(item if isinstance(item, tuple) else _parts(item))  # pyright: ignore[reportUnknownArgumentType]
    return False


def _parts(node: Any) -> list[Any]:
    return [] if isinstance(node, Span) else [getattr(node, n) for n in field_names(node)]
