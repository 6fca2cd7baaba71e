"""Nodes whose elements along an axis stand at other places: reversed, or behind others.

What is read, is read at those places; what is computed is computed there. Only a tile that was
held is looked up in. Must not know syntax.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.axis_loops import identity
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Held,
    Iota,
    Mapped,
    Node,
    Part,
    Permuted,
    Product,
    Read,
    Reduced,
    Scanned,
    Sorted,
)
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import Span
from tessera_lang.types.dtype import BOOL, F32, INDEX


def at_places(
    s: State, node: Node, axis: int, places: Node, new: Axis, span: Span, most: int | None = None
) -> Node:
    """The node with axis ``axis`` as long as ``new``: its element i is the one at ``places[i]``,
    which is there wherever i is less than the extent of ``new``. ``most``: pairs of an element and
    a place that are compared to look up in what was computed, at most."""
    return _Moved(s, new, span, most).moved(node, axis, places)


def stepped_along(
    s: State, node: Node, axis: int, start: Value, step: int, new: Axis, span: Span
) -> Node:
    """Every ``step``-th element along an axis, from ``start`` on."""
    iota = Iota(0, INDEX, (new,))
    by = node_builders.constant(s, step, INDEX)
    places = node_builders.mapped(s, "mul", (iota, by), INDEX)
    places = node_builders.mapped(s, "add", (places, Filled(start, INDEX, ())), INDEX)
    return at_places(s, node, axis, places, new, span, MOST_COMPARED)


MOST_COMPARED = 1 << 16
"""Pairs of an element of a tile and a place in it that a slice with a step compares."""


def reversed_along(s: State, node: Node, axis: int, span: Span) -> Node:
    a = node.axes[axis]
    last = s.b.arithmetic("sub", a.extent, s.b.number(1))
    places = node_builders.mapped(s, "sub", (Filled(last, INDEX, ()), Iota(0, INDEX, (a,))), INDEX)
    return at_places(s, node, axis, places, a, span)


def one_behind_another(s: State, parts: list[Node], axis: int, new: Axis, span: Span) -> Node:
    """``concat``: element i is that of the part in which it falls."""
    offsets, total = list[Value](), s.b.number(0)
    for part in parts:
        offsets.append(total)
        total = s.b.add(total, part.axes[axis].extent)
    zero, moved = node_builders.constant(s, 0, INDEX), list[Node]()
    for part, offset in zip(parts, offsets, strict=True):
        last = s.b.arithmetic("sub", part.axes[axis].extent, s.b.number(1))
        places = node_builders.mapped(
            s, "sub", (Iota(0, INDEX, (new,)), Filled(offset, INDEX, ())), INDEX
        )
        for name, edge in (("min", Filled(last, INDEX, ())), ("max", zero)):
            places = node_builders.mapped(s, name, (places, edge), INDEX)
        moved.append(at_places(s, part, axis, places, new, span))
    found = moved[-1]
    for part, behind in reversed(list(zip(moved, offsets[1:], strict=False))):
        here = node_builders.compared(
            s, "lt", Iota(axis, INDEX, part.axes), Filled(behind, INDEX, ())
        )
        found = node_builders.select(s, here, part, found)
    return found


@dataclass(slots=True)
class _Moved:
    s: State
    new: Axis
    span: Span
    most: int | None = None
    made: dict[tuple[int, int, int], Node] = field(
        default_factory=dict[tuple[int, int, int], Node]
    )  # what is read twice stays one node
    kept: list[Node] = field(default_factory=list[Node])

    def moved(self, node: Node, axis: int, places: Node) -> Node:
        key = (id(node), axis, id(places))
        if key not in self.made:
            self.kept += (node, places)
            self.made[key] = self._moved(node, axis, places)
        return self.made[key]

    def _moved(self, node: Node, axis: int, places: Node) -> Node:
        s = self.s
        axes = (*node.axes[:axis], self.new, *node.axes[axis + 1 :])
        match node:
            case Filled():
                return replace(node, axes=axes)
            case Iota() if node.along == axis:
                found = self._along(node_builders.cast(s, places, node.dtype), axes, axis)
                return Mapped(lambda v, w: v[0], (found,), node.dtype, axes, self.span)
            case Iota():
                return replace(node, axes=axes)
            case Mapped():
                operands = tuple(self._operand(node, x, axis, places) for x in node.operands)
                return replace(node, operands=operands, axes=axes)
            case Permuted():
                inner = self.moved(node.operand, node.order[axis], places)
                return replace(node, operand=inner, axes=axes)
            case Reduced():
                inner = self.moved(node.operand, axis + (axis >= node.along), places)
                return replace(node, operand=inner, axes=axes)
            case Scanned() | Sorted() if node.along != axis:
                return replace(node, operand=self.moved(node.operand, axis, places), axes=axes)
            case Product():
                return self._product(node, axis, places, axes)
            case Part() if axis in node.along:
                i = node.along.index(axis)
                start = Filled(node.starts[i], INDEX, ())
                there = node_builders.mapped(s, "add", (places, start), INDEX)
                starts = (*node.starts[:i], s.b.number(0), *node.starts[i + 1 :])
                inner = self.moved(node.operand, i, there)
                return replace(node, operand=inner, starts=starts, axes=axes)
            case Part():
                return Mapped(lambda v, w: v[0], (node,), node.dtype, axes, self.span)
            case Read() if not (node.rooms and node.rooms[axis] is not None):
                return self._read(node, axis, places, axes)
            case _:
                return self._looked_up(node, axis, places, axes)

    def _along(self, places: Node, axes: tuple[Axis, ...], axis: int) -> Node:
        one = Axis(self.s.b.number(1), 1)
        shape = tuple(a if i == axis else one for i, a in enumerate(axes))
        return node_builders.with_axes(self.s, places, shape, (axis,))

    def _operand(self, node: Node, x: Node, axis: int, places: Node) -> Node:
        """An operand whose axis is stretched is the same everywhere."""
        mine = axis - (len(node.axes) - len(x.axes))
        if mine < 0 or (x.axes[mine].capacity == 1 and node.axes[axis].capacity != 1):
            return x
        return self.moved(x, mine, places)

    def _product(self, node: Product, axis: int, places: Node, axes: tuple[Axis, ...]) -> Node:
        a, b, last = node.a, node.b, len(node.axes) - 1
        if axis != last:
            a = self._operand(node, a, axis, places)
        if axis != last - 1:
            b = self._operand(node, b, axis, places)
        return replace(node, a=a, b=b, axes=axes)

    def _read(self, node: Read, axis: int, places: Node, axes: tuple[Axis, ...]) -> Node:
        s, dim = self.s, node.dims[axis]
        numbers = list(node.numbers) or [None] * len(node.starts)
        known = numbers[dim]
        if known is not None:
            numbers[dim] = self.moved(known, 0, places)
            return replace(node, numbers=tuple(numbers), axes=axes)
        step, start = node.steps[axis], Filled(node.starts[dim], INDEX, ())
        if step != 1:
            by = node_builders.constant(s, step, INDEX)
            places = node_builders.mapped(s, "mul", (places, by), INDEX)
        numbers[dim] = node_builders.mapped(s, "add", (places, start), INDEX)
        return replace(node, numbers=tuple(numbers), axes=axes, staging=None)

    def _looked_up(self, node: Node, axis: int, places: Node, axes: tuple[Axis, ...]) -> Node:
        """A held tile: of each line the greatest of what stands at the place, and nothing else."""
        s, b = self.s, self.s.b
        pairs = prod(a.capacity or 1 for a in (*node.axes, self.new))
        open_ = any(a.capacity is None for a in node.axes)
        if open_ or (self.most is not None and pairs > self.most):
            kept = s.keep(node, self.span)
            if kept is not None:
                return self.moved(kept, axis, places)
        if open_:
            raise Unsupported(self.span, "this of a tile whose size is not known at compile time",
                              "store it into an array, and take that")  # fmt: skip
        if self.most is not None and pairs > self.most:
            raise Unsupported(
                self.span, f"steps in a slice of a tile that is computed as a whole, of {pairs}"
                f" pairs of an element and a place ({self.most} are the most)",
                "store it into an array, and take the slice of that",
            )  # fmt: skip
        held: Node = s.demand.held(node) if not isinstance(node, Held) else node
        narrow = node.dtype.is_float and node.dtype.bits < 32
        held = node_builders.cast(s, held, F32) if narrow else held
        one = Axis(b.number(1), 1)
        rank, line = len(node.axes), node.axes[axis]
        wide = (*node.axes[:axis], one, *node.axes[axis:])
        own = node_builders.with_axes(s, held, wide, [i + (i >= axis) for i in range(rank)])
        shape = tuple(self.new if i == axis else one for i in range(rank + 1))
        wanted = node_builders.with_axes(s, places, shape, (axis,))
        met = (*shape[: axis + 1], line, *shape[axis + 2 :])
        here = node_builders.compared(s, "eq", Iota(axis + 1, INDEX, met), wanted)
        kind = "any" if node.dtype == BOOL else "max"
        nothing = Filled(identity(b, kind, held.dtype), held.dtype, ())
        chosen = node_builders.select(s, here, own, nothing)
        found: Node = Reduced(kind, chosen, axis + 1, held.dtype, axes, self.span)
        return node_builders.cast(s, found, node.dtype) if narrow else found
