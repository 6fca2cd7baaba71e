"""Whole-tensor values that a condition chooses: an element-wise select between two expressions.

Owns what may be computed unasked so that both sides can be seen behind the condition. Must not know
statements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Value
from tessera_lang.ir.tile.builder import RegionBuilder
from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Filled, Node
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.opt.schedule.parallel.dead_code import is_silent
from tessera_lang.sema.side_tables import Local
from tessera_lang.source import Span
from tessera_lang.types.dtype import BOOL

Tiles = Mapping[Local, Node]


def is_whole(node: Node | None) -> bool:
    """Whether a value is computed where it is used, for want of room."""
    return node is not None and any(a.capacity is None for a in node.axes)


def chosen(candidates: Sequence[Local], before: Tiles, then: Tiles, other: Tiles) -> list[Local]:
    """Variables that hold such a value behind a condition, and not the same on both sides."""
    return [
        x
        for x in dict.fromkeys(candidates)
        if (is_whole(then.get(x)) or is_whole(other.get(x)))
        and not (then.get(x) is other.get(x) is before.get(x))
    ]


def bring_out(s: State, sides: Sequence[RegionBuilder], span: Span) -> None:
    """All that both sides of a condition compute, in front of it."""
    if not all(is_silent(o) for side in sides for o in side.operations):
        what = "a whole-tensor value that a condition chooses, where its sides do more than that"
        raise Unsupported(span, what, "store it into an array")
    for side in sides:
        s.b.current.operations.extend(side.operations)
        side.operations.clear()


def choose(s: State, condition: Value, then: Node | None, other: Node | None) -> Node:
    """The value behind a condition. One that only one side has is read only if that ran."""
    one = then or other
    assert one is not None
    if then is None or other is None:
        return one
    return node_builders.select(
        s, Filled(condition, BOOL, ()), then, node_builders.cast(s, other, then.dtype)
    )
