"""Reductions along an axis, scans, softmax, masks, windows.

Owns their types. Must not know element-wise functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.bound_names import statements
from tessera_lang.sema.context import text_of
from tessera_lang.sema.conversion_hints import float_for, mean_for
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.indexing import index
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.slice_reductions import result_dtype
from tessera_lang.sema.tile.array_creation import of_the_call, shape_items, told, window_axes
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.elementwise_builtins import attach_instance, widened
from tessera_lang.sema.tile.expand_builtins import expand, in_floats
from tessera_lang.sema.tile.operators import (
    give_tile,
    is_narrow,
    is_waiting,
    make_float,
    value_of_operand,
)
from tessera_lang.sema.tile.shapes import is_walked
from tessera_lang.sema.tile.size_normal_form import normal
from tessera_lang.sema.tile.subscripts import read
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, F64, INDEX, DType
from tessera_lang.types.shape import Dim, DimOp
from tessera_lang.types.type import ERROR, Scalar, Tensor, Tile, TileAxis

REDUCTIONS = ("sum", "max", "min", "mean", "prod", "any", "all", "argmax", "argmin", "var")
DERIVED = ("std", "norm", "logsumexp")
ORDERS = (
    "the second argument is the order, as in NumPy: of a vector 1, 2 or `op.inf`, of a matrix"
    ' "fro", 1 or `op.inf`; an axis is named: `op.norm(x, axis=1)`',
    "what is not 0 is counted by `op.count_nonzero(x)`",
)
"""What to write where `op.norm` has no such order."""
"""Reductions that are made of others."""
_OF_FLOATS = ("mean", "var", *DERIVED)
"""Those that give floats, of literals too."""


def _operand(c: TileContext, x: ast.Expr, what: str) -> Tile | Term:
    o = value_of_operand(c, Operand(x, c.infer(x)))
    if isinstance(o.term, Tile):
        return o.term
    if is_silent(o.term):
        return o.term
    return c.report("T0207", f"`{what}` takes a tile or an array, not `{text_of(o.term)}`", x.span)


def axis_argument(c: TileContext, e: ast.Expr | None, rank: int, what: str) -> int | None:
    """A constant axis, counted from 0; None where it is wrong (reported)."""
    if e is None:
        return None
    term = c.infer(e)
    settle(c, e, term, INDEX)
    value = c.try_value(e)
    if isinstance(value, int) and not isinstance(value, bool) and -rank <= value < rank:
        return value % rank
    if not is_silent(term):
        message = f"the axis of `{what}` must be known at compile time"
        if isinstance(value, int) and not isinstance(value, bool):
            message = f"`{what}` has no axis {value}: the tile has {rank}"
        elif isinstance(e, ast.TupleExpr) or value is not None:
            message = f"`{what}` works along one axis, an integer"
        helps = told(of_the_call(c, None, e)) or _of_several_axes(c, e, rank, what)
        c.report("T0311", message, e.span, helps=helps)
    return None


def in_one_axis(rank: int, axes: Sequence[int], x: str = "x") -> tuple[str, int]:
    """``x`` with the elements of several axes along one, the last; and the place of that."""
    kept = [k for k in range(rank) if k not in axes]
    order = (*kept, *axes)
    moved = x if list(order) == list(range(rank)) else f"op.transpose({x}, {order})"
    sizes = "".join(f"{x}.shape[{k}], " for k in kept)
    return f"op.reshape({moved}, ({sizes}{'-1' if kept else '-1,'}))", len(kept)


def _of_several_axes(c: TileContext, e: ast.Expr, rank: int, what: str) -> tuple[str, ...]:
    """What to write for an operation along several axes that works along one."""
    values = [c.try_value(item) for item in e.items] if isinstance(e, ast.TupleExpr) else []
    axes = sorted({v % rank for v in values if isinstance(v, int) and -rank <= v < rank})
    if not axes or len(axes) < len(values) or rank == 1:
        return ()
    if what == "op.softmax":
        at = f"axis={tuple(axes)}, keepdims=True"
        return (f"write `y = op.exp(x - op.max(x, {at}))`, then `y / op.sum(y, {at})`",)
    form, end = in_one_axis(rank, axes)
    return (f"bring their elements into one axis: `{what}({form}, axis={end})`",)


def axes_argument(
    c: TileContext, e: ast.Expr | None, rank: int, what: str
) -> tuple[int, ...] | None:
    """Constant axes, each counted from 0 and named once, in order; None where one is wrong
    (reported)."""
    if not isinstance(e, ast.TupleExpr):
        found = axis_argument(c, e, rank, what)
        return None if found is None else (found,)
    axes = [axis_argument(c, item, rank, what) for item in e.items]
    known = [axis for axis in axes if axis is not None]
    if len(known) < len(axes):
        return None
    if len(set(known)) < len(known):
        c.report("T0311", f"`{what}` names an axis twice", e.span)
        return None
    return tuple(sorted(known))


def flag_argument(c: TileContext, bound: Bound, name: str, what: str) -> bool:
    """A bool that is known at compile time; False where it is not given, or wrong (reported)."""
    given = bound.get(name)
    if given is None:
        return False
    term, value = c.infer(given), c.try_value(given)
    if not isinstance(value, bool) and not is_silent(term):
        c.report("T0311", f"`{name}` of `{what}` is `True` or `False`, known at compile time",
                 given.span, helps=told(of_the_call(c, None, given, "bool")))  # fmt: skip
    return value is True


def _correction(c: TileContext, bound: Bound, name: str) -> None:
    """``correction=``, or ``ddof=`` as NumPy has it: what the count of elements is less by."""
    given = [bound[n] for n in ("correction", "ddof") if n in bound]
    if len(given) > 1:
        c.report("T0106", "`correction` and `ddof` are two names of one number", given[1].span)
    for e in given:
        term, value = c.infer(e), c.try_value(e)
        settle(c, e, term, F64 if isinstance(value, float) else INDEX)
        if (isinstance(value, bool) or not isinstance(value, int | float)) and not is_silent(term):
            c.report("T0311", f"the correction of `{name}` is a number known at compile time",
                     e.span, helps=told(of_the_call(c, None, e)))  # fmt: skip


def _axis_given(bound: Bound) -> ast.Expr | None:
    """``axis=None`` is that of NumPy: all of them."""
    given = bound.get("axis")
    return None if isinstance(given, ast.NoneLit) else given


def reduction(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term:
    """``op.sum(x, axis=)`` and its like."""
    tile = _operand(c, bound["x"], name)
    if not isinstance(tile, Tile):
        return tile
    if name in ("op.any", "op.all") and tile.dtype != BOOL and not is_waiting(tile):
        rest = "".join(f", {n}={n}" for n in bound if n != "x")
        return expand(c, e, f"{name}(x != 0{rest})", bound)
    rank = len(tile.axes)
    given = _axis_given(bound)
    if "ord" in bound and not is_waiting(tile):
        items = given.items if isinstance(given, ast.TupleExpr) else (given,)
        text = _norm_of_order(c, bound, rank if given is None else len(items), tile.dtype)
        if text is None:
            return ERROR if c.final else Unknown()
        if text:
            return expand(c, e, text, bound)
    along = tuple(range(rank)) if given is None else axes_argument(c, given, rank, name)
    keepdims = flag_argument(c, bound, "keepdims", name)
    _correction(c, bound, name)
    if along is None:
        return ERROR if c.final else Unknown()
    kind = name.removeprefix("op.")
    if kind == "logsumexp" and not is_waiting(tile):
        if (found := in_floats(c, e, name, tile.dtype, bound)) is not None:
            return found
    if is_waiting(tile) and kind in _OF_FLOATS:
        tile = make_float(c, tile)
    if is_waiting(tile) and len(along) == rank and not keepdims:
        same = ("sum", "max", "min", *_OF_FLOATS)
        return replace(tile, axes=()) if kind in same else Unknown()
    places = kind in ("argmax", "argmin")
    if places and given is not None and len(along) > 1:
        return c.report(
            "T0311", f"`{name}` looks along one axis, or along all without `axis=`", bound["x"].span
        )
    dtype = _reduced_dtype(c, e, kind, tile, bound["x"])
    if dtype is None:
        return ERROR if c.final else Unknown()
    if places:
        _has_elements(c, e, name, [tile.axes[i].extent for i in along])
    for axis in along if given is not None else ():
        is_walked(c, tile, axis, again=kind in ("var", "std", "logsumexp"))
    one = (TileAxis(1, 1),) if keepdims else ()
    axes = tuple(x for i, a in enumerate(tile.axes) for x in (one if i in along else (a,)))
    wide = is_narrow(dtype) and dtype == tile.dtype
    if axes or wide:
        return Tile(dtype, axes, wide)
    return Scalar(dtype)


def _norm_of_order(c: TileContext, bound: Bound, axes: int, dtype: DType) -> str | None:
    """What ``ord=`` of ``op.norm`` stands for, along so many axes; empty where it is the root of
    the sum of squares, None where it is none that is computed (reported)."""
    given = bound["ord"]
    value: object = given.value if isinstance(given, ast.StringLit) else None
    if not isinstance(given, ast.StringLit | ast.NoneLit):
        term = c.infer(given)
        if isinstance(term, Unknown) and not c.final:
            return None
        value = c.try_value(given)
        settle(c, given, term, INDEX if isinstance(value, int) else F64)
    if isinstance(given, ast.NoneLit) or value == {1: 2, 2: "fro"}.get(axes, ()):
        return ""
    x = "x" if dtype.is_float else f"op.cast(x, {mean_for(c, dtype)})"
    rest = "".join(f", {n}={n}" for n in ("axis", "keepdims") if n in bound)
    forms: dict[tuple[int, object], str] = {
        (1, 1): f"op.sum(op.abs({x}){rest})",
        (1, "inf"): f"op.max(op.abs({x}){rest})",
        (1, "-inf"): f"op.min(op.abs({x}){rest})",
        (2, 1): f"op.max(op.sum(op.abs({x}), axis=0))",
        (2, "inf"): f"op.max(op.sum(op.abs({x}), axis=1))",
    }
    known = isinstance(value, int | str) and not isinstance(value, bool)
    form = forms.get((axes, value)) if known and (axes == 1 or not rest) else None
    if form is None:
        of = "a vector" if axes == 1 else "a matrix" if axes == 2 else f"{axes} axes"
        c.report("T0311", f"`op.norm` has no such norm of {of}", given.span, helps=ORDERS)
    return form


def _reduced_dtype(c: TileContext, e: ast.Call, kind: str, tile: Tile, x: ast.Expr) -> DType | None:
    """Of a reduction, and the functions behind one that is made of others; None where the dtype
    has none (reported)."""
    if kind in ("std", "norm"):
        return mean_for(c, tile.dtype)
    if kind != "logsumexp" or is_waiting(tile):
        return result_dtype(c, "sum" if kind in DERIVED else kind, tile.dtype, x)
    if not tile.dtype.is_float:
        to = float_for(c, tile.dtype)
        c.report("T0207", f"`op.{kind}` takes floats, not `{tile.dtype}`", x.span,
                 helps=(f"convert it: `{to}({source_of(x)})`",))  # fmt: skip
        return None
    if kind == "logsumexp":
        compute = F64 if tile.dtype == F64 else F32
        if not attach_instance(c, e, "math.log", [Scalar(compute)]):
            return None
        exp = "math.exp" if compute == F64 else ""  # in f32 it is a power of two
        if exp and not attach_instance(c, e, exp, [Scalar(compute)], second=True):
            return None
    return result_dtype(c, "sum", tile.dtype, x)


def _has_elements(c: TileContext, e: ast.Call, name: str, extents: list[Dim | None]) -> None:
    """There is no first place among no elements: where that is not proved, the launch or the run
    looks."""
    facts = c.kernel.facts
    open_ = [x for x in extents if x is None or c.is_open(x)]
    unsure = [x for x in extents if x is not None and not facts.less(0, x)]
    if open_ or not unsure or not c.final:
        return
    extent = unsure[0]
    for other in unsure[1:]:
        extent = normal(DimOp("*", extent, other))
    if facts.value(extent) == 0:
        c.report("T0311", f"`{name}` looks for a place, and there are no elements", e.span)
        return
    body = c.declaration.body
    leaves = (ast.Return, ast.Break, ast.Continue)
    exits = any(isinstance(s, leaves) and s is not body[-1] for s in statements(body))
    c.typed.nonempty[e] = extent, not (c.branches or c.inlined or exits)


def scan(c: TileContext, name: str, bound: Bound) -> Term:
    """``op.cumsum(x, axis=, exclusive=, reverse=)``, ``op.cumprod``, ``op.cummax`` and
    ``op.cummin``."""
    tile = _operand(c, bound["x"], name)
    flag_argument(c, bound, "exclusive", name)
    flag_argument(c, bound, "reverse", name)
    if not isinstance(tile, Tile):
        return tile
    given = _axis_given(bound)
    axis = axis_argument(c, given, len(tile.axes), name)
    if given is not None and axis is None:
        return ERROR if c.final else Unknown()
    if given is None and len(tile.axes) > 1:
        return c.report(
            "T0105", f"`{name}` of several axes needs `axis=`", bound["x"].span,
            helps=(f"of all elements in a row write `{name}(op.ravel({source_of(bound['x'])}))`",),
        )  # fmt: skip
    if not tile.axes:
        return c.report("T0604", f"`{name}` goes along an axis, and a number has none",
                        bound["x"].span)  # fmt: skip
    kind = {"op.cumsum": "sum", "op.cumprod": "prod"}.get(name, name[-3:])
    dtype = result_dtype(c, kind, tile.dtype, bound["x"])
    if dtype is None:
        return ERROR if c.final else Unknown()
    if kind in ("max", "min") and tile.dtype.is_float8:
        return c.report("T0207", f"`{name}` takes floats of 16 bits and more, not `{tile.dtype}`",
                        bound["x"].span,
                        helps=(f"convert it: `{source_of(bound['x'])}.to(f16)`",))  # fmt: skip
    if kind in ("max", "min"):  # which round nothing
        return replace(tile, buffer=False)
    return Tile(dtype, tile.axes, is_narrow(dtype))


def triangle(c: TileContext, name: str, bound: Bound) -> Term:
    """``op.tril(x, k)`` and ``op.triu``: zeros above or below a diagonal."""
    tile = _operand(c, bound["x"], name)
    if "k" in bound and not is_silent(c.infer(bound["k"])):
        index_argument(c, bound["k"])
    if isinstance(tile, Tile) and len(tile.axes) < 2:
        return c.report("T0604", f"`{name}` takes rows and columns", bound["x"].span,
                        f"this has {len(tile.axes)} axis")  # fmt: skip
    return tile


def transpose(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.transpose(x, axes)``: axis i of the result is axis ``axes[i]``; without it the other way
    around."""
    tile = _operand(c, bound["x"], "op.transpose")
    if not isinstance(tile, Tile):
        return tile
    order = permutation(c, e, bound, len(tile.axes))
    if order is None:
        return ERROR if c.final else Unknown()
    return replace(tile, axes=tuple(tile.axes[i] for i in order))


def permutation(c: TileContext, e: ast.Call, bound: Bound, rank: int) -> tuple[int, ...] | None:
    """The order of axes that a call names; None where it is none (reported)."""
    given = bound.get("axes")
    if given is None or isinstance(given, ast.NoneLit):
        return tuple(reversed(range(rank)))
    items = given.items if isinstance(given, ast.TupleExpr) else (given,)
    found = [axis_argument(c, item, rank, "op.transpose") for item in items]
    if any(axis is None for axis in found):
        return None
    if sorted(axis for axis in found if axis is not None) != list(range(rank)):
        c.report("T0311", f"`op.transpose` names each of {rank} axes once", given.span)
        return None
    return tuple(axis for axis in found if axis is not None)


def softmax(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.softmax(x, axis=-1)``."""
    tile = _operand(c, bound["x"], "op.softmax")
    if not isinstance(tile, Tile):
        return tile
    given, rank = bound.get("axis"), len(tile.axes)
    axis = rank - 1 if given is None else axis_argument(c, given, rank, "op.softmax")
    if not tile.axes or axis is None:
        return ERROR if c.final else Unknown()
    is_walked(c, tile, axis, again=True)
    if is_waiting(tile):
        make_float(c, tile)
        return tile
    if not tile.dtype.is_float:
        if (found := in_floats(c, e, "op.softmax", tile.dtype, bound)) is not None:
            return found
        return c.report(
            "T0207", f"`op.softmax` takes floats, not `{tile.dtype}`", bound["x"].span,
            helps=(f"convert it: `{float_for(c, tile.dtype)}({source_of(bound['x'])})`",),
        )  # fmt: skip
    if tile.dtype == F64 and not attach_instance(c, e, "math.exp", [Scalar(F64)]):
        return ERROR if c.final else Unknown()
    return widened(tile)


def causal(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.causal(x, row=, column=, offset=)``: -inf right of the diagonal."""
    del e
    tile = _operand(c, bound["x"], "op.causal")
    for key in ("row", "column", "offset"):
        if key in bound and not is_silent(c.infer(bound[key])):
            index_argument(c, bound[key])
    if not isinstance(tile, Tile):
        return tile
    if len(tile.axes) < 2:
        return c.report(
            "T0604", "`op.causal` takes rows and columns", bound["x"].span,
            f"this has {len(tile.axes)} axis",
        )  # fmt: skip
    if is_waiting(tile):
        make_float(c, tile)
        return tile
    if not tile.dtype.is_float:
        return c.report("T0207", f"`op.causal` takes floats, not `{tile.dtype}`", bound["x"].span)
    return tile


def index_argument(c: TileContext, e: ast.Expr) -> None:
    """An integer, converted to index."""
    index(c, e)
    kind = c.typed.types.get(e) if c.final else None
    if isinstance(kind, Scalar) and kind.dtype.is_integer and kind.dtype != INDEX:
        c.coerce(e, INDEX)


def window(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.window(x, start, length, fill=0)``: reads past the edges give ``fill``."""
    base = c.infer(bound["x"])
    starts = shape_items(bound["start"])
    if isinstance(bound["start"], ast.TupleExpr):
        c.infer(bound["start"])
    for s in starts:
        if not is_silent(c.infer(s)):
            index_argument(c, s)
    axes = window_axes(c, bound["length"])
    if is_silent(base):
        return base
    if not isinstance(base, (Tensor, Tile)):
        return c.report(
            "T0207", f"`op.window` takes an array, not `{text_of(base)}`", bound["x"].span
        )
    rank = len(base.shape) if isinstance(base, Tensor) else len(base.axes)
    if isinstance(base, Tensor):
        read(c, bound["x"])
    if axes is None:
        return ERROR if c.final else Unknown()
    if len(starts) != rank or len(axes) != rank:
        return c.report(
            "T0604", f"`op.window` of {rank} {'axis' if rank == 1 else 'axes'} takes as many starts"
            " and lengths", e.span, f"{len(starts)} starts and {len(axes)} lengths",
        )  # fmt: skip
    fill = bound.get("fill")
    if fill is not None and not give_tile(c, fill, c.infer(fill), base.dtype, False):
        c.report("T0208", f"a window of `{base.dtype}` is not filled with this", fill.span)
    return Tile(base.dtype, axes)
