"""``op.broadcast_to``, ``flip``, ``concat``, ``stack``, ``eye``, ``linspace``.

Owns their types. Must not know how elements are moved.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.makers import (
    capacities,
    dtype_argument,
    shape_items,
    shape_of_array,
)
from tessera_lang.sema.tile.operators import (
    Mixed,
    convert_operand,
    give_tile,
    is_narrow,
    settle_together,
    value_of_operand,
)
from tessera_lang.sema.tile.reductions import axes_argument, axis_argument, index_argument
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.size_normal_form import described, normal
from tessera_lang.sema.tile.symbolic import dim_of
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, DType, common_dtype, widest
from tessera_lang.types.shape import Dim, DimOp
from tessera_lang.types.type import ERROR, Tile, TileAxis, TupleType


def _nothing(c: TileContext) -> Term:
    return ERROR if c.final else Unknown()


def broadcast_to(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.broadcast_to(x, shape)``: axes of one element stretched, others put in front."""
    del e
    o = value_of_operand(c, Operand(bound["x"], c.infer(bound["x"])))
    dims = _sizes(c, bound["shape"])
    if not isinstance(o.term, Tile):
        return o.term if is_silent(o.term) else _no_tile(c, o, "op.broadcast_to")
    if dims is None:
        return _nothing(c)
    own, missing = o.term.axes, len(dims) - len(o.term.axes)
    if missing < 0:
        return c.report(
            "T0604", f"`op.broadcast_to` of {len(own)} axes into {len(dims)}", bound["shape"].span,
            f"`{source_of(o.e)}` has {len(own)} axes",
        )  # fmt: skip
    axes: list[TileAxis] = []
    for i, dim in enumerate(dims):
        axis = own[i - missing] if i >= missing else TileAxis(1, 1)
        if axis.capacity == 1 and axis.extent == 1:
            room = c.kernel.facts.value(dim)
            axis = TileAxis(room if room is None else max(1, room), dim)
        elif not agree(c, axis.extent, dim, bound["shape"].span):
            found = "?" if axis.extent is None else described(c.kernel.facts.resolve(axis.extent))
            return c.report(
                "T0601", f"`op.broadcast_to` stretches axes of one element: axis {i - missing} of"
                f" `{source_of(o.e)}` is {found}, not {described(c.kernel.facts.resolve(dim))}",
                bound["shape"].span,
            )  # fmt: skip
        axes.append(axis)
    return replace(o.term, axes=tuple(axes))


def _sizes(c: TileContext, shape: ast.Expr) -> list[Dim] | None:
    given = shape_of_array(c, shape)
    if given is not None:
        return [c.kernel.facts.simplify(d) for d in given]
    dims: list[Dim] = []
    for item in shape_items(shape):
        if is_silent(c.infer(item)):
            return None
        index_argument(c, item)
        dims.append(c.kernel.facts.simplify(dim_of(c, item)))
    if isinstance(shape, ast.TupleExpr):
        c.infer(shape)
    return dims


def _no_tile(c: TileContext, o: Operand, what: str) -> Term:
    return c.report("T0207", f"`{what}` takes tiles and arrays, not `{text_of(o.term)}`", o.e.span)


def flip(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.flip(x, axis)``: elements in reverse order along an axis, several, or all."""
    del e
    o = value_of_operand(c, Operand(bound["x"], c.infer(bound["x"])))
    if not isinstance(o.term, Tile):
        return o.term if is_silent(o.term) else _no_tile(c, o, "op.flip")
    given = bound.get("axis")
    if given is not None and not isinstance(given, ast.NoneLit):
        if axes_argument(c, given, len(o.term.axes), "op.flip") is None:
            return _nothing(c)
    return o.term


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
    del e
    found = _parts(c, "op.stack", bound, 1)
    if not isinstance(found, tuple):
        return found
    tiles, axis = found
    axes = list(tiles[0].axes)
    axes.insert(axis, TileAxis(len(tiles), len(tiles)))
    return replace(tiles[0], axes=tuple(axes))


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
    parts = [value_of_operand(c, Operand(x, c.infer(x))) for x in given.items]
    tiles: list[Tile] = []
    for o in parts:
        if not isinstance(o.term, Tile):
            return o.term if is_silent(o.term) else _no_tile(c, o, name)
        tiles.append(o.term)
    if not settle_together(c, parts):
        return Unknown()
    c.note(given, TupleType(tuple(tiles)))
    axis = axis_argument(c, bound.get("axis"), len(tiles[0].axes) + more, name)
    if bound.get("axis") is not None and axis is None:
        return _nothing(c)
    dtype = _common(c, name, parts, tiles)
    if dtype is None or not _fit(c, name, parts, tiles, None if more else axis or 0):
        return _nothing(c)
    wide = any(t.wide for t in tiles) and is_narrow(dtype)
    for o, t in zip(parts, tiles, strict=True):
        convert_operand(c, o, Mixed(dtype, wide, t.axes))
    return [replace(t, dtype=dtype, wide=wide) for t in tiles], axis or 0


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


def eye(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.eye(n, m, k, dtype)``: ones on a diagonal."""
    del e
    room: list[int] = []
    for name in ("n", "m"):
        if name in bound and not isinstance(bound[name], ast.NoneLit):
            found = capacities(c, bound[name], "`op.eye`")
            if found is None:
                return _nothing(c)
            room.append(found[0])
    if "k" in bound and not is_silent(c.infer(bound["k"])):
        index_argument(c, bound["k"])
    dtype = dtype_argument(c, bound.get("dtype")) or F32
    return Tile(dtype, tuple(TileAxis(n, n) for n in (room * 2)[:2]))


def linspace(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.linspace(start, stop, num, dtype)``: ``num`` numbers, both ends among them."""
    del e
    dtype = dtype_argument(c, bound.get("dtype")) or F32
    if not dtype.is_float:
        return c.report("T0207", f"`op.linspace` makes floats, not `{dtype}`",
                        bound["dtype"].span)  # fmt: skip
    compute = F64 if dtype == F64 else F32
    for name in ("start", "stop"):
        term = c.infer(bound[name])
        if not give_tile(c, bound[name], term, compute, False) or isinstance(term, Tile):
            return c.report(
                "T0207", f"`op.linspace` goes between numbers of `{compute}`", bound[name].span,
                f"this is `{text_of(term)}`",
                helps=(f"write `{compute}({source_of(bound[name])})`",),
            )  # fmt: skip
    room = capacities(c, bound["num"], "`op.linspace`")
    return _nothing(c) if room is None else Tile(dtype, (TileAxis(room[0], room[0]),))


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.broadcast_to": broadcast_to, "op.flip": flip, "op.concat": concat, "op.stack": stack,
    "op.eye": eye, "op.linspace": linspace,
}  # fmt: skip
