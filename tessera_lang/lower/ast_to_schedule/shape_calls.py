"""``op.broadcast_to``, ``flip``, ``concat``, ``stack``, ``eye``, ``linspace`` as nodes."""

from __future__ import annotations

from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.builtin_arguments import (
    argument,
    axes_of,
    axis_of,
    index_node,
    needed,
)
from tessera_lang.lower.ast_to_schedule.flip_concat_nodes import one_behind_another, reversed_along
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis, Iota, Mapped, Node
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, INDEX
from tessera_lang.types.type import Tile


def _axes(s: State, e: ast.Call) -> tuple[Axis, ...]:
    t = s.typed.types.get(e)
    if not isinstance(t, Tile):
        raise Unsupported(e.span, "this call as a number")
    return tuple(s.axis(a) for a in t.axes)


def broadcast_to(s: State, e: ast.Call) -> Node:
    x, axes = s.node(needed(s, e, "x")), list(_axes(s, e))
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


def joined(s: State, e: ast.Call) -> Node:
    given = needed(s, e, "arrays")
    assert isinstance(given, ast.TupleExpr | ast.ListExpr)
    parts, axes = [s.node(x) for x in given.items], _axes(s, e)
    dtype = register_dtype(s.typed.types.get(e)) or parts[0].dtype
    parts = [node_builders.cast(s, x, dtype) for x in parts]
    axis = axis_of(s, e, len(axes), 0) or 0
    if s.typed.symbols.get(e.function) == Builtin("op.concat"):
        return one_behind_another(s, parts, axis, axes[axis], e.span)
    one = Axis(s.b.number(1), 1)
    found: Node | None = None
    for i, part in reversed(list(enumerate(parts))):
        shape = (*part.axes[:axis], one, *part.axes[axis:])
        places = [j + (j >= axis) for j in range(len(part.axes))]
        part = node_builders.with_axes(s, part, shape, places)
        if found is None:
            found = Mapped(lambda v, w: v[0], (part,), dtype, axes, e.span)
            continue
        number = node_builders.constant(s, i, INDEX)
        here = node_builders.compared(s, "eq", Iota(axis, INDEX, axes), number)
        found = node_builders.select(s, here, part, found)
    assert found is not None
    return found


def eye(s: State, e: ast.Call) -> Node:
    axes = _axes(s, e)
    dtype = register_dtype(s.typed.types.get(e)) or F32
    rows: Node = Iota(0, INDEX, axes)
    k = argument(s, e, "k")
    if k is not None:
        rows = node_builders.mapped(s, "add", (rows, index_node(s, k)), INDEX)
    here = node_builders.compared(s, "eq", rows, Iota(1, INDEX, axes))
    return node_builders.cast(s, here, dtype)


def linspace(s: State, e: ast.Call) -> Node:
    """As NumPy: steps from the first one on, and the last one is what was asked for."""
    (axis,) = axes = _axes(s, e)
    dtype = register_dtype(s.typed.types.get(e)) or F32
    compute = F64 if dtype == F64 else F32
    start, stop = (
        node_builders.cast(s, s.node(needed(s, e, name)), compute) for name in ("start", "stop")
    )
    count = axis.capacity or 1
    places = node_builders.cast(s, Iota(0, INDEX, axes), compute)
    parts = node_builders.constant(s, max(1, count - 1), compute)
    width = node_builders.mapped(s, "sub", (stop, start), compute)
    step = node_builders.mapped(s, "div", (width, parts), compute)
    found = node_builders.mapped(s, "mul", (places, step), compute)
    found = node_builders.mapped(s, "add", (found, start), compute)
    if count > 1:
        last = node_builders.constant(s, count - 1, INDEX)
        is_last = node_builders.compared(s, "eq", Iota(0, INDEX, axes), last)
        found = node_builders.select(s, is_last, stop, found)
    return node_builders.cast(s, found, dtype)
