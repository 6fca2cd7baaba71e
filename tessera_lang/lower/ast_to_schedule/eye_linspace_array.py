"""``op.eye``, ``linspace``, ``array`` as nodes."""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.builtin_arguments import (
    argument,
    axes_of_result,
    index_node,
    needed,
)
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Filled,
    Iota,
    Node,
)
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.sema.tile.eye_linspace_array import items_of
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, INDEX
from tessera_lang.types.type import Tile


def eye(s: State, e: ast.Call) -> Node:
    axes = axes_of_result(s, e)
    dtype = register_dtype(s.typed.types.get(e)) or F32
    rows: Node = Iota(0, INDEX, axes)
    k = argument(s, e, "k")
    if k is not None:
        rows = node_builders.mapped(s, "add", (rows, index_node(s, k)), INDEX)
    here = node_builders.compared(s, "eq", rows, Iota(1, INDEX, axes))
    return node_builders.cast(s, here, dtype)


def linspace(s: State, e: ast.Call) -> Node:
    """As NumPy: steps from the first one on, and the last one is what was asked for."""
    (axis,) = axes = axes_of_result(s, e)
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


def array(s: State, e: ast.Call) -> Node:
    """Of each place its number: the last one where none before is it."""
    t = s.typed.types.get(e)
    found = items_of(needed(s, e, "items"))
    if not isinstance(t, Tile) or found is None:
        raise Unsupported(e.span, "these items")
    axes = tuple(s.axis(a) for a in t.axes)
    dtype = register_dtype(t) or F32
    items = [node_builders.cast(s, s.node(item), dtype) for item in found[1]]
    if not items:
        none = node_builders.constant(s, 0, dtype)
        return Filled(node_builders.scalar_of(s, none), dtype, axes)
    place: Node = Iota(0, INDEX, axes)
    for axis in range(1, len(axes)):
        size = node_builders.constant(s, axes[axis].capacity or 1, INDEX)
        place = node_builders.mapped(s, "mul", (place, size), INDEX)
        place = node_builders.mapped(s, "add", (place, Iota(axis, INDEX, axes)), INDEX)
    last = node_builders.scalar_of(s, items[-1])
    made: Node = Filled(last, dtype, axes)
    for i, item in reversed(list(enumerate(items[:-1]))):
        here = node_builders.compared(s, "eq", place, node_builders.constant(s, i, INDEX))
        made = node_builders.select(s, here, item, made)
    return made


CALLS: dict[str, Callable[[State, ast.Call], Node]] = {
    "op.eye": eye, "op.linspace": linspace, "op.array": array,
}  # fmt: skip
