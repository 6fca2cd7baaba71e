"""Parts of arrays of a graph: what indices and slices choose, and arrays with other parts.

Owns where a part begins and ends. Must not know what an array shares memory with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.ir.core import Attribute, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.lower.ast_to_graph.values import BY_VALUE, not_here
from tessera_lang.target.host_world import Index, WorldFault
from tessera_lang.types.shape import Dim


class Builds(Protocol):
    """What is needed of a graph's world."""

    builder: GraphBuilder

    def op(self, name: str, *operands: Value, **attributes: Attribute) -> Value: ...


def chosen(world: Builds, value: Value, items: tuple[Index, ...]) -> Value:
    """The elements that indices and slices choose."""
    part = _part(world, value, [i for i in items if i is not None])
    shape: list[Dim] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        if isinstance(item, slice):
            shape.append(part.tensor_type.shape[axis])
        axis += 1
    return world.builder.reshape(part, (*shape, *part.tensor_type.shape[axis:]))


def with_part(world: Builds, value: Value, part: Value, axes: Sequence[object]) -> Value:
    """A value with another part in the place of the elements that are chosen."""
    places: list[tuple[int, int, int]] = []
    shape = value.tensor_type.shape
    for axis, n in enumerate(shape):
        item = axes[axis] if axis < len(axes) else slice(None)
        if isinstance(item, slice):
            limits = cast("slice[int, int, int]", item)
            if (limits.start, limits.stop, limits.step) in _ALL:
                continue
        if not isinstance(n, int):
            raise not_here("a part of an axis whose size is a name")
        if isinstance(item, slice):
            first, stop, step = cast("slice[int, int, int]", item).indices(n)
            if step != 1:
                raise not_here("writing every other element of an array", BY_VALUE)
            places.append((axis, first, max(first, stop)))
        else:
            first = _place(item, n, axis)
            places.append((axis, first, first + 1))
    return _put(world, value, part, places)


def _put(world: Builds, value: Value, part: Value, places: Sequence[tuple[int, int, int]]) -> Value:
    """A value with a part at places of axes, each with where it begins and ends."""
    shape = value.tensor_type.shape
    if not places:
        return world.builder.reshape(part, shape)
    (axis, first, stop), *rest = places
    limits = ((0, first), (first, stop), (stop, cast("int", shape[axis])))
    before, own, behind = (_along(world, value, axis, *pair) for pair in limits)
    parts = [v for v, (a, b) in ((before, limits[0]), (_put(world, own, part, rest), limits[1]),
                                 (behind, limits[2])) if a < b]  # fmt: skip
    return world.op("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def _along(world: Builds, value: Value, axis: int, first: int, stop: int) -> Value:
    items = (*(slice(None),) * axis, slice(first, stop))
    return _part(world, value, items)


def _part(world: Builds, value: Value, axes: Sequence[object]) -> Value:
    """The elements that indices and slices choose, with every axis."""
    shape = value.tensor_type.shape
    starts, stops, steps = [0] * len(shape), [*shape], [1] * len(shape)
    turned: list[int] = []
    for axis, item in enumerate(axes):
        n = shape[axis]
        part = cast("slice[object, object, object]", item) if isinstance(item, slice) else None
        if part is not None and (part.start, part.stop, part.step) in _ALL:
            continue
        if not isinstance(n, int):
            raise not_here("a part of an axis whose size is a name")
        if isinstance(item, slice):
            first, stop, step = cast("slice[int, int, int]", item).indices(n)
            count = len(range(first, stop, step))
            if step < 0:
                turned.append(axis)
                first, step = first + (count - 1) * step, -step
            starts[axis], steps[axis] = (first, step) if count else (0, 1)
            stops[axis] = starts[axis] + (count - 1) * step + 1 if count else 0
        else:
            starts[axis] = _place(item, n, axis)
            stops[axis] = starts[axis] + 1
    if starts != [0] * len(shape) or stops != [*shape] or steps != [1] * len(shape):
        if not all(isinstance(n, int) for n in stops):
            raise not_here("a part of an array that has an axis whose size is a name")
        value = world.op("slice", value, starts=tuple(starts), stops=cast("tuple[int, ...]",
                        tuple(stops)), steps=tuple(steps))  # fmt: skip
    return world.op("flip", value, axes=tuple(turned)) if turned else value


_ALL = ((None, None, None), (0, None, None), (None, None, 1), (0, None, 1))


def _place(item: object, n: int, axis: int) -> int:
    if isinstance(item, bool) or not isinstance(item, int):
        raise WorldFault(f"an index is an integer that is known, not {kind_of(item)}",
                         code="T0807")  # fmt: skip
    if not -n <= item < n:
        inside = f"0 to {n - 1} are inside" if n else "it has no element"
        raise WorldFault(f"index {item} along axis {axis}: {inside}", code="T0807")
    return item % n
