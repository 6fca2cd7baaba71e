"""``op.concat`` and ``op.stack``.

Owns their types. Must not know how elements are moved.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.operators import (
    Mixed,
    convert_operand,
    is_narrow,
    settle_together,
    value_of_operand,
)
from tessera_lang.sema.tile.reductions import axis_argument
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.size_normal_form import normal
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType, common_dtype, widest
from tessera_lang.types.shape import Dim, DimOp
from tessera_lang.types.type import Scalar, Tile, TileAxis, TupleType, Weak


def _no_tile(
    c: TileContext, o: Operand, what: str, given: ast.TupleExpr | ast.ListExpr
) -> Term:  # fmt: skip
    items = ", ".join(source_of(x) for x in given.items)
    terms = [c.infer(x) for x in given.items]
    numbers = all(isinstance(t, (Scalar, Weak, Open)) for t in terms)
    helps = (f"of numbers write `op.array([{items}])`",) if numbers else (
        f"an array of one element is `op.array([{source_of(o.e)}])`",
    )  # fmt: skip
    return c.report("T0207", f"`{what}` takes tiles and arrays, not `{text_of(o.term)}`", o.e.span,
                    helps=helps)  # fmt: skip


def concat(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.concat((a, b), axis=0)``: parts one behind the other."""
    found = _parts(c, "op.concat", bound, 0)
    if not isinstance(found, tuple):
        return found
    tiles, axis = found
    if not tiles[0].axes:
        return c.report("T0604", "`op.concat` takes tiles with axes", e.span,
                        helps=("write `op.stack((a, b))`",))  # fmt: skip
    axes = list(tiles[0].axes)
    axes[axis] = _sum_of([t.axes[axis] for t in tiles])
    return replace(tiles[0], axes=tuple(axes))


def stack(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.stack((a, b), axis=0)``: parts of one shape along a new axis."""
    if _of_numbers(c, bound):
        return expand(c, e, "op.array(arrays)", {"arrays": bound["arrays"]})
    found = _parts(c, "op.stack", bound, 1)
    if not isinstance(found, tuple):
        return found
    tiles, axis = found
    axes = list(tiles[0].axes)
    axes.insert(axis, TileAxis(len(tiles), len(tiles)))
    return replace(tiles[0], axes=tuple(axes))


def _of_numbers(c: TileContext, bound: Bound) -> bool:
    """Whether what is stacked are numbers: `op.array` makes a tile of them."""
    given, axis = bound["arrays"], bound.get("axis")
    if not isinstance(given, (ast.TupleExpr, ast.ListExpr)) or not given.items:
        return False
    first = axis is None or (isinstance(axis, ast.IntLit) and axis.value == 0)
    terms = [_part(c, x) for x in given.items]
    return first and all(isinstance(t, (Scalar, Weak, Open)) for t in terms)


def _parts(
    c: TileContext, name: str, bound: Bound, more: int
) -> tuple[list[Tile], int] | Term:  # fmt: skip
    """What is joined, all of one dtype, and along which axis; ``more``: axes that the result has
    beside theirs."""
    given = bound["arrays"]
    if not isinstance(given, (ast.TupleExpr, ast.ListExpr)) or not given.items:
        c.infer(given)
        return c.report("T0207", f"`{name}` takes several tiles in brackets", given.span,
                        helps=(f"write `{name}((a, b), axis=0)`",))  # fmt: skip
    parts = [value_of_operand(c, Operand(x, _part(c, x))) for x in given.items]
    tiles: list[Tile] = []
    for o in parts:
        if not isinstance(o.term, Tile):
            return o.term if is_silent(o.term) else _no_tile(c, o, name, given)
        tiles.append(o.term)
    if not settle_together(c, parts):
        return Unknown()
    c.note(given, TupleType(tuple(tiles)))
    axis = axis_argument(c, bound.get("axis"), len(tiles[0].axes) + more, name)
    if bound.get("axis") is not None and axis is None:
        return c.nothing()
    dtype = _common(c, name, parts, tiles)
    if dtype is None or not _fit(c, name, parts, tiles, None if more else axis or 0):
        return c.nothing()
    wide = any(t.wide for t in tiles) and is_narrow(dtype)
    tiles = _with_common_room(tiles, None if more else axis or 0)
    for o, t in zip(parts, tiles, strict=True):
        convert_operand(c, o, Mixed(dtype, wide, t.axes))
    return [replace(t, dtype=dtype, wide=wide) for t in tiles], axis or 0


def _part(c: TileContext, e: ast.Expr) -> Term:
    """The type of a part; a list of numbers is an array."""
    numbers: dict[str, ast.Expr] = {}

    def text(x: ast.Expr) -> str:
        if isinstance(x, (ast.TupleExpr, ast.ListExpr)):
            return f"[{', '.join(text(i) for i in x.items)}]"
        name = f"number{len(numbers)}"
        numbers[name] = x
        return name

    if not isinstance(e, (ast.TupleExpr, ast.ListExpr)) or not e.items:
        return c.infer(e)
    term = expand(c, e, f"op.array({text(e)})", numbers)
    c.note(e, term)
    return term


def _with_common_room(tiles: list[Tile], along: int | None) -> list[Tile]:
    """The parts with room where one of them has some, but for the axis that they are joined
    ``along``."""
    rooms = [next((x.capacity for x in axes if x.capacity is not None), None)
             for axes in zip(*(t.axes for t in tiles), strict=True)]  # fmt: skip
    return [
        replace(t, axes=tuple(
            a if i == along or a.capacity is not None else TileAxis(room, a.extent)
            for i, (a, room) in enumerate(zip(t.axes, rooms, strict=True))
        ))
        for t in tiles
    ]  # fmt: skip


def _common(c: TileContext, name: str, parts: list[Operand], tiles: list[Tile]) -> DType | None:
    dtype = tiles[0].dtype
    for o, t in zip(parts, tiles, strict=True):
        met = common_dtype(dtype, t.dtype)
        if met is None:
            wide = widest(dtype, t.dtype)
            texts = [f"`{_source(p.e)}.to({wide})`"
                     for p, own in zip(parts, tiles, strict=True) if own.dtype != wide]  # fmt: skip
            c.report("T0206", f"`{name}` joins tiles of one dtype, not of `{dtype}` and"
                     f" `{t.dtype}`", o.e.span,
                     helps=(f"convert: {', '.join(texts)}",))  # fmt: skip
            return None
        dtype = met
    return dtype


def _source(e: ast.Expr) -> str:
    text = source_of(e)
    return f"({text})" if isinstance(e, (ast.Binary, ast.Unary)) else text


def _fit(
    c: TileContext, name: str, parts: list[Operand], tiles: list[Tile], along: int | None
) -> bool:
    """Whether parts have equal sizes, but for the axis ``along`` which they are joined."""
    first = tiles[0]
    for o, t in zip(parts, tiles, strict=True):
        if len(t.axes) != len(first.axes):
            c.report("T0604", f"`{name}` joins tiles of one rank, not of {len(first.axes)} and"
                     f" {len(t.axes)} axes", o.e.span)  # fmt: skip
            return False
        for i, (a, b) in enumerate(zip(first.axes, t.axes, strict=True)):
            if i != along and not _alike(c, a, b, o.e):
                c.report("T0601", f"`{name}` joins tiles of equal sizes along the other axes: axis"
                         f" {i} of `{source_of(parts[0].e)}` and of `{source_of(o.e)}` differ",
                         o.e.span)  # fmt: skip
                return False
    return True


def _alike(c: TileContext, a: TileAxis, b: TileAxis, e: ast.Expr) -> bool:
    rooms = a.capacity == b.capacity or None in (a.capacity, b.capacity)
    return rooms and agree(c, a.extent, b.extent, e.span)


def _sum_of(axes: list[TileAxis]) -> TileAxis:
    """The axis of parts one behind the other."""
    rooms = [a.capacity for a in axes if a.capacity is not None]
    extents = [a.extent for a in axes if a.extent is not None]
    total: Dim | None = None
    if len(extents) == len(axes):
        total = extents[0]
        for extent in extents[1:]:
            total = normal(DimOp("+", total, extent))
    return TileAxis(sum(rooms) if len(rooms) == len(axes) else None, total)


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.concat": concat, "op.stack": stack,
}  # fmt: skip
