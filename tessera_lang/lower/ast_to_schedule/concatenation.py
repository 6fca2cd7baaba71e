"""``op.concat`` and ``op.stack`` as nodes."""

from __future__ import annotations

from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.builtin_arguments import (
    axes_of_result,
    axis_of,
    needed,
)
from tessera_lang.lower.ast_to_schedule.flip_concat_nodes import one_behind_another
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis, Iota, Mapped, Node
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX


def joined(s: State, e: ast.Call) -> Node:
    given = needed(s, e, "arrays")
    assert isinstance(given, ast.TupleExpr | ast.ListExpr)
    parts, axes = [s.node(x) for x in given.items], axes_of_result(s, e)
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
