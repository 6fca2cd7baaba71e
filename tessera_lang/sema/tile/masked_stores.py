"""``y[y < 0.0] = 0.0``: a store into the elements that a tile of bools chooses.

Owns the statement that stands for such a one, ``y[:, :] = op.where(y < 0.0, 0.0, y[:, :])``. Must
not know how a value meets its place.
"""

from __future__ import annotations

from tessera_lang.record import field_names, replace
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.types.dtype import BOOL
from tessera_lang.types.type import Tensor, Tile

Store = ast.Assign | ast.AugmentedAssign


def is_masked(c: TileContext, target: ast.Expr) -> bool:
    """Whether a place is what a tile of bools chooses of an array or a buffer that has a name."""
    if not isinstance(target, ast.Subscript) or len(target.items) != 1:
        return False
    item = target.items[0]
    if isinstance(item, (ast.SliceExpr, ast.NoneLit)) or not isinstance(target.value, ast.Name):
        return False
    term = c.infer(item)
    return isinstance(term, (Tile, Tensor)) and term.dtype == BOOL


def spelled_out(c: TileContext, s: Store, target: ast.Subscript) -> ast.Assign | None:
    """The store into the whole of it; None where that is not known or was refused."""
    base, mask = c.infer(target.value), target.items[0]
    chosen = c.infer(mask)
    if not isinstance(base, (Tile, Tensor)) or not isinstance(chosen, (Tile, Tensor)):
        return None
    rank, own = (len(t.shape if isinstance(t, Tensor) else t.axes) for t in (base, chosen))
    value = _at_all(s.value, source_of(mask))
    term = c.infer(s.value) if value is s.value else None
    if is_silent(term) if term is not None else False:
        return None
    several = isinstance(term, (Tile, Tensor)) and bool(
        term.shape if isinstance(term, Tensor) else term.axes
    )
    if own > rank or several:
        name = source_of(target.value)
        c.report(
            "T0215", f"what `{source_of(mask)}` chooses of `{name}` takes one number, or elements"
            " that it chooses too", s.value.span if several else mask.span,
            helps=(f"choose for each element: `{name}[:] = op.where({source_of(mask)},"
                   f" {source_of(s.value)}, {name})`",),
        )  # fmt: skip
        return None
    found = c.kernel.masked.get(s)
    if found is None:
        found = c.kernel.masked[s] = _made(s, target, value, rank, own)
    if c.final:
        c.typed.in_order[s] = found
    return found


def _made(s: Store, target: ast.Subscript, value: ast.Expr, rank: int, own: int) -> ast.Assign:
    span, mask = target.span, target.items[0]
    whole = tuple(ast.SliceExpr(span, None, None, None) for _ in range(rank))
    if own < rank:
        more: list[ast.Expr] = [ast.SliceExpr(span, None, None, None) for _ in range(own)]
        mask = ast.Subscript(mask.span, mask, (*more, *(ast.NoneLit(span),) * (rank - own)))
    old = substituted(source_of(target.value), {}, span, lambda _, e: e)
    if isinstance(s, ast.AugmentedAssign):
        again = substituted(source_of(target.value), {}, span, lambda _, e: e)
        value = ast.Binary(s.span, s.operator, s.operator_span, again, value)
    op = ast.Attribute(span, ast.Name(span, "op"), "where", span)
    chosen = ast.Call(s.value.span, op, (mask, value, old))
    return ast.Assign(s.span, ast.Subscript(span, target.value, whole), chosen)


def _at_all(e: ast.Expr, mask: str) -> ast.Expr:
    """An expression with `x` in the place of `x[mask]`; the same where there is none."""
    if isinstance(e, ast.Subscript) and len(e.items) == 1 and source_of(e.items[0]) == mask:
        return e.value
    new: dict[str, object] = {}
    for name in field_names(e):
        old = getattr(e, name)
        made = _part(old, mask)
        if made is not old:
            new[name] = made
    return replace(e, **new) if new else e


def _part(old: object, mask: str) -> object:
    if isinstance(old, tuple):
        made = tuple(_part(x, mask) for x in old)  # type: ignore[reportUnknownVariableType]
        return old if all(a is b for a, b in zip(made, old, strict=True)) else made  # type: ignore[reportUnknownVariableType]
    return _at_all(old, mask) if isinstance(old, ast.Expr) and not isinstance(old, Span) else old
