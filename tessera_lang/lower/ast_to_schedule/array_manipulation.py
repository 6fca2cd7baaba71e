"""``op.broadcast_to``, ``flip``, ``expand_dims``, ``squeeze``, ``roll``, ``repeat``, ``tile``,
``pad``, ``take``, ``moveaxis``, ``swapaxes``, ``reshape`` as nodes."""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders, subscripts
from tessera_lang.lower.ast_to_schedule.builtin_arguments import (
    argument,
    axes_of,
    axes_of_result,
    known,
    needed,
)
from tessera_lang.lower.ast_to_schedule.flip_concat_nodes import (
    at_places,
    reversed_along,
)
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Iota,
    Mapped,
    Node,
    Read,
    Windows,
)
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.sema.tile.array_manipulation import (
    moved_order,
    pad_widths,
    repetitions,
    swapped_order,
)
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, INDEX
from tessera_lang.types.type import Tile


def _items(e: ast.Expr) -> tuple[ast.Expr, ...]:
    return e.items if isinstance(e, ast.TupleExpr) else (e,)


def _numbers(s: State, e: ast.Expr) -> list[int]:
    found = [known(s, item) for item in _items(e)]
    return [n for n in found if isinstance(n, int)]


def _axes(s: State, e: ast.Call, rank: int) -> tuple[int, ...]:
    return axes_of(s, e, rank) or (0,)


def broadcast_to(s: State, e: ast.Call) -> Node:
    x, axes = s.node(needed(s, e, "x")), list(axes_of_result(s, e))
    for i, own in enumerate(reversed(x.axes), start=1):
        if own.capacity != 1:
            axes[-i] = own
    return Mapped(lambda v, w: v[0], (x,), x.dtype, tuple(axes), e.span)


def flip(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    given = axes_of(s, e, len(x.axes))
    for axis in range(len(x.axes)) if given is None else given:
        x = reversed_along(s, x, axis, e.span)
    return x


def expand_dims(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    new = _numbers(s, needed(s, e, "axis"))
    rank = len(x.axes) + len(new)
    taken = {axis % rank for axis in new}
    places = [i for i in range(rank) if i not in taken]
    shape = list[Axis]()
    for i in range(rank):
        shape.append(Axis(s.b.number(1), 1) if i in taken else x.axes[places.index(i)])
    return node_builders.with_axes(s, x, tuple(shape), places)


def squeeze(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    given, rank = axes_of(s, e, len(x.axes)), len(x.axes)
    if given is None:
        given = tuple(i for i in range(rank) if s.b.known(x.axes[i].extent) == 1)
    for axis in reversed(given):
        x = node_builders.without(s, x, axis)
    return x


def _mapped(
    s: State, name: str, a: Node, b: Node
) -> Node:  # fmt: skip
    """A division of places by what is not 0."""
    builder = s.b

    def apply(v: tuple[Value, ...], windows: Windows) -> Value:
        return builder.binary(name, v[0], v[1], -1)

    return Mapped(apply, (a, b), INDEX, node_builders.axes_of(s, (a, b), None), builder.span)


def roll(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    given = argument(s, e, "axis")
    rank = len(x.axes)
    named = [0] if given is None else [axis % rank for axis in _numbers(s, given)]
    shifts = [subscripts.number(s, item) for item in _items(needed(s, e, "shift"))]
    for axis, shift in zip(named, shifts * (len(named) if len(shifts) == 1 else 1), strict=True):
        a, b = x.axes[axis], s.b
        room = b.arithmetic("max", a.extent, b.number(1))
        by = Filled(b.arithmetic("mod", shift, room), INDEX, ())
        places = node_builders.mapped(s, "sub", (Iota(0, INDEX, (a,)), by), INDEX)
        before = node_builders.compared(s, "lt", places, node_builders.constant(s, 0, INDEX))
        size = Filled(a.extent, INDEX, ())
        behind = node_builders.mapped(s, "add", (places, size), INDEX)
        places = node_builders.select(s, before, behind, places)
        x = at_places(s, x, axis, places, a, e.span)
    return x


def _longer(s: State, axis: Axis, count: int) -> Axis:
    extent = s.b.arithmetic("mul", axis.extent, s.b.number(count))
    return Axis(extent, None if axis.capacity is None else axis.capacity * count)


def repeat(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    (count,) = _numbers(s, needed(s, e, "repeats"))
    (axis,) = _axes(s, e, len(x.axes))
    new = _longer(s, x.axes[axis], count)
    by = node_builders.constant(s, count, INDEX)
    places = _mapped(s, "floordiv", Iota(0, INDEX, (new,)), by)
    return at_places(s, x, axis, places, new, e.span)


def tiled(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    counts = _numbers(s, needed(s, e, "repetitions"))
    for axis, count in zip(repetitions(len(counts), len(x.axes)), counts, strict=True):
        if count == 1:
            continue
        old = x.axes[axis]
        new = _longer(s, old, count)
        size = s.b.arithmetic("max", old.extent, s.b.number(1))
        places = _mapped(s, "mod", Iota(0, INDEX, (new,)), Filled(size, INDEX, ()))
        x = at_places(s, x, axis, places, new, e.span)
    return x


def pad(s: State, e: ast.Call) -> Node:
    """Along each axis the elements moved on, and where none stands, the value."""
    x = s.node(needed(s, e, "x"))
    given = argument(s, e, "constant_values")
    fill = node_builders.constant(s, 0, x.dtype) if given is None else (
        node_builders.cast(s, s.node(given), x.dtype)
    )  # fmt: skip
    widths = pad_widths(needed(s, e, "pad_width"), len(x.axes)) or ()
    inside = list[tuple[int, Node]]()
    for axis, pair in enumerate(widths):
        before, behind = (n if isinstance(n, int) else 0 for n in (known(s, w) for w in pair))
        if not before + behind:
            continue
        old = x.axes[axis]
        capacity = None if old.capacity is None else old.capacity + before + behind
        new = Axis(s.b.add(old.extent, s.b.number(before + behind)), capacity)
        first = node_builders.constant(s, before, INDEX)
        zero = node_builders.constant(s, 0, INDEX)
        places = node_builders.mapped(s, "sub", (Iota(0, INDEX, (new,)), first), INDEX)
        low = node_builders.compared(s, "ge", places, zero)
        high = node_builders.compared(s, "lt", places, Filled(old.extent, INDEX, ()))
        here = node_builders.mapped(s, "and", (low, high), BOOL)
        inside.append((axis, here))
        x = at_places(s, x, axis, node_builders.select(s, here, places, zero), new, e.span)
    one = Axis(s.b.number(1), 1)
    for axis, here in inside:
        shape = tuple(a if i == axis else one for i, a in enumerate(x.axes))
        x = node_builders.select(s, node_builders.with_axes(s, here, shape, (axis,)), x, fill)
    return x


def take(s: State, e: ast.Call) -> Node:
    """A place that is not there gives 0, as that of a gathered row does."""
    x = s.node(needed(s, e, "x"))
    places = node_builders.cast(s, s.node(needed(s, e, "indices")), INDEX)
    (axis,) = _axes(s, e, len(x.axes))
    new, old = places.axes[0], x.axes[axis]
    if isinstance(x, Read):
        return at_places(s, x, axis, places, new, e.span)
    zero = node_builders.constant(s, 0, INDEX)
    low = node_builders.compared(s, "ge", places, zero)
    high = node_builders.compared(s, "lt", places, Filled(old.extent, INDEX, ()))
    inside = node_builders.mapped(s, "and", (low, high), BOOL)
    found = at_places(s, x, axis, node_builders.select(s, inside, places, zero), new, e.span)
    one = Axis(s.b.number(1), 1)
    shape = tuple(new if i == axis else one for i in range(len(x.axes)))
    shown = node_builders.with_axes(s, inside, shape, (axis,))
    return node_builders.select(s, shown, found, node_builders.constant(s, 0, x.dtype))


def moveaxis(s: State, e: ast.Call) -> Node:
    x = s.node(needed(s, e, "x"))
    rank, swaps = len(x.axes), argument(s, e, "axis1") is not None
    names = ("axis1", "axis2") if swaps else ("source", "destination")
    first, second = ([n % rank for n in _numbers(s, needed(s, e, name))] for name in names)
    order = swapped_order(rank, first[0], second[0]) if swaps else moved_order(rank, first, second)
    return node_builders.permuted(x, order)


def reshape(s: State, e: ast.Call) -> Node:
    """The memory of an array with other sizes: of a parameter, or that a value is stored into."""
    x = needed(s, e, "x")
    view, dtype = s.array(x), None
    tile = s.typed.coercions.get(x) or s.typed.types.get(x)
    if isinstance(tile, Tile):
        value = s.node(x)
        # What a slice leaves is a minimum to the lowering; the checker knows which size it is.
        sizes = [None if a.extent is None else s.dim(a.extent) for a in tile.axes]
        room = [n for n in sizes if n is not None]
        kept, dtype = (
            s.keep(value, e.span, room=room if len(room) == len(sizes) else ()),
            value.dtype,
        )
        if isinstance(kept, Mapped):  # places, which are stored as i64
            kept = kept.operands[0]
        view = kept.view if isinstance(kept, Read) else None
    sizes = [s.dim(dim) for dim in s.typed.reshaped[e]]
    known_sizes = [n for n in sizes if n is not None]
    if view is None or view not in s.low.pointers or len(known_sizes) < len(sizes):
        raise Unsupported(e.span, "this value with another shape", "store it into an array first")
    made = s.b.reshaped(view, s.low.pointers[view], known_sizes)
    s.low.sizes[made] = tuple(known_sizes)
    read = subscripts.array(s, made, e.span, s.typed.coercions.get(e))
    return read if dtype is None else node_builders.cast(s, read, dtype)


CALLS: dict[str, Callable[[State, ast.Call], Node]] = {
    "op.expand_dims": expand_dims, "op.squeeze": squeeze, "op.roll": roll, "op.repeat": repeat,
    "op.tile": tiled, "op.take": take, "op.moveaxis": moveaxis, "op.swapaxes": moveaxis,
    "op.pad": pad, "op.reshape": reshape, "op.ravel": reshape,
    "op.broadcast_to": broadcast_to, "op.flip": flip,
}  # fmt: skip
