"""Arrays that a tile kernel makes anew in each round of a loop, or on one side of a condition.

Owns which variables these are: all rounds share one array, which is filled where it is made. It is
as in NumPy as long as nobody sees the array of the round before. Must not know shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.sema.bound_names import (
    expressions,
    statement_expressions,
    statements,
    targets,
)
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.side_tables import Builtin, FunctionSymbol
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.syntax import ast

SEEN_OTHERWISE = ("reshape", "ravel", "T", "mT")
"""What is the array itself, seen in another way."""


def only_making(c: TileContext, name: str) -> ast.Assign | None:
    """The one statement that gives a variable a value, or the first one of a block of which the
    others fill the array again; None where there are several, or where it is a parameter."""
    if any(p.name == name for p in c.declaration.parameters):
        return None
    found = [
        s for s in statements(c.declaration.body) for t in targets(s)
        if isinstance(t, ast.Name) and t.id == name and not isinstance(s, ast.AugmentedAssign)
    ]  # fmt: skip
    (first, *others) = found or [None]
    return first if not others and isinstance(first, ast.Assign) else None


def nobody_sees_the_last(c: TileContext, name: str, made: ast.Assign) -> bool:
    """Whether an array may be filled again where it is made: no other name means it then, but one
    that takes its elements of now, behind all stores of the round."""
    body = c.declaration.body
    given_on = [s for s in statements(body) if s is not made and gives_on(c, s, name)]
    if not given_on:
        return True
    block = _block_of(body, made)
    if block is None or not all(s in block and _is_plain(s, name) for s in given_on):
        return False
    at, last = block.index(made), min(block.index(s) for s in given_on)
    inside = {id(s) for s in statements(block[at + 1 : last])} if at < last else set[int]()
    return all(id(s) in inside for s in statements(body) if _stores(s, name)) and not any(
        e.span.lo < made.span.lo for e in _uses(body, name)
    )


def is_given_on(c: TileContext, value: ast.Expr) -> bool:
    """Whether ``u = new`` takes the elements of an array that is made again."""
    return isinstance(value, ast.Name) and value.id in c.made_again.get(c.declaration, ())


def _is_plain(s: ast.Stmt, name: str) -> bool:
    """``u = new``, or ``old, u = u, new``."""
    if not isinstance(s, ast.Assign):
        return False
    values = s.value.items if isinstance(s.value, ast.TupleExpr) else (s.value,)
    plain = (e for e in values if isinstance(e, ast.Name) or name not in _names(e))
    return len(list(plain)) == len(values) and all(isinstance(t, ast.Name) for t in targets(s))


def gives_on(c: TileContext, s: ast.Stmt, name: str) -> bool:
    """Whether a statement may give another name to the array."""
    if not isinstance(s, ast.Assign):
        return False
    return any(isinstance(t, ast.Name) for t in targets(s)) and _is_seen_in(c, s.value, name)


def _is_seen_in(c: TileContext, e: ast.Expr, name: str) -> bool:
    """Whether a value may be the array itself."""
    match e:
        case ast.Name():
            return e.id == name
        case ast.TupleExpr() | ast.ListExpr():
            return any(_is_seen_in(c, item, name) for item in e.items)
        case ast.Conditional():
            return _is_seen_in(c, e.then, name) or _is_seen_in(c, e.orelse, name)
        case ast.Attribute():
            return e.name in SEEN_OTHERWISE and _is_seen_in(c, e.value, name)
        case ast.Call():
            method = e.function.name if isinstance(e.function, ast.Attribute) else ""
            symbol = named_symbol(c, e.function)
            if isinstance(symbol, Builtin) or (method and symbol is None):
                return method in SEEN_OTHERWISE and name in _names(e)
            returns_it = not isinstance(symbol, FunctionSymbol) or _may_return_argument(c, symbol)
            return returns_it and name in _names(e)
        case _:
            return False


def _may_return_argument(c: TileContext, function: FunctionSymbol) -> bool:
    """Whether what a function gives may be one of its arguments."""
    body = function.declaration.body
    seen = {p.name for p in function.declaration.parameters}
    named = [
        (t.id, s.value) for s in statements(body) if isinstance(s, ast.Assign)
        for t in targets(s) if isinstance(t, ast.Name)
    ]  # fmt: skip
    while more := {n for n, e in named if any(_is_seen_in(c, e, x) for x in seen)} - seen:
        seen |= more
    given = [s.value for s in statements(body) if isinstance(s, ast.Return)]
    return any(e is not None and _is_seen_in(c, e, x) for e in given for x in seen)


def _names(root: ast.Expr) -> set[str]:
    return {e.id for e in expressions(root) if isinstance(e, ast.Name)}


def _block_of(body: tuple[ast.Stmt, ...], made: ast.Stmt) -> tuple[ast.Stmt, ...] | None:
    """The statements among which one stands."""
    if made in body:
        return body
    for s in body:
        inner: tuple[tuple[ast.Stmt, ...], ...] = ()
        if isinstance(s, ast.If):
            inner = s.body, s.orelse
        elif isinstance(s, ast.For | ast.While | ast.With):
            inner = (s.body,)
        for block in inner:
            found = _block_of(block, made)
            if found is not None:
                return found
    return None


def _stores(s: ast.Stmt, name: str) -> bool:
    """Whether a statement may change elements of the array: a function that takes it may too."""
    if any(isinstance(t, ast.Subscript) and name in _names(t.value) for t in targets(s)):
        return True
    if isinstance(s, ast.AugmentedAssign) and isinstance(s.target, ast.Name):
        return s.target.id == name
    calls = (e for root in statement_expressions(s) for e in expressions(root))
    return any(
        isinstance(e, ast.Call) and isinstance(e.function, ast.Name) and name in _names(e)
        for e in calls
    )


def _uses(body: tuple[ast.Stmt, ...], name: str) -> Iterator[ast.Name]:
    for s in statements(body):
        for root in (*statement_expressions(s), *targets(s)):
            for e in expressions(root):
                if isinstance(e, ast.Name) and e.id == name:
                    yield e
