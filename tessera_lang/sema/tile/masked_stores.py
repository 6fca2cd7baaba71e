"""``y[y < 0.0] = 0.0``: a store into the elements that a tile of bools chooses.

Owns the statement that stands for such a one, ``y[:, :] = op.where(y < 0.0, 0.0, y)``. Must
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
    """Whether a place is what a tile of bools chooses of an array or a buffer that has a name;
    beside it may stand numbers and slices."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
        return False
    if any(isinstance(item, ast.NoneLit) for item in target.items):
        return False
    return _mask(c, target) is not None


def _mask(c: TileContext, target: ast.Subscript) -> ast.Expr | None:
    """The one tile of bools among the items of a place, beside which there are no other tiles."""
    rest = [i for i in target.items if not isinstance(i, ast.SliceExpr)]
    terms = [(i, c.infer(i)) for i in rest]
    tiles = [(i, t) for i, t in terms if isinstance(t, (Tile, Tensor))]
    (item, term), *more = tiles or [(None, None)]
    return item if isinstance(term, (Tile, Tensor)) and term.dtype == BOOL and not more else None


def spelled_out(c: TileContext, s: Store, target: ast.Subscript) -> ast.Assign | None:
    """The store into the whole of it; None where that is not known or was refused."""
    base, mask = c.infer(target.value), _mask(c, target)
    assert mask is not None
    chosen = c.infer(mask)
    if not isinstance(base, (Tile, Tensor)) or not isinstance(chosen, (Tile, Tensor)):
        return None
    rank, own = (len(t.shape if isinstance(t, Tensor) else t.axes) for t in (base, chosen))
    value = _at_all(s.value, target, mask, own)
    term = c.infer(s.value) if value is s.value else None
    if is_silent(term) if term is not None else False:
        return None
    several = isinstance(term, (Tile, Tensor)) and bool(
        term.shape if isinstance(term, Tensor) else term.axes
    )
    if own + len(target.items) - 1 > rank or several:
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
        found = c.kernel.masked[s] = _made(s, target, value, mask, rank, own)
    if c.final:
        c.typed.in_order[s] = found
    return found


def _made(
    s: Store, target: ast.Subscript, value: ast.Expr, mask: ast.Expr, rank: int, own: int
) -> ast.Assign:
    """``a[:, k] = op.where(mask, value, a[:, k])``."""
    span = target.span
    place = _whole(target.items, mask, own, span)
    place += (_all_of(span),) * (rank - len(place))
    at = next(i for i, item in enumerate(target.items) if item is mask)
    behind = sum(isinstance(item, ast.SliceExpr) for item in place[at + own :])
    if behind:
        mask = ast.Subscript(
            mask.span, mask, (*(_all_of(span),) * own, *(ast.NoneLit(span),) * behind)
        )

    def old() -> ast.Expr:
        base = substituted(source_of(target.value), {}, span, lambda _, e: e)
        whole = all(isinstance(i, ast.SliceExpr) and is_all(i) for i in place)
        return base if whole else ast.Subscript(span, base, place)

    if isinstance(s, ast.AugmentedAssign):
        value = ast.Binary(s.span, s.operator, s.operator_span, old(), value)
    op = ast.Attribute(span, ast.Name(span, "op"), "where", span)
    chosen = ast.Call(s.value.span, op, (mask, value, old()))
    return ast.Assign(s.span, ast.Subscript(span, target.value, place), chosen)


def _all_of(span: Span) -> ast.SliceExpr:
    return ast.SliceExpr(span, None, None, None)


def is_all(item: ast.SliceExpr) -> bool:
    return item.lower is None and item.upper is None and item.step is None


def _whole(
    items: tuple[ast.Expr, ...], mask: ast.Expr, own: int, span: Span
) -> tuple[ast.Expr, ...]:
    """The items with `:` for each axis of the mask."""
    found: list[ast.Expr] = []
    for item in items:
        found += [_all_of(span)] * own if item is mask else [item]
    return tuple(found)


def _at_all(e: ast.Expr, target: ast.Subscript, mask: ast.Expr, own: int) -> ast.Expr:
    """An expression with `x` in the place of `x[mask]`, and `x[:, k]` in that of `x[mask, k]`; the
    same where there is none."""
    chosen = _chosen(e, target, mask, own)
    if chosen is not None:
        return chosen
    new: dict[str, object] = {}
    for name in field_names(e):
        old = getattr(e, name)
        made = _part(old, target, mask, own)
        if made is not old:
            new[name] = made
    return replace(e, **new) if new else e


def _chosen(e: ast.Expr, target: ast.Subscript, mask: ast.Expr, own: int) -> ast.Expr | None:
    """What a subscript with the mask is taken of. Slices beside the mask are those of the place, so
    that elements lie alike."""
    text = source_of(mask)
    if not isinstance(e, ast.Subscript):
        return None
    slices = [source_of(i) for i in target.items if isinstance(i, ast.SliceExpr)]
    if len(e.items) == 1 and source_of(e.items[0]) == text:
        return None if slices else e.value
    at = [i for i, item in enumerate(e.items) if source_of(item) == text]
    others = [source_of(i) for i in e.items if isinstance(i, ast.SliceExpr)]
    where = next(i for i, item in enumerate(target.items) if item is mask)
    if at != [where] or len(e.items) != len(target.items) or slices != others:
        return None
    return ast.Subscript(e.span, e.value, _whole(e.items, e.items[where], own, e.span))


def _part(old: object, target: ast.Subscript, mask: ast.Expr, own: int) -> object:
    if isinstance(old, tuple):
        made = tuple(_part(x, target, mask, own) for x in old)  # type: ignore[reportUnknownVariableType]
        return old if all(a is b for a, b in zip(made, old, strict=True)) else made  # type: ignore[reportUnknownVariableType]
    return _at_all(old, target, mask, own) if isinstance(old, ast.Expr) else old
