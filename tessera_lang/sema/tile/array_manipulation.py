"""``op.broadcast_to``, ``flip``, ``expand_dims``, ``squeeze``, ``roll``, ``diff``, ``repeat``,
``tile``, ``pad``, ``take``, ``moveaxis``, ``swapaxes``.

Owns their types. Must not know how elements are moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.tile.array_creation import (
    of_the_call,
    shape_items,
    shape_of_array,
    told,
)
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.expand_builtins import expand
from tessera_lang.sema.tile.launch_promises import promise
from tessera_lang.sema.tile.operators import give_tile, value_of_operand
from tessera_lang.sema.tile.reductions import axes_argument, axis_argument, index_argument
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.size_normal_form import described, normal
from tessera_lang.sema.tile.symbolic import dim_of
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Dim, DimOp, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, Weak


def _tile(c: TileContext, bound: Bound, name: str) -> Tile | Term:
    o = value_of_operand(c, Operand(bound["x"], c.infer(bound["x"])))
    if isinstance(o.term, Tile) or is_silent(o.term):
        return o.term
    return c.report("T0207", f"`{name}` takes tiles and arrays, not `{text_of(o.term)}`", o.e.span)


def _given(bound: Bound, name: str) -> ast.Expr | None:
    e = bound.get(name)
    return None if isinstance(e, ast.NoneLit) else e


def _number(c: TileContext, e: ast.Expr, what: str, least: int) -> int | None:
    """A number that is known at compile time; None where it is wrong (reported)."""
    term, value = c.infer(e), None
    if not is_silent(term):
        index_argument(c, e)
        value = c.try_value(e)
        if not isinstance(value, int) or value < least:
            c.report("T0311", f"{what} is a number of at least {least} that is known at compile"
                     " time", e.span, helps=told(of_the_call(c, None, e)))  # fmt: skip
            return None
    return value if isinstance(value, int) else None


def expand_dims(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.expand_dims(x, axis)``: axes of one element at these places of the result."""
    del e
    tile = _tile(c, bound, "op.expand_dims")
    if not isinstance(tile, Tile):
        return tile
    count = len(shape_items(bound["axis"]))
    new = axes_argument(c, bound["axis"], len(tile.axes) + count, "op.expand_dims")
    if new is None:
        return c.nothing()
    axes = list(tile.axes)
    for axis in new:
        axes.insert(axis, TileAxis(1, 1))
    return replace(tile, axes=tuple(axes))


def broadcast_to(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.broadcast_to(x, shape)``: axes of one element stretched, others put in front."""
    del e
    tile = _tile(c, bound, "op.broadcast_to")
    dims = _sizes(c, bound["shape"])
    if not isinstance(tile, Tile):
        return tile
    if dims is None:
        return c.nothing()
    own, missing = tile.axes, len(dims) - len(tile.axes)
    if missing < 0:
        return c.report(
            "T0604", f"`op.broadcast_to` of {len(own)} axes into {len(dims)}", bound["shape"].span,
            f"`{source_of(bound['x'])}` has {len(own)} axes",
        )  # fmt: skip
    axes: list[TileAxis] = []
    for i, dim in enumerate(dims):
        axis = own[i - missing] if i >= missing else TileAxis(1, 1)
        if axis.capacity == 1 and axis.extent == 1:
            room = c.kernel.facts.value(dim)
            axis = TileAxis(room if room is None else max(1, room), dim)
        elif not agree(c, axis.extent, dim, bound["shape"].span):
            found = "?" if axis.extent is None else described(c.kernel.facts.resolve(axis.extent))
            wanted = described(c.kernel.facts.resolve(dim))
            return c.report(
                "T0601", f"`op.broadcast_to` stretches axes of one element: axis {i - missing} of"
                f" `{source_of(bound['x'])}` is {found}, not {wanted}",
                bound["shape"].span,
            )  # fmt: skip
        axes.append(axis)
    return replace(tile, axes=tuple(axes))


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


def flip(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.flip(x, axis)``: elements in reverse order along an axis, several, or all."""
    del e
    tile = _tile(c, bound, "op.flip")
    given = _given(bound, "axis")
    if isinstance(tile, Tile) and given is not None:
        if axes_argument(c, given, len(tile.axes), "op.flip") is None:
            return c.nothing()
    return tile


def squeeze(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.squeeze(x, axis)``: without axes of one element."""
    tile = _tile(c, bound, "op.squeeze")
    if not isinstance(tile, Tile):
        return tile
    given, rank = _given(bound, "axis"), len(tile.axes)
    facts = c.kernel.facts
    if given is None:
        values = [None if a.extent is None else facts.value(a.extent) for a in tile.axes]
        gone = tuple(i for i, n in enumerate(values) if n == 1)
        if not gone:
            return c.report("T0105", "`op.squeeze` needs `axis=` where no size is known to be 1",
                            e.span, helps=("write `op.squeeze(x, axis=0)`",))  # fmt: skip
    else:
        found = axes_argument(c, given, rank, "op.squeeze")
        if found is None:
            return c.nothing()
        gone = found
    for axis in gone:
        extent = tile.axes[axis].extent
        if not agree(c, extent, 1, bound["x"].span):
            shown = "?" if extent is None else described(facts.resolve(extent))
            return c.report("T0601", f"`op.squeeze` takes axes of one element: axis {axis} of"
                            f" `{source_of(bound['x'])}` has {shown}", bound["x"].span)  # fmt: skip
    return _or_number(
        replace(tile, axes=tuple(a for i, a in enumerate(tile.axes) if i not in gone))
    )


def _or_number(tile: Tile) -> Term:
    return tile if tile.axes or tile.wide else Scalar(tile.dtype)


def roll(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.roll(x, shift, axis)``: the last elements come first."""
    tile = _tile(c, bound, "op.roll")
    for shift in shape_items(bound["shift"]):
        if not is_silent(c.infer(shift)):
            index_argument(c, shift)
    if isinstance(bound["shift"], ast.TupleExpr):
        c.infer(bound["shift"])
    if not isinstance(tile, Tile):
        return tile
    axes = _moved_axes(c, e, bound, tile, "op.roll")
    if axes is None:
        return c.nothing()
    shifts = shape_items(bound["shift"])
    if len(shifts) not in (1, len(axes)):
        return c.report("T0105", f"`op.roll` takes one shift, or one for each of {len(axes)} axes",
                        bound["shift"].span)  # fmt: skip
    return tile


def _moved_axes(
    c: TileContext, e: ast.Call, bound: Bound, tile: Tile, name: str
) -> tuple[int, ...] | None:
    """The axes that ``axis=`` names, in the order of their names; of one axis it may be left out.
    NumPy takes all elements in a row where it is."""
    given, rank = _given(bound, "axis"), len(tile.axes)
    if given is None:
        if rank == 1:
            return (0,)
        c.report("T0105", f"`{name}` of several axes needs `axis=`", e.span,
                 helps=(f"write `{name}({source_of(bound['x'])}, ..., axis=0)`",))  # fmt: skip
        return None
    return axes_argument(c, given, rank, name)


def diff(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.diff(x, n, axis)``: the difference of neighbours, ``n`` times over."""
    tile = _tile(c, bound, "op.diff")
    if not isinstance(tile, Tile):
        return tile
    rank, given = len(tile.axes), _given(bound, "axis")
    axis = rank - 1 if given is None else axis_argument(c, given, rank, "op.diff")
    times = _number(c, bound["n"], "`n` of `op.diff`", 0) if "n" in bound else 1
    if axis is None or times is None or not rank:
        return c.nothing()
    before, behind = ":, " * axis, ", :" * (rank - axis - 1)
    more = {k: bound[k] for k in ("prepend", "append") if _given(bound, k) is not None}
    if more and times:
        return _diff_of_joined(c, e, bound["x"], more, (axis, times, f"[{before}:1{behind}]"))
    text = "x"
    for _ in range(times):
        text = f"({text})" if text != "x" else text
        text = f"{text}[{before}1:{behind}] - {text}[{before}:-1{behind}]"
        if len(text) > 4000:
            return c.report("T0311", f"`op.diff` of {times} differences", bound["n"].span,
                            helps=("take the difference of a difference",))  # fmt: skip
    return expand(c, e, text if times else "+x", {"x": bound["x"]})


def _diff_of_joined(
    c: TileContext, e: ast.Call, x: ast.Expr, more: Bound, how: tuple[int, int, str]
) -> Term:
    """With ``prepend=`` and ``append=``, of which a number stands for one place along the axis.
    ``how``: the axis, how many differences, and the subscript of the first place."""
    axis, times, first = how
    parts = ["x"]
    for name in more:
        term = c.infer(more[name])
        if is_silent(term):
            return term
        number = not isinstance(term, (Tile, Tensor)) or not _rank_of(term)
        part = f"op.full_like(x{first}, {name})" if number else name
        parts.insert(0 if name == "prepend" else len(parts), part)
    text = f"op.diff(op.concat(({', '.join(parts)}), axis={axis}), n={times}, axis={axis})"
    return expand(c, e, text, {"x": x, **more})


def _rank_of(term: Tile | Tensor) -> int:
    return len(term.axes) if isinstance(term, Tile) else len(term.shape)


def _times(axis: TileAxis, count: int) -> TileAxis:
    extent: Dim | None = None
    if axis.extent is not None:
        extent = normal(DimOp("*", axis.extent, count))
    return TileAxis(None if axis.capacity is None else axis.capacity * count, extent)


def repeat(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.repeat(x, repeats, axis)``: each element several times, one behind the other."""
    tile = _tile(c, bound, "op.repeat")
    count = _number(c, bound["repeats"], "`repeats` of `op.repeat`", 1)
    if not isinstance(tile, Tile):
        return tile
    axes = _moved_axes(c, e, bound, tile, "op.repeat")
    if axes is None or count is None or len(axes) != 1:
        return c.nothing()
    return _with_axis(tile, axes[0], _times(tile.axes[axes[0]], count))


def _with_axis(tile: Tile, axis: int, new: TileAxis) -> Tile:
    return replace(tile, axes=(*tile.axes[:axis], new, *tile.axes[axis + 1 :]))


def repetitions(count: int, rank: int) -> tuple[int, ...]:
    """The axes that so many numbers of ``op.tile`` are for: the last ones."""
    return tuple(range(rank - count, rank))


def tiled(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.tile(x, repetitions)``: the whole of it several times, one behind the other."""
    tile = _tile(c, bound, "op.tile")
    items = shape_items(bound["repetitions"])
    counts = [_number(c, item, "a number of repetitions", 1) for item in items]
    if isinstance(bound["repetitions"], ast.TupleExpr):
        c.infer(bound["repetitions"])
    if not isinstance(tile, Tile):
        return tile
    if len(items) > len(tile.axes):
        return c.report(
            "T0604", f"`op.tile` of {len(tile.axes)} axes takes as many repetitions, not"
            f" {len(items)}", e.span, helps=("put axes in front: `x[None, :]`",),
        )  # fmt: skip
    for axis, count in zip(repetitions(len(items), len(tile.axes)), counts, strict=True):
        if count is None:
            return c.nothing()
        tile = _with_axis(tile, axis, _times(tile.axes[axis], count))
    return tile


def pad_widths(e: ast.Expr, rank: int) -> tuple[tuple[ast.Expr, ast.Expr], ...] | None:
    """How many elements come before and behind on each axis, of one number, of a pair for all
    axes, or of a pair for each; None where it is none of these."""
    if not isinstance(e, (ast.TupleExpr, ast.ListExpr)):
        return ((e, e),) * rank
    nested = [isinstance(item, (ast.TupleExpr, ast.ListExpr)) for item in e.items]
    pairs = list(e.items) if all(nested) else [e]
    found = list[tuple[ast.Expr, ast.Expr]]()
    for pair in pairs:
        items = list(pair.items) if isinstance(pair, (ast.TupleExpr, ast.ListExpr)) else []
        if len(items) not in (1, 2) or any(nested) != all(nested):
            return None
        found.append((items[0], items[-1]))
    return tuple(found * rank if len(found) == 1 else found)


_MIRRORED = {
    "edge": "op.clip({k}, 0, {n} - 1)",
    "wrap": "{k} % {n}",
    "reflect": "{n} - 1 - op.abs({n} - 1 - {k} % max(2 * {n} - 2, 1))",
    "symmetric": "op.minimum({k} % (2 * {n}), 2 * {n} - 1 - {k} % (2 * {n}))",
}
"""The element that stands at place ``k``, of ``n`` along an axis."""


def _pad_mirrored(
    c: TileContext, e: ast.Call, x: ast.Expr, mode: str,
    widths: Sequence[tuple[ast.Expr, ast.Expr]], axes: Sequence[TileAxis],
) -> Term:  # fmt: skip
    """Around an array are elements of its own: one gather for each axis that has some."""
    text = "x"
    for axis, pair in enumerate(widths):
        before, behind = (_number(c, item, "a width of `op.pad`", 0) for item in pair)
        if before is None or behind is None:
            return c.nothing()
        if before or behind:
            extent = axes[axis].extent
            if extent is not None and symbols_of(extent) <= frozenset(c.kernel.origins):
                promise(c, 1, extent, e.span, "<=")  # an array without elements has none to repeat
            n = f"x.shape[{axis}]"
            places = f"(op.arange({n} + {before + behind}) - {before})"
            text = f"op.take({text}, {_MIRRORED[mode].format(k=places, n=n)}, axis={axis})"
    return expand(c, e, text if text != "x" else "+x", {"x": x})


def pad(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.pad(x, ((1, 1), (2, 2)), constant_values=0)``: more elements of one value around it."""
    tile = _tile(c, bound, "op.pad")
    mode = bound.get("mode")
    if mode is not None:
        c.infer(mode)
        if c.try_value(mode) not in ("constant", *_MIRRORED):
            known = ", ".join(f'"{m}"' for m in ("constant", *_MIRRORED))
            return c.report("T0311", f"`op.pad` has the modes {known}", mode.span)
    if not isinstance(tile, Tile):
        return tile
    widths = pad_widths(bound["pad_width"], len(tile.axes))
    c.infer(bound["pad_width"])
    if widths is None or len(widths) != len(tile.axes):
        return c.report("T0604", f"`op.pad` of {len(tile.axes)} axes takes a number, a pair, or as"
                        " many pairs", bound["pad_width"].span)  # fmt: skip
    if mode is not None and c.try_value(mode) in _MIRRORED:
        if "constant_values" in bound:
            return c.report(
                "T0311", f'`constant_values` says nothing with mode="{c.try_value(mode)}"',
                bound["constant_values"].span, helps=("leave it out",),
            )  # fmt: skip
        return _pad_mirrored(c, e, bound["x"], str(c.try_value(mode)), widths, tile.axes)
    axes = list[TileAxis]()
    for axis, pair in zip(tile.axes, widths, strict=True):
        numbers = [_number(c, item, "a width of `op.pad`", 0) for item in pair]
        if None in numbers:
            return c.nothing()
        more = sum(n for n in numbers if n is not None)
        extent = None if axis.extent is None else normal(DimOp("+", axis.extent, more))
        axes.append(TileAxis(None if axis.capacity is None else axis.capacity + more, extent))
    value = bound.get("constant_values")
    if value is not None and not give_tile(c, value, c.infer(value), tile.dtype, False):
        c.report("T0208", f"`{tile.dtype}` is not padded with this", value.span)
    return replace(tile, axes=tuple(axes))


def take(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.take(x, indices, axis)``: the elements at these places of an axis."""
    tile = _tile(c, bound, "op.take")
    o = value_of_operand(c, Operand(bound["indices"], c.infer(bound["indices"])))
    if not isinstance(tile, Tile) or is_silent(o.term):
        return tile if not isinstance(tile, Tile) else o.term
    axes = _moved_axes(c, e, bound, tile, "op.take")
    if axes is None or len(axes) != 1:
        return c.nothing()
    places = o.term if isinstance(o.term, Tile) and o.term.dtype.is_integer else None
    if places is not None and len(places.axes) > 1 and not c.in_tile_loop:
        return expand(c, e, _by_one_axis(tile, places, axes[0]), bound)
    if not isinstance(o.term, Tile) or not o.term.dtype.is_integer or len(o.term.axes) != 1:
        return c.report("T0215", f"`op.take` takes places as integers along one axis, not"
                        f" `{text_of(o.term)}`", o.e.span,
                        helps=("for one place write `x[i, :]`",)
                        if isinstance(o.term, (Scalar, Weak)) else ())  # fmt: skip
    return _with_axis(tile, axes[0], o.term.axes[0])


def take_along_axis(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.take_along_axis(x, indices, axis)``: of each line of an axis the elements at places."""
    tile = _tile(c, bound, "op.take_along_axis")
    o = value_of_operand(c, Operand(bound["indices"], c.infer(bound["indices"])))
    if not isinstance(tile, Tile) or is_silent(o.term):
        return tile if not isinstance(tile, Tile) else o.term
    rank = len(tile.axes)
    given = bound.get("axis")
    if given is None and rank > 1:
        return c.report("T0105", "`op.take_along_axis` of several axes needs `axis=`", e.span)
    axis = 0 if given is None else axis_argument(c, given, rank, "op.take_along_axis")
    if axis is None:
        return c.nothing()
    if not isinstance(o.term, Tile) or len(o.term.axes) != rank:
        return c.report(
            "T0604", f"`op.take_along_axis` takes as many axes of places as of elements: {rank}",
            o.e.span, f"this is `{text_of(o.term)}`",
        )  # fmt: skip
    places: list[str] = []
    for i in range(rank):
        items = ", ".join(":" if j == i else "None" for j in range(rank))
        lines = f"op.arange(x.shape[{i}])[{items}]" if rank > 1 else "0"
        places.append("indices" if i == axis else lines)
    return expand(c, e, f"x[{', '.join(places)}]", {k: bound[k] for k in ("x", "indices")})


def _by_one_axis(tile: Tile, places: Tile, axis: int) -> str:
    """Places with several axes one behind the other, and what they chose with their axes again."""
    sizes = [f"x.shape[{i}]" for i in range(len(tile.axes))]
    sizes[axis : axis + 1] = [f"indices.shape[{i}]" for i in range(len(places.axes))]
    flat = f"op.take(x, op.reshape(indices, (-1,)), axis={axis})"
    return f"op.reshape({flat}, ({', '.join(sizes)}))"


def moved_order(rank: int, source: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """The order of axes in which each of ``source`` stands at its place of ``target``."""
    order = [i for i in range(rank) if i not in source]
    for place, axis in sorted(zip(target, source, strict=True)):
        order.insert(place, axis)
    return tuple(order)


def moveaxis(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """``op.moveaxis(x, source, destination)`` and ``op.swapaxes(x, axis1, axis2)``."""
    swaps = "axis1" in bound
    name = "op.swapaxes" if swaps else "op.moveaxis"
    keys = ("axis1", "axis2") if swaps else ("source", "destination")
    tile = _tile(c, bound, name)
    if not isinstance(tile, Tile):
        return tile
    rank, found = len(tile.axes), list[tuple[int, ...]]()
    for key in keys:
        items = shape_items(bound[key])
        axes = [axis_argument(c, item, rank, name) for item in items]
        if isinstance(bound[key], ast.TupleExpr):
            c.infer(bound[key])
        known = tuple(axis for axis in axes if axis is not None)
        if len(known) < len(items):
            return c.nothing()
        found.append(known)
    first, second = found
    if len(first) != len(second) or len(set(first)) < len(first) or len(set(second)) < len(second):
        return c.report("T0311", f"`{name}` names as many axes here as there, each once", e.span)
    order = swapped_order(rank, first[0], second[0]) if swaps else moved_order(rank, first, second)
    return replace(tile, axes=tuple(tile.axes[i] for i in order))


def swapped_order(rank: int, a: int, b: int) -> tuple[int, ...]:
    return tuple(b if i == a else a if i == b else i for i in range(rank))


TYPES: dict[str, Callable[[TileContext, ast.Call, Bound], Term]] = {
    "op.expand_dims": expand_dims, "op.squeeze": squeeze, "op.roll": roll, "op.diff": diff,
    "op.repeat": repeat, "op.tile": tiled, "op.take": take, "op.moveaxis": moveaxis,
    "op.take_along_axis": take_along_axis,
    "op.swapaxes": moveaxis, "op.pad": pad, "op.broadcast_to": broadcast_to, "op.flip": flip,
}  # fmt: skip
