"""Tiles that are made: ``op.shared``, ``op.zeros``, ``op.full``, ``op.arange`` and their like.

Owns capacities, and the sizes that a signature must give for them. Must not know statements.
"""

from __future__ import annotations

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.bound_names import expressions
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.indexing import index
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import is_silent, misfit, settle
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.operators import default_of_literals, is_waiting, open_dtype
from tessera_lang.sema.tile.size_normal_form import normal
from tessera_lang.sema.tile.subscripts import as_tile
from tessera_lang.sema.tile.symbolic import dim_of, length_of, shape_dims
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, INDEX, DType, dtype_named
from tessera_lang.types.shape import Dim, DimOp, symbols_of
from tessera_lang.types.type import ERROR, Scalar, Tensor, Tile, TileAxis, Weak

MOST_CAPACITY = 1 << 24


def shape_items(e: ast.Expr) -> tuple[ast.Expr, ...]:
    return e.items if isinstance(e, ast.TupleExpr) else (e,)


def shape_of_array(c: TileContext, e: ast.Expr) -> list[Dim] | None:
    """The sizes that ``x.shape`` gives; None where ``e`` is something else, or one is not known."""
    if not isinstance(e, ast.Attribute) or e.name != "shape":
        return None
    dims = shape_dims(c.infer(e.value))
    if dims is None:
        return None
    c.infer(e)
    known = [d for d in dims if d is not None]
    return known if len(known) == len(dims) else None


def dtype_argument(c: TileContext, e: ast.Expr | None) -> DType | None:
    """``dtype=``: a dtype, or the name of one; None where it is absent or wrong (reported)."""
    if e is None:
        return None
    term = c.infer(e)
    value = c.try_value(e)
    if isinstance(value, str):
        value = dtype_named(value)
    if isinstance(value, DType):
        return value
    if not is_silent(term):
        c.report("T0218", "this takes a dtype, as in `dtype=f32`", e.span,
                 f"this is `{text_of(term)}`")  # fmt: skip
    return None


def capacities(c: TileContext, shape: ast.Expr, what: str) -> tuple[int, ...] | None:
    """The room on each axis; None where it is not known (reported, or asked of the caller)."""
    if isinstance(shape, ast.Attribute) and shape.name == "shape":
        base = c.infer(shape.value)
        if isinstance(base, (Tile, Tensor)):
            c.infer(shape)
            return _as_large(c, shape, base, what)
    found: list[int | None] = [_capacity(c, e, what) for e in shape_items(shape)]
    if isinstance(shape, ast.TupleExpr):
        c.infer(shape)
    known = tuple(f for f in found if f is not None)
    return known if len(known) == len(found) else None


def _as_large(
    c: TileContext, shape: ast.Attribute, base: Tile | Tensor, what: str
) -> tuple[int, ...] | None:
    """The room of another tile, or of a whole array: its sizes are asked for."""
    if isinstance(base, Tensor):
        found = [c.kernel.facts.value(dim) for dim in base.shape]
        for dim, value in zip(base.shape, found, strict=True):
            if value is None:
                ask(c, shape, dim, what)
    else:
        found = [a.capacity for a in base.axes]
        if None in found and not is_waiting(base):
            c.report(
                "T0608", f"the shape of {what} must be known when it is compiled", shape.span,
                f"`{source_of(shape.value)}` has no fixed room along an axis",
            )  # fmt: skip
    known = tuple(f for f in found if f is not None)
    return known if len(known) == len(found) else None


def _capacity(c: TileContext, e: ast.Expr, what: str) -> int | None:
    if is_silent(c.infer(e)):
        return None
    index(c, e)
    dim = dim_of(c, e)
    value = c.kernel.facts.value(dim)
    if value is None:
        ask(c, e, dim, what)
        return None
    may_be_empty = what not in ("`op.shared`", "`op.window`")
    if not (0 if may_be_empty else 1) <= value <= MOST_CAPACITY:
        helps = (
            ("it has elements: where an array has none, do not call the kernel",)
            if not value
            else ()
        )
        c.report("T0608", f"{what} of {value} elements along an axis", e.span, helps=helps)
        return None
    return value


def window_axes(c: TileContext, lengths: ast.Expr) -> tuple[TileAxis, ...] | None:
    """The axes of a window: as long as its lengths, with room for the most that they may be; None
    where nothing says how much that is (reported, or asked of the caller)."""
    if isinstance(lengths, ast.Attribute) and lengths.name == "shape":
        room = capacities(c, lengths, "`op.window`")
        return None if room is None else tuple(TileAxis(n, n) for n in room)
    found = [_window_axis(c, e) for e in shape_items(lengths)]
    if isinstance(lengths, ast.TupleExpr):
        c.infer(lengths)
    known = tuple(f for f in found if f is not None)
    return known if len(known) == len(found) else None


def _window_axis(c: TileContext, e: ast.Expr) -> TileAxis | None:
    if is_silent(c.infer(e)):
        return None
    index(c, e)
    dim, facts = length_of(c, e), c.kernel.facts
    most = facts.most(dim)
    if facts.value(dim) is not None or most is None or not _runs(c, dim):
        n = _capacity(c, e, "`op.window`")
        return None if n is None else TileAxis(n, n)
    if not 0 < most <= MOST_CAPACITY:
        c.report("T0608", f"`op.window` of {most} elements along an axis", e.span)
        return None
    extent = dim if facts.not_negative(dim) else normal(DimOp("max", 0, dim))
    return TileAxis(most, extent)


def _runs(c: TileContext, dim: Dim) -> bool:
    """Whether something in a length is known to the run only."""
    return any(n not in c.kernel.origins for n in symbols_of(dim))


def of_the_call(c: TileContext, dim: Dim | None, e: ast.Expr, kind: str = "int") -> str:
    """What to write where all that a number, of a size ``dim``, is made of and is not known are
    numbers of the call; else empty."""
    numbers = [p.name for p in c.declaration.parameters]
    unknown = sorted(n for n in symbols_of(dim or 0) if n not in c.kernel.origins)
    parts = list(expressions(e))
    if not any(isinstance(p, (ast.Subscript, ast.Call, ast.Attribute)) for p in parts):
        read = {p.id for p in parts if isinstance(p, ast.Name)}
        unknown = sorted(n for n in read if n not in c.kernel.origins)
    if not unknown or not all(n in numbers for n in unknown):
        return ""
    given = " and ".join(f"`{n}: {kind}`" for n in unknown)
    return f"compile the kernel for its value: declare {given}"


def told(help: str) -> tuple[str, ...]:
    return (help,) if help else ()


def ask(c: TileContext, e: ast.Expr, dim: Dim, what: str) -> None:
    """A size that fixes a capacity: the call is compiled for its value."""
    origins = [c.kernel.origins.get(n) for n in sorted(symbols_of(dim))]
    known = [o for o in origins if o is not None]
    if len(known) == len(origins) and known:
        for origin in known:
            c.kernel.needed.setdefault(origin, e.span)
        return
    helps = (of_the_call(c, dim, e) or "make it a compile-time parameter, as in `block: int = 64`",)
    if what == "`op.window`":
        helps = (f"say the most that it may be, as in `min({source_of(e)}, 64)`", *helps)
    most = c.kernel.facts.most(dim)
    if what == "`op.arange`" and most is not None and most > 0:
        helps = (f"count to the most that it is, `op.arange({most})`: of a tile that is shorter at"
                 " an edge that meets what is there",)  # fmt: skip
    c.report(
        "T0608", f"the shape of {what} must be known when it is compiled", e.span,
        f"`{source_of(e)}` is known only while the kernel runs", helps=helps,
    )  # fmt: skip


def open_tile(
    c: TileContext, e: ast.Call, dtype: DType | None, default: DType
) -> tuple[DType, bool]:
    """The dtype of a tile that was made without one, as far as it is known."""
    return (dtype, False) if dtype is not None else open_dtype(c, e, default)


def shared(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.shared(shape, dtype=)``: a buffer; without a dtype the first store says it."""
    dtype = dtype_argument(c, bound.get("dtype"))
    room = capacities(c, bound["shape"], "`op.shared`")
    if room is None:
        return _missing(c)
    kind, _ = open_tile(c, e, dtype, F32)
    return Tile(kind, tuple(TileAxis(n, n) for n in room), buffer=True)


def _missing(c: TileContext) -> Term:
    return ERROR if c.final else Unknown()


def filled(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term:
    """``op.zeros/ones/empty(shape, dtype)`` and ``op.full(shape, value, dtype)``."""
    dtype = dtype_argument(c, bound.get("dtype"))
    room = capacities(c, bound["shape"], f"`{name}`")
    value = bound.get("value")
    term = c.infer(value) if value is not None else None
    if value is not None and isinstance(term, Tensor) and not term.shape:
        term = Scalar(as_tile(c, value, term).dtype)
    if dtype is None and isinstance(term, Scalar):
        dtype = term.dtype
    if room is None:
        return _missing(c)
    kind, wide = open_tile(c, e, dtype, default_of_literals(term))
    if value is not None and term is not None:
        _fill_value(c, value, term, Tile(kind, (), wide))
    return Tile(kind, _made_axes(c, e, room), wide)


def _made_axes(c: TileContext, e: ast.Call, room: tuple[int, ...]) -> tuple[TileAxis, ...]:
    """The axes of a tile that is made: as long as what it meets, or surely without elements."""
    return tuple([
        TileAxis(n, c.open_extent(e, i, n)) if n else empty_axis() for i, n in enumerate(room)
    ])  # fmt: skip


def empty_axis() -> TileAxis:
    """An axis without elements; a tile has room for one at least."""
    return TileAxis(1, 0)


def _fill_value(c: TileContext, e: ast.Expr, term: Term, tile: Tile) -> None:
    from tessera_lang.sema.tile.operators import give_tile

    if is_waiting(tile) or is_silent(term):
        return
    if isinstance(term, Weak) and c.is_known(e) and not tile.wide:
        value = c.try_value(e)
        if isinstance(value, int) and misfit(value, tile.dtype) is None:
            settle(c, e, term, tile.dtype)
            return
    if not isinstance(term, (Scalar, Weak, Open)) or not give_tile(
        c, e, term, tile.dtype, tile.wide
    ):
        c.report(
            "T0208", f"a tile of `{tile.dtype}` is not filled with `{text_of(term)}`", e.span,
            helps=(f"convert it: `{tile.dtype}({source_of(e)})`",),
        )  # fmt: skip


def filled_like(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term:
    """``op.zeros_like(x)`` and its like: the shape, and mostly the dtype, of ``x``."""
    dtype = dtype_argument(c, bound.get("dtype"))
    like = c.infer(bound["x"])
    value = bound.get("value")
    term = c.infer(value) if value is not None else None
    if is_silent(like):
        return like
    if isinstance(like, Tile):
        tile = replace(like, dtype=dtype or like.dtype, buffer=False,
                       wide=like.wide and dtype is None)  # fmt: skip
    elif isinstance(like, Tensor):
        axes = _array_axes(c, bound["x"], like, name)
        if axes is None:
            return _missing(c)
        tile = Tile(dtype or like.dtype, axes)
    else:
        return c.report("T0207", f"`{name}` takes a tile or an array, not `{text_of(like)}`",
                        bound["x"].span)  # fmt: skip
    if value is not None and term is not None:
        _fill_value(c, value, term, tile)
    return tile


def _array_axes(
    c: TileContext, e: ast.Expr, like: Tensor, name: str
) -> tuple[TileAxis, ...] | None:
    axes: list[TileAxis] = []
    for size in like.shape:
        value = c.kernel.facts.value(size)
        if value is None:
            ask(c, e, size, f"`{name}`")
        else:
            axes.append(TileAxis(max(1, value), value))
    return tuple(axes) if len(axes) == len(like.shape) else None


def counted(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term:
    """``op.arange(stop)``, ``op.arange(start, stop, step)``, ``op.iota(shape, axis=)``."""
    dtype = dtype_argument(c, bound.get("dtype")) or INDEX
    if name == "op.iota":
        room = capacities(c, bound["shape"], "`op.iota`")
        axis = bound.get("axis")
        if axis is not None:
            c.infer(axis)
            settle(c, axis, c.terms.get(axis, Unknown()), INDEX)
            value = c.try_value(axis)
            if room is not None and not (
                isinstance(value, int) and -len(room) <= value < len(room)
            ):
                return c.report("T0311", "`op.iota` has no such axis", axis.span)
    else:
        room = _arange_room(c, e, bound)
    if room is None:
        return _missing(c)
    return Tile(dtype, _made_axes(c, e, room))


def _arange_room(c: TileContext, e: ast.Call, bound: Bound) -> tuple[int, ...] | None:
    numbers: list[int] = []
    for key in ("start", "stop", "step"):
        if key not in bound:
            continue
        found = c.kernel.facts.value(dim_of(c, bound[key])) if _whole(c, bound[key]) else None
        if found is None:
            ask(c, bound[key], dim_of(c, bound[key]), "`op.arange`")
            return None
        numbers.append(found)
    start, stop = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
    step = numbers[2] if len(numbers) == 3 else 1
    count = len(range(start, stop, step)) if step else 0
    if count > MOST_CAPACITY:
        c.report("T0608", f"`op.arange` of {count} elements", e.span)
        return None
    return (count,)


def _whole(c: TileContext, e: ast.Expr) -> bool:
    if is_silent(c.infer(e)):
        return False
    index(c, e)
    return True
