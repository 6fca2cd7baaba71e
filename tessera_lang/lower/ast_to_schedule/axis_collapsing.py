"""Axes that lie together in memory become one: a smaller rank, longer rows, one loop.

A sum over all of ``x[i, :, :, :]`` goes along one axis of ``x`` seen with fewer axes, and so does
an element-wise store. That holds where every array below has both axes as neighbours, the inner one
whole, and lies row by row; what is the same along both stays so. Vectors, rows and loops are
decided for the longer axis: nothing is padded along each of several short ones.

Owns when that is so, and the nodes with fewer axes. Must not know machines.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.row_loops import says_loops
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import (
    Axis,
    Filled,
    Iota,
    Mapped,
    Node,
    Part,
    Permuted,
    Read,
    Reduced,
    operands_of,
    with_operands,
)
from tessera_lang.record import dataclass, field, replace

_ONE_AFTER_THE_OTHER = ("add", "mul", "max", "min", "any", "all")
"""Reductions over two axes that are one over both together."""


def with_merged_sums(s: State, root: Node) -> Node:
    """The value in which a reduction over neighbouring axes is one over an axis, where it can."""
    if says_loops(s.typed):
        return root
    merging = _Merging(s)
    made: dict[int, Node] = {}
    kept: list[Node] = []  # so that an id stays one node's

    def visit(node: Node) -> Node:
        if id(node) not in made:
            kept.append(node)
            made[id(node)] = merging.sum(_with(node, [visit(x) for x in operands_of(node)]))
        return made[id(node)]

    return visit(root)


def _with(node: Node, parts: list[Node]) -> Node:
    same = all(a is b for a, b in zip(parts, operands_of(node), strict=True))
    return node if same or isinstance(node, Read) else with_operands(node, parts)


def merged_store(s: State, place: Read, root: Node) -> tuple[Read, Node]:
    """A place and the value for it, with as few axes as they can have."""
    if says_loops(s.typed):
        return place, root
    merging = _Merging(s)
    for i in reversed(range(len(root.axes) - 1)):
        if root.axes[i].capacity is not None or root.axes[i + 1].capacity is not None:
            continue
        place = replace(place, axes=root.axes)
        ways = dict(s.ways)
        to, value = merging.one(place, i), merging.one(root, i)
        if isinstance(to, Read) and value is not None:
            place, root = to, value
        else:
            s.ways = ways  # nothing is seen so
    return place, root


@dataclass(slots=True, eq=False)
class _Merging:
    s: State
    made: dict[tuple[int, int], Node | None] = field(
        default_factory=dict["tuple[int, int]", "Node | None"]
    )
    kept: list[Node] = field(default_factory=list["Node"])  # so that an id stays one node's

    def sum(self, node: Node) -> Node:
        """A reduction of a reduction over the next axis as one, where that can be."""
        if not isinstance(node, Reduced) or not isinstance(node.operand, Reduced):
            return node
        inner = node.operand
        if node.kind != inner.kind or node.kind not in _ONE_AFTER_THE_OTHER:
            return node
        first = min(node.along, inner.along)
        both = {node.along + (node.along >= inner.along), inner.along}
        if both != {first, first + 1} or node.dtype != inner.dtype:
            return node
        if any(inner.operand.axes[i].capacity is not None for i in both):
            return node
        ways = dict(self.s.ways)
        found = self.one(inner.operand, first)
        if found is None:
            self.s.ways = ways  # nothing is seen so
        return node if found is None else replace(node, operand=found, along=first)

    def one(self, node: Node, i: int) -> Node | None:
        """The node whose axes ``i`` and ``i + 1`` are one; None where that cannot be."""
        key = id(node), i
        if key not in self.made:
            self.kept.append(node)
            self.made[key] = self._one(node, i)
        return self.made[key]

    def _axes(self, axes: tuple[Axis, ...], i: int) -> tuple[Axis, ...] | None:
        a, b = axes[i], axes[i + 1]
        if a.capacity == b.capacity == 1:
            return (*axes[:i], a, *axes[i + 2 :])
        if a.capacity is not None or b.capacity is not None:
            return None
        both = Axis(self.s.b.arithmetic("mul", a.extent, b.extent), None)
        return (*axes[:i], both, *axes[i + 2 :])

    def _one(self, node: Node, i: int) -> Node | None:
        axes = self._axes(node.axes, i)
        if axes is None:
            return None
        match node:
            case Filled():
                return replace(node, axes=axes)
            case Iota() if node.along not in (i, i + 1):
                return replace(node, along=node.along - (node.along > i), axes=axes)
            case Read():
                return self._read(node, i, axes)
            case Mapped():
                return self._mapped(node, i, axes)
            case Reduced():
                return self._reduced(node, i, axes)
            case Permuted() if node.order[i + 1] == node.order[i] + 1:
                return self._permuted(node, i, axes)
            case Part():
                return self._part(node, i, axes)
            case _:
                return None

    # --- what is made of others -----------------------------------------------------------------

    def _mapped(self, node: Mapped, i: int, axes: tuple[Axis, ...]) -> Node | None:
        operands: list[Node] = []
        for operand in node.operands:
            at = i - (len(node.axes) - len(operand.axes))
            if at < 0 and (at < -1 or operand.axes[0].capacity == 1 or not operand.axes):
                operands.append(operand)  # the same along both
                continue
            found = self.one(operand, at) if at >= 0 else None
            if found is None or found.axes[at].capacity != (
                1 if operand.axes[at].capacity == 1 else None
            ):
                return None
            operands.append(found)
        return replace(node, operands=tuple(operands), axes=axes)

    def _reduced(self, node: Reduced, i: int, axes: tuple[Axis, ...]) -> Node | None:
        if node.along == i + 1:
            return None  # it lies between them
        at = i if i < node.along else i + 1
        found = self.one(node.operand, at)
        along = node.along - (node.along > i)
        return None if found is None else replace(node, operand=found, along=along, axes=axes)

    def _permuted(self, node: Permuted, i: int, axes: tuple[Axis, ...]) -> Node | None:
        at = node.order[i]
        found = self.one(node.operand, at)
        order = tuple(n - (n > at) for j, n in enumerate(node.order) if j != i + 1)
        return None if found is None else replace(node, operand=found, order=order, axes=axes)

    def _part(self, node: Part, i: int, axes: tuple[Axis, ...]) -> Node | None:
        """New axes of one element are one; those of the operand where the inner one is whole."""
        outer = [k for k, a in enumerate(node.along) if a == i]
        inner = [k for k, a in enumerate(node.along) if a == i + 1]
        later = tuple(a if a is None or a <= i else a - 1 for a in node.along)
        if not outer and not inner:
            return replace(node, along=later, axes=axes)
        if len(outer) != 1 or len(inner) != 1 or inner[0] != outer[0] + 1:
            return None
        (at,) = outer
        b = self.s.b
        old = node.operand.axes[at + 1]
        if b.known(node.starts[at + 1]) != 0 or not self._same(old.extent, node.axes[i + 1].extent):
            return None
        found = self.one(node.operand, at)
        if found is None:
            return None
        start = self._times(node.starts[at], old.extent)
        starts = (*node.starts[:at], start, *node.starts[at + 2 :])
        along = (*later[: at + 1], *later[at + 2 :])
        return replace(node, operand=found, starts=starts, along=along, axes=axes)

    # --- arrays ---------------------------------------------------------------------------------

    def _times(self, start: Value, inner: Value) -> Value:
        """Where the outer axis begins, counted in elements of the inner one."""
        b = self.s.b
        return b.number(0) if b.known(start) == 0 else b.arithmetic("mul", start, inner)

    def _same(self, a: Value, b: Value) -> bool:
        known = self.s.number_of(a)
        same = known is not None and known == self.s.number_of(b)
        return same or a is b or self.s.b.apart(a, b) == 0

    def _read(self, node: Read, i: int, axes: tuple[Axis, ...]) -> Node | None:
        b, view = self.s.b, node.view
        dim = node.dims[i]
        plain = node.dims[i + 1] == dim + 1 and node.steps[i] == node.steps[i + 1] == 1
        if not plain or node.staging is not None or node.inside is not None:
            return None
        if any(n is not None for n in node.numbers) or (
            node.rooms and node.rooms[i + 1] is not None
        ):
            return None
        sizes = self.s.low.sizes[view]
        whole = b.known(node.starts[dim + 1]) == 0 and self._same(
            node.axes[i + 1].extent, sizes[dim + 1]
        )
        if not whole or not view.view_type.contiguous:
            return None
        seen = self.s.merged_view(view, dim)
        if seen is None:
            return None
        inner = sizes[dim + 1]
        start = self._times(node.starts[dim], inner)
        dims = tuple(d - (d > dim) for j, d in enumerate(node.dims) if j != i + 1)
        rooms = node.rooms
        if rooms:
            room = rooms[i]
            more = None if room is None else b.arithmetic("mul", room, inner)
            rooms = (*rooms[:i], more, *rooms[i + 2 :])
        return replace(
            node, view=seen, starts=(*node.starts[:dim], start, *node.starts[dim + 2 :]),
            dims=dims, steps=(*node.steps[:i], *node.steps[i + 1 :]), axes=axes,
            numbers=(), rooms=rooms,
        )  # fmt: skip
