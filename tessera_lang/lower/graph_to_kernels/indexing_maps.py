"""How a fused loop takes the axes of a value, and which of the value's parts are the same for it.

Owns the windows and how they move through operators that move no element. Must not know how a part
is written.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.operators import operator_of
from tessera_lang.record import dataclass

ROWS, STREAM, INNER, COLUMNS = "i", "j", "d", "e"
"""Labels of axes of tiles, in their order: rows of the result, what the loop goes along, what a
product inside of it contracts, and columns of the result."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of an axis. ``label``: which axis of a tile it is, "" for a single element.
    ``index``: how it is spelt. ``capacity``: elements of the tile; 0: all, or one."""

    label: str
    index: str
    capacity: int = 0


ONE = Window("", "0")
"""The element of an axis that has but one."""


def whole(label: str) -> Window:
    return Window(label, ":")


Windows = tuple[Window, ...]


def labels_of(windows: Windows) -> tuple[str, ...]:
    """Axes of the tile that the windows give, in the order of tiles."""
    order = (ROWS, STREAM, INNER, COLUMNS)
    return tuple(sorted((w.label for w in windows if w.label), key=order.index))


def sizes_of(value: Value) -> tuple[int, ...]:
    """The shape of a value whose sizes are numbers."""
    return cast("tuple[int, ...]", value.tensor_type.shape)


def adds_or_drops_units(operation: Operation) -> bool:
    """Whether a reshape only adds or drops axes of one element."""
    if operation.name != "graph.reshape":
        return False
    have, wanted = sizes_of(operation.operands[0]), sizes_of(operation.result)
    return [n for n in have if n != 1] == [n for n in wanted if n != 1]


def moved(operation: Operation, windows: Windows) -> Windows | None:
    """The windows of the operand of a broadcast, a transpose, or a reshape by axes of one element;
    None of another operator."""
    (source, *_) = operation.operands or (None,)
    if source is None:
        return None
    sizes = sizes_of(source)
    if operation.name == "graph.transpose":
        axes = operation.integers("axes")
        return tuple(windows[axes.index(i)] for i in range(len(axes)))
    if operation.name == "graph.broadcast":
        wanted = sizes_of(operation.result)
        return tuple(ONE if n != m else w for n, m, w in zip(sizes, wanted, windows, strict=True))
    if adds_or_drops_units(operation):
        wanted = sizes_of(operation.result)
        left = iter(w for w, n in zip(windows, wanted, strict=True) if n != 1)
        return tuple(ONE if n == 1 else next(left) for n in sizes)
    return None


def is_elementwise(operation: Operation) -> bool:
    return operator_of(operation).elementwise


def covers(windows: Windows, of: Windows) -> bool:
    """Whether each row is stored by one iteration of the loops over rows."""
    return {w.index for w in windows if is_loop(w)} == {w.index for w in of if is_loop(w)}


def is_loop(window: Window) -> bool:
    return window.index.startswith(("i", "b"))


def space_of(value: Value, windows: Windows) -> list[tuple[str, int]]:
    """The loops over rows, with the sizes of what they go over."""
    sizes = zip(windows, sizes_of(value), strict=True)
    return [(w.index, n) for w, n in sizes if is_loop(w)]


def moves_nothing(operation: Operation) -> bool:
    """Whether an operator only names the elements of its operand otherwise."""
    return moved(operation, (ONE,) * operation.result.tensor_type.rank) is not None
