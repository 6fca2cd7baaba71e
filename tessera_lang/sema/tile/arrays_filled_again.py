"""Arrays that a tile kernel makes once, stores into, and then gives all elements anew: after
``p[0] = 1.0`` comes ``p = p @ P``.

Owns which assignments these are: there the new elements are stored into the array, which is as in
NumPy as long as nobody else sees the old ones. Must not know how a value meets its place.
"""

from __future__ import annotations

from tessera_lang.record import replace
from tessera_lang.sema.bound_names import statements, targets
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.sema.tile.arrays_made_again import gives_on
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.syntax import ast

_FILLED = {"op.zeros": 0, "op.empty": 0, "op.ones": 1}
_VIEWS = frozenset(
    f"op.{n}" for n in (
        "reshape", "ravel", "transpose", "permute_dims", "matrix_transpose", "expand_dims",
        "squeeze", "swapaxes", "moveaxis", "broadcast_to", "diagonal", "flip", "fliplr", "flipud",
        "shared", "positive", "window",
    )
)  # fmt: skip
"""Of what NumPy gives as a view, so that a store into it would change the array behind it."""


def is_fresh(c: TileContext, e: ast.Expr) -> bool:
    """Whether an expression computes new elements: a name that is given them, and whose elements
    are stored, is an array that begins with them."""
    if isinstance(e, ast.Call):
        symbol = named_symbol(c, e.function)
        return isinstance(symbol, Builtin) and symbol.name.startswith("op.") and (
            symbol.name not in _VIEWS
        )  # fmt: skip
    return isinstance(e, (ast.Binary, ast.Unary, ast.Compare))


def filled_again(c: TileContext, name: str) -> tuple[ast.Name, ...]:
    """The targets of all assignments behind the first that give a variable a value, where each
    computes new elements and no other name means the array; none where there is another one."""
    found = c.filled_again.get((c.declaration, name))
    if found is None:
        found = c.filled_again[c.declaration, name] = _filled_again(c, name)
    return found


def _filled_again(c: TileContext, name: str) -> tuple[ast.Name, ...]:
    body = c.declaration.body
    giving: list[ast.Assign] = []
    for s in statements(body):
        named = [t for t in targets(s) if isinstance(t, ast.Name) and t.id == name]
        if not named or isinstance(s, ast.AugmentedAssign):
            continue
        if not isinstance(s, ast.Assign) or s.target is not named[0]:
            return ()
        giving.append(s)
    giving.sort(key=lambda s: s.span.start)
    if len(giving) < 2 or any(p.name == name for p in c.declaration.parameters):
        return ()
    first, again = giving[0], giving[1:]
    fresh = (is_fresh(c, s.value) and value_filled(c, first.value, s.value) for s in again)
    if not all(fresh) or any(gives_on(c, s, name) for s in statements(body) if s not in giving):
        return ()
    return tuple(s.target for s in again if isinstance(s.target, ast.Name))


def value_filled(c: TileContext, first: ast.Expr, e: ast.Expr) -> ast.Expr | None:
    """What is stored into an array that began with ``first``: of ``op.zeros(n)`` its number, if it
    has the shape that the array began with."""
    symbol = named_symbol(c, e.function) if isinstance(e, ast.Call) else None
    name = symbol.name if isinstance(symbol, Builtin) else ""
    if not isinstance(e, ast.Call) or name.removesuffix("_like") not in (*_FILLED, "op.full"):
        return e
    if not isinstance(first, ast.Call) or not e.arguments or not first.arguments:
        return None

    def said(call: ast.Call) -> tuple[str, ...]:
        begin = named_symbol(c, call.function)
        like = isinstance(begin, Builtin) and begin.name.endswith("_like")
        dtypes = (source_of(k.value) for k in call.keywords if k.name == "dtype")
        return (str(like), source_of(call.arguments[0]), *dtypes)

    if said(e) != said(first) or len(e.arguments) > 1 + (name.startswith("op.full")):
        return None
    if name.startswith("op.full"):
        return e.arguments[1] if len(e.arguments) > 1 else None
    return ast.IntLit(e.span, _FILLED[name.removesuffix("_like")])


def in_place(s: ast.Assign, target: ast.Name, value: ast.Expr, rank: int) -> ast.Assign:
    """``name[:, :] = value``, which stands for ``name = value``."""
    items = tuple(ast.SliceExpr(target.span, None, None, None) for _ in range(rank))
    return replace(s, target=ast.Subscript(target.span, target, items), value=value)
