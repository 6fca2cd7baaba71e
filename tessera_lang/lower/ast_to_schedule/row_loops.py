"""A whole-array value that needs its rows several times, as a loop over rows that are held.

``y[...] = x / op.sum(x, axis=1)[:, None]`` needs each row for its sum, and again for what is
stored. Where the axis has room, a row is the tile that ``x[i, :]`` in a loop would be, read once;
the schedule decides about it as about any other.

Owns when that is so, and the value of one row as a tree of its own. Must not know machines.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
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
    Read,
    Reduced,
    Window,
    walk,
)
from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema.side_tables import TypedFunction
from tessera_lang.target.tuned_constants import SHORT_ROW

Fixed = tuple[Value | None, ...]
"""The coordinate along each axis of a node; None: all of the row's own axis."""


class _NoRow(Exception):
    """A row of the value needs more than the rows below it."""


@dataclass(slots=True)
class Row:
    """``axis``: the one that is held; ``stored``: whether a place has it, or only a number for
    each row."""

    s: State
    root: Node
    axis: Axis
    stored: bool

    def windows(self) -> tuple[Window, ...]:
        assert self.axis.capacity is not None
        return (Window(self.s.b.number(0), self.axis.capacity, self.axis.extent),) * self.stored

    def value(self, at: tuple[Value, ...]) -> Node | None:
        """The row at ``at``; None where it is not made of rows."""
        try:
            return _Rows(self.s, self.axis).row(self.root, (*at, *(None,) * self.stored))
        except _NoRow:
            return None


def row_of(s: State, place: Read, root: Node) -> Row | None:
    """How to store a value row by row, where rows are needed several times and have room."""
    rank = len(place.axes)
    plain = place.dims == tuple(range(rank)) and place.steps == (1,) * rank
    if not plain or any(a.capacity is not None for a in (*place.axes, *root.axes)):
        return None
    reductions = [n for n in walk(root) if isinstance(n, Reduced)]
    if not reductions or says_loops(s.typed):
        return None
    room = _room(s, root.axes[-1].extent)
    if room is not None and rank > 1:
        return Row(s, root, room, stored=True)
    for n in reductions:
        room = _room(s, n.operand.axes[n.along].extent)
        if room is not None and any(isinstance(x, Reduced) for x in walk(n.operand)):
            return Row(s, root, room, stored=False)
    return None


def _room(s: State, extent: Value) -> Axis | None:
    """Of a row that is long, or that fills its room: of a shorter one most lanes would have
    nothing."""
    found = s.rooms.get(extent)
    if found is None or found.capacity is None:
        return None
    full = s.b.known(found.extent) == found.capacity
    return found if full or found.capacity > SHORT_ROW else None


def says_loops(typed: TypedFunction) -> bool:
    """Whether the user says how an axis is cut, or how the loops over its parts run."""
    directives = typed.tile.directives if typed.tile is not None else ()
    return any(d.name in ("tile", "pipeline_stages") for d in directives)


@dataclass(slots=True)
class _Rows:
    """``axis``: the row's own. ``once``: rows of arrays and what they are converted to, one for
    all that name it."""

    s: State
    axis: Axis
    made: dict[tuple[int, Fixed], Node] = field(default_factory=dict[tuple[int, Fixed], Node])
    once: dict[tuple[object, ...], Node] = field(default_factory=dict[tuple[object, ...], Node])

    def row(self, node: Node, at: Fixed) -> Node:
        key = (id(node), at)
        if key not in self.made:
            self.made[key] = self._row(node, at)
        return self.made[key]

    def _axes(self, node: Node, at: Fixed) -> tuple[Axis, ...]:
        """The row's own, of what is not the same all along it."""
        kept = [a for a, fixed in zip(node.axes, at, strict=True) if fixed is None]
        if any(self.s.rooms.get(a.extent) != self.axis for a in kept):
            raise _NoRow
        return (self.axis,) * len(kept)

    def _row(self, node: Node, at: Fixed) -> Node:
        axes = self._axes(node, at)
        match node:
            case Filled():
                return replace(node, axes=axes)
            case Held() if not node.axes:
                return node
            case Iota():
                return self._iota(node, at, axes)
            case Read():
                return self._read(node, at, axes)
            case Mapped():
                operands = tuple([self.row(x, _aligned(self.s, x, at)) for x in node.operands])
                made = replace(node, operands=operands, axes=axes)
                cast = ("cast", *map(id, operands), node.dtype)
                return self.once.setdefault(cast, made) if node.kind == "cast" else made
            case Reduced():
                inner = (*at[: node.along], None, *at[node.along :])
                if not at or len(inner) != 1 + inner.index(None):
                    raise _NoRow  # the same for all rows, or along another axis
                return replace(node, operand=self.row(node.operand, inner), along=0, axes=axes)
            case Permuted():
                order = sorted(range(len(at)), key=lambda i: node.order[i])
                return self.row(node.operand, tuple([at[i] for i in order]))
            case Part():
                return self._part(node, at)
            case _:
                raise _NoRow

    def _iota(self, node: Iota, at: Fixed, axes: tuple[Axis, ...]) -> Node:
        fixed = at[node.along]
        if fixed is None:
            return replace(node, along=0, axes=axes)
        return Filled(self.s.b.cast(fixed, node.dtype), node.dtype, axes)

    def _read(self, node: Read, at: Fixed, axes: tuple[Axis, ...]) -> Node:
        if node.rooms or any(n is not None for n in node.numbers):
            raise _NoRow
        b, starts = self.s.b, list(node.starts)
        for dim, step, fixed in zip(node.dims, node.steps, at, strict=True):
            if fixed is not None:
                starts[dim] = b.add(starts[dim], b.arithmetic("mul", fixed, b.number(step)))
        kept = [i for i, fixed in enumerate(at) if fixed is None]
        if any(node.dims[i] != len(starts) - 1 for i in kept):
            raise _NoRow  # it lies across memory: tiles of several rows touch whole lines
        steps = tuple([node.steps[i] for i in kept])
        key = (node.view, *starts, steps, node.version, node.inside, node.staging)
        return self.once.setdefault(key, replace(
            node, starts=tuple(starts), dims=tuple([node.dims[i] for i in kept]), steps=steps,
            axes=axes,
        ))  # fmt: skip

    def _part(self, node: Part, at: Fixed) -> Node:
        """The row of the operand at the coordinates there; a new axis of one element is none."""
        b = self.s.b
        inner: list[Value | None] = []
        for start, along in zip(node.starts, node.along, strict=True):
            fixed = b.number(0) if along is None else at[along]
            if fixed is None and b.known(start) != 0:
                raise _NoRow
            inner.append(None if fixed is None else b.add(start, fixed))
        return self.row(node.operand, tuple(inner))


def _aligned(s: State, node: Node, at: Fixed) -> Fixed:
    """The coordinates of an operand, whose axes are the last; an axis of one element is stretched,
    and has but that."""
    mine = at[len(at) - len(node.axes) :]
    first = s.b.number(0)
    return tuple([
        first if a.capacity == 1 else fixed for a, fixed in zip(node.axes, mine, strict=True)
    ])  # fmt: skip
