"""Several axes as one: numbers of combinations, and the variables of a combination."""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.schedule_to_lanes.state import Lowering

Bounds = list[tuple[Value, Value, Value]]
"""Lower and upper bound and step of each axis."""


def trip_count(s: Lowering, lower: Value, upper: Value, step: Value) -> Value:
    """How often a loop of a positive step runs."""
    b = s.b
    gap = b.binary("sub", b.binary("add", upper, step), b.binary("add", lower, s.index(1)))
    return b.binary("max", b.binary("floordiv", gap, step), s.index(0))


def unflattened(
    s: Lowering, number: Value, axes: Sequence[int], bounds: Bounds, counts: Sequence[Value]
) -> dict[int, Value]:
    """The variables of the axes in combination ``number``, the last axis fastest."""
    found: dict[int, Value] = {}
    for axis, (lower, _, step), count in reversed(list(zip(axes, bounds, counts, strict=True))):
        digit = number
        if axis != axes[0]:
            digit = s.b.binary("mod", number, count)
            number = s.b.binary("floordiv", number, count)
        found[axis] = s.add(lower, s.b.binary("mul", digit, step))
    return found
