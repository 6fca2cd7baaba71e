"""The number of the step of a loop that is traced once, and what it chooses of arrays.

An array from outside of the loop hands each step its own part: it is an operand that is sliced.
Owns what numbers follow from the step alone, and which places they are. Must not know statements.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, cast

from tessera_lang.ir.core import Attribute, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, not_here
from tessera_lang.record import dataclass, field
from tessera_lang.target.host_world import Index
from tessera_lang.types.dtype import I64


class Traces(Protocol):
    """What is needed of a graph's world."""

    builder: GraphBuilder
    function_builder: GraphBuilder
    frames: list[Frame]

    def op(self, name: str, *operands: Value, **attributes: Attribute) -> Value: ...
    def lifted(self, array: object) -> Value: ...
    def number(self, value: Value) -> GraphNumber: ...
    def is_of_numbers(self, array: object) -> bool: ...
    def read(self, array: object, items: tuple[Index, ...]) -> object: ...


@dataclass(slots=True, eq=False)
class Frame:
    """A region that is being traced, and its arguments. ``steps``: of a loop of known length;
    ``sliced``: what is outside of it, and the argument that is its part for a step."""

    builder: GraphBuilder
    arguments: set[Value] = field(default_factory=set[Value])
    steps: int | None = None
    sliced: list[tuple[Value, Value]] = field(default_factory=lambda: list[tuple[Value, Value]]())

    def part_of(self, value: Value) -> Value:
        """The part for a step of a value from outside."""
        for known, argument in self.sliced:
            if known is value:
                return argument
        t = value.tensor_type
        argument = Value(type(t)(t.dtype, t.shape[1:]), "row")
        self.sliced.append((value, argument))
        self.arguments.add(argument)
        return argument


@contextmanager
def inside(world: Traces, frame: Frame) -> Generator[None]:
    """Builds in a region."""
    outer, world.builder = world.builder, frame.builder
    frame.builder.span = outer.span
    world.frames.append(frame)
    try:
        yield
    finally:
        world.frames.pop()
        world.builder = outer


@dataclass(frozen=True, slots=True, eq=False)
class Counter(GraphNumber):
    """A number that follows from the number of the step of a ``loop`` alone, and is known where
    that is: ``scale`` times the step and ``offset``, None where it is not of that form."""

    loop: object = None
    scale: int | None = None
    offset: int = 0


_KEPT = ("+", "-", "*", "/", "//", "%", "min", "max")


def counted_too(operator: str, a: object, b: object, found: object) -> object:
    """``found``, which is ``a operator b`` of two numbers that are known in each step. Raises
    WorldFault for what is decided by it, or may be too great for 64 bits."""
    one = a if isinstance(a, Counter) else cast("Counter", b)
    if operator not in _KEPT or not isinstance(found, GraphNumber):
        raise not_here(f"`{operator}` of the number of a step")
    scale, offset = None, 0
    left, right = _affine(a), _affine(b)
    if left is not None and right is not None:
        if operator == "+":
            scale, offset = left[0] + right[0], left[1] + right[1]
        elif operator == "-":
            scale, offset = left[0] - right[0], left[1] - right[1]
        elif operator == "*" and not (left[0] and right[0]):
            scale = left[0] * right[1] + right[0] * left[1]
            offset = left[1] * right[1]
    same = isinstance(a, Counter) and isinstance(b, Counter) and a.loop is not b.loop
    return Counter(found.value, found.double, one.loop, None if same else scale, offset)


def is_known(number: object) -> bool:
    """Whether a number is known in each step of a loop."""
    return isinstance(number, Counter | bool | int | float) and not isinstance(number, bool)


def _affine(number: object) -> tuple[int, int] | None:
    if isinstance(number, Counter):
        return None if number.scale is None else (number.scale, number.offset)
    return (0, number) if isinstance(number, int) else None


def part_at_step(world: Traces, array: object, items: tuple[Index, ...]) -> object:
    """``array[items]``, where an item is the number of a step. Raises WorldFault."""
    level = max(_level(world, i) for i in items)
    frame = world.frames[level]
    at = next(n for n, i in enumerate(items) if isinstance(i, Counter) and i.loop is frame)
    counter = cast("Counter", cast("object", items[at]))
    if world.is_of_numbers(array):
        raise not_here("the part of a step of an array of a dtype that is not known yet")
    value = world.lifted(array)
    rest = (*items[:at], slice(None), *items[at + 1 :])
    axis = sum(i is None or isinstance(i, slice) for i in items[:at])
    own = sum(i is not None for i in items[:at])
    if own >= value.tensor_type.rank:
        raise not_here(f"{own + 1} indices")
    places = _places(counter, frame, value.tensor_type.shape[own])
    made_inside = any(
        f.builder.origin(value) is not None or value in f.arguments for f in world.frames[level:]
    )
    if made_inside:
        part = _rest(world, array, rest)
        return _result(world, _taken(world, part, counter, axis))
    depth = world.frames[level:]
    builder = world.builder
    del world.frames[level:]
    world.builder = world.frames[-1].builder if world.frames else world.function_builder
    try:
        part = _rest(world, array, rest)
        rank = part.tensor_type.rank
        part = world.builder.transpose(part, (axis, *(a for a in range(rank) if a != axis)))
        part = _along(world, part, places)
    finally:
        world.frames.extend(depth)
        world.builder = builder
    return _result(world, frame.part_of(part))


def _level(world: Traces, item: object) -> int:
    """The place of the loop of an index among the regions around; -1 of another index."""
    if not isinstance(item, Counter):
        if isinstance(item, GraphNumber):
            raise not_here("an element at a place that data say", "use `op.take`")
        return -1
    levels = [n for n, f in enumerate(world.frames) if f is item.loop]
    if not levels:
        raise not_here("the number of a step outside of its loop")
    return levels[0]


def _places(counter: Counter, frame: Frame, n: object) -> range:
    if counter.scale is None or not isinstance(n, int) or frame.steps is None or not counter.scale:
        raise not_here("an element at a place that follows from the number of a step in this way")
    last = counter.offset + counter.scale * (frame.steps - 1)
    low, high = min(counter.offset, last), max(counter.offset, last)
    if not (0 <= low <= high < n or -n <= low <= high < 0):
        raise not_here("an element that is not there in each step")
    first = counter.offset % n
    return range(first, first + counter.scale * frame.steps, counter.scale)


def _rest(world: Traces, array: object, items: tuple[Index, ...]) -> Value:
    own = array if isinstance(array, GraphArray) else GraphArray(world.lifted(array))
    return world.lifted(world.read(own, items))


def _along(world: Traces, value: Value, places: range) -> Value:
    """The rows at places."""
    stop = places.stop if places.step > 0 else places[-1] - 1
    part = slice(places.start, stop if stop >= 0 else None, places.step)
    if places == range(cast("int", value.tensor_type.shape[0])):
        return value
    return world.lifted(world.read(GraphArray(value), (part,)))


def _taken(world: Traces, value: Value, counter: Counter, axis: int) -> Value:
    """The part of a value that the loop makes, or carries."""
    b, n = world.builder, cast("int", value.tensor_type.shape[axis])
    place = b.reshape(b.cast(counter.value, I64), (1,))
    if counter.offset < 0:
        place = b.plus(place, n)
    shape = value.tensor_type.shape
    return b.reshape(world.op("take", value, place, axis=axis), (*shape[:axis], *shape[axis + 1 :]))


def _result(world: Traces, value: Value) -> object:
    return GraphArray(value, is_slice=True) if value.tensor_type.rank else world.number(value)
