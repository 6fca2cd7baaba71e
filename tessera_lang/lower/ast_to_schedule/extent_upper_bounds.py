"""The largest that a length can be in any round of the loops around: a size of the launch.

Owns the intervals of index values whose ends are sizes of the launch: of loop variables, and of
what is computed of them. A value whose lengths change from round to round is kept in an array that
is large enough for each of them. Must not know how a value is stored.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Node, Read, walk

Ends = tuple[Value | None, Value | None]
"""The least and the most that a value can be; None where that is not known."""


def room(s: State, node: Node, axis: int) -> Value | None:
    """A size of the launch that the length of an axis never passes; None where none is known."""
    extent = node.axes[axis].extent
    _, most = ends(s, extent)
    if most is None:
        return _of_array(s, node, extent)
    return s.b.arithmetic("max", s.b.number(0), most) if s.b.made_of(most) else most


def _of_array(s: State, node: Node, extent: Value) -> Value | None:
    """The size of an array of which a slice has this length."""
    for read in walk(node):
        if not isinstance(read, Read):
            continue
        for i, (own, dim) in enumerate(zip(read.axes, read.dims, strict=True)):
            size = s.low.sizes[read.view][dim]
            gathered = bool(read.numbers) and read.numbers[dim] is not None
            beyond = bool(read.rooms) and read.rooms[i] is not None
            if own.extent is extent and not gathered and not beyond and _is_of_launch(s, size):
                return size
    return None


def _is_of_launch(s: State, value: Value) -> bool:
    return s.private is not None and s.private.dim(value) is not None


def ends(s: State, value: Value) -> Ends:
    """The interval of an index value, in sizes of the launch."""
    if _is_of_launch(s, value):
        return value, value
    if value in s.below:
        lower, upper = s.below[value]
        (least, _), (_, most) = ends(s, lower), ends(s, upper)
        return least, None if most is None else s.b.arithmetic("sub", most, s.b.number(1))
    made = s.b.made_of(value)
    if made is None:
        return None, None
    operator, left, right = made
    return _combined(s, operator, right, ends(s, left), ends(s, right))


def _combined(s: State, operator: str, right: Value, a: Ends, c: Ends) -> Ends:
    known = s.b.known(right)
    match operator:
        case "add":
            return _both(s, "add", a[0], c[0]), _both(s, "add", a[1], c[1])
        case "sub":
            return _both(s, "sub", a[0], c[1]), _both(s, "sub", a[1], c[0])
        case "mul" | "floordiv" if known is not None and known > 0:
            return _both(s, operator, a[0], right), _both(s, operator, a[1], right)
        case "mod" if known is not None and known > 0:
            return s.b.number(0), s.b.number(known - 1)
        case "max":
            return _either(s, "max", a[0], c[0]), _both(s, "max", a[1], c[1])
        case "min":
            return _both(s, "min", a[0], c[0]), _either(s, "min", a[1], c[1])
        case _:
            return None, None


def _both(s: State, operator: str, a: Value | None, c: Value | None) -> Value | None:
    return None if a is None or c is None else s.b.arithmetic(operator, a, c)


def _either(s: State, operator: str, a: Value | None, c: Value | None) -> Value | None:
    return _both(s, operator, a, c) or a or c
