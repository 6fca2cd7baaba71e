"""Which of the last two axes of a tile goes inside the loop over its elements.

An array without gaps is read along its last axis. Where the strides are known at the launch only,
they are compared then: the axis whose neighbours lie closer together in memory goes inside.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile
from tessera_lang.lower.schedule_to_lanes.elements import dims_of
from tessera_lang.lower.schedule_to_lanes.state import Lowering, view_type

Axes = tuple[int, int]


def interchanged(s: Lowering, value: Value, store: Operation | None = None) -> Value | None:
    """Whether the last axis but one of ``value`` should go inside; None where it should not.

    The first strided array that is read decides, else the one that ``store`` writes."""
    if s.lanes > 1 or not is_tile(value):
        return None
    rank = len(getattr(value.type, "shape", ()))
    if rank < 2:
        return None
    found = _read(s, value, (rank - 2, rank - 1), set())
    if found is None and store is not None:
        found = _compared(s, store, store.operands[1], (rank - 2, rank - 1))
    return found


def _read(
    s: Lowering, value: Value, axes: Axes, seen: set[tuple[Value, Axes]]
) -> Value | None:  # fmt: skip
    """The comparison for the first strided array behind ``value``, along these axes of it; what
    was seen has none."""
    op = s.source.definition.get(value)
    if value in s.stored or op is None or (value, axes) in seen:
        return None
    seen.add((value, axes))
    match op.name.removeprefix(PREFIX):
        case "load":
            return _compared(s, op, op.operands[0], axes)
        case "transpose":
            permutation = op.integers("permutation")
            first, second = permutation[axes[0]], permutation[axes[1]]
            assert isinstance(first, int) and isinstance(second, int)
            return _read(s, op.operands[0], (first, second), seen)
        case "expand" | "broadcast" | "extract" | "gather":
            return None
        case _:
            for operand in op.operands:
                found = _read(s, operand, axes, seen) if is_tile(operand) else None
                if found is not None:
                    return found
            return None


def _compared(s: Lowering, op: Operation, view: Value, axes: Axes) -> Value | None:
    definition = s.source.definition.get(view)
    if definition is None or definition.name != "tile.view" or view_type(view).contiguous:
        return None
    rank = len(view_type(view).shape)
    dims = dims_of(op)
    first, second = (
        s.b.unary("abs", s.scalar(definition.operands[1 + rank + dims[axis]])) for axis in axes
    )
    return s.b.cmp("lt", first, second)
