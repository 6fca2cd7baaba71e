"""Subscripts: parts of arrays and of tiles, gathers, elements, and places to write.

Owns clipping, and the guard of an index that is not proved to be inside. Must not know what is
done with a part.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.flip_concat_nodes import reversed_along, stepped_along
from tessera_lang.lower.ast_to_schedule.iteration_axes import as_bound
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis, Filled, Node, Part, Read
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.lower.ast_to_tile.expressions import lower_expression
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.array_facts import WHOLE_AXIS
from tessera_lang.types.dtype import INDEX, U64, DType, integer_range
from tessera_lang.types.type import Scalar, Tensor, Tile, TileAxis, Type

MOST_ELEMENTS = WHOLE_AXIS
"""More than this is cut into tiles by the schedule, even where every size is known."""


def room_of(axes: Sequence[Axis]) -> int:
    product = 1
    for axis in axes:
        product *= axis.capacity or 1
    return product


def array(s: State, view: Value, span: Span | None, shown: Type | None = None) -> Read:
    """A whole array as a value; ``shown`` is the tile it is read as."""
    sizes = s.low.sizes[view]
    rank = len(sizes)
    axes = tuple(Axis(n, _room(s, n)) for n in sizes)
    if not isinstance(shown, Tile) or all(a.capacity is None for a in shown.axes):
        axes = tuple(Axis(n, _stretched(s, n)) for n in sizes)
    if room_of(axes) > MOST_ELEMENTS:
        axes = tuple(Axis(n, _stretched(s, n)) for n in sizes)
    zeros = (s.b.number(0),) * len(view.view_type.shape)  # of rank 0 it has one all the same
    return Read(
        view, zeros, tuple(range(rank)), (1,) * rank, view.view_type.dtype, axes, s.version(view),
        span=span,
    )  # fmt: skip


def _stretched(s: State, size: Value) -> int | None:
    """An axis of one element meets longer ones, of which each has that element; none other has
    room of its own."""
    return 1 if s.b.known(size) == 1 else None


def _room(s: State, size: Value) -> int | None:
    """A size that is known is room; a large one is an iteration space all the same."""
    known = s.b.known(size)
    return max(1, known) if known is not None and known <= WHOLE_AXIS else None


def number(s: State, e: ast.Expr) -> Value:
    """An integer of the program as an index."""
    known = s.typed.constants.get(e)
    if isinstance(known, int) and not isinstance(known, bool):
        return s.b.number(known)
    found = s.typed.types.get(e)
    if isinstance(e, ast.Binary) and e.operator in _EXACT and found == Scalar(INDEX):
        return s.b.arithmetic(_EXACT[e.operator], number(s, e.left), number(s, e.right))
    value = lower_expression(s.low, e)
    if not isinstance(value, Value) or not isinstance(value.type, DType):
        raise Unsupported(e.span, "this value as an index")
    if value.type == U64:  # beyond every array stays beyond
        value = s.b.binary("min", value, s.b.constant(integer_range(INDEX)[1], U64))
    return s.b.cast(value, INDEX)


_EXACT = {"+": "add", "-": "sub", "*": "mul"}
"""Operators that are computed once for equal operands, so that equal bounds are one value."""


def _literal(s: State, e: ast.Expr) -> int | None:
    """A number that is written: only such a negative one counts from the end."""
    known = s.typed.constants.get(e)
    if isinstance(e, ast.Unary) and e.operator == "-" and isinstance(e.operand, ast.IntLit):
        return -e.operand.value
    return known if isinstance(known, int) and not isinstance(known, bool) else None


def bound(s: State, e: ast.Expr | None, size: Value, default: Value) -> Value:
    """A bound of a slice."""
    if e is None:
        return default
    known = _literal(s, e)
    if known is not None and known < 0:
        end = s.b.add(size, s.b.number(known))
        return s.b.arithmetic("max", s.b.number(0), end)
    found = number(s, e)
    if e in s.typed.from_end:
        return s.b.arithmetic("max", s.b.number(0), s.b.add(size, found))
    return found


def _start(s: State, item: ast.SliceExpr, size: Value) -> Value:
    """Where a slice begins; below 0, where nothing proves that it is not, is a fault, and 0."""
    begin = bound(s, item.lower, size, s.b.number(0))
    if item.lower is None or item not in s.typed.starts:
        return begin
    shown = f"a slice begins below 0, at `{s.low.text(item.lower.span)}`"
    s.b.assertion(s.b.cmp("ge", begin, s.b.number(0)),
                  s.low.site("assert", item.lower.span, "", shown=shown))  # fmt: skip
    return s.b.arithmetic("max", s.b.number(0), begin)


def _stop(s: State, item: ast.SliceExpr, size: Value) -> Value:
    """Where a slice ends; below 0, where nothing proves that it is not, is a fault."""
    end = bound(s, item.upper, size, size)
    if item.upper is not None and item in s.typed.stops:
        shown = f"a slice ends below 0, at `{s.low.text(item.upper.span)}`"
        s.b.assertion(s.b.cmp("ge", end, s.b.number(0)),
                      s.low.site("assert", item.upper.span, "", shown=shown))  # fmt: skip
    return end


def size(s: State, base: ast.Expr, item: ast.Expr) -> Value | None:
    """``x.shape[i]``."""
    axis = _literal(s, item)
    t = s.typed.types.get(base)
    if axis is None or not isinstance(t, Tensor | Tile):
        return None
    return s.node(base).axes[axis].extent


# --- of arrays -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Slice:
    """What the items of a subscript make of an array, axis by axis."""

    s: State
    base: Read
    starts: list[Value]
    shown: list[TileAxis]
    write: bool
    span: Span
    along: list[int | None] = field(default_factory=list[int | None])
    dims: list[int] = field(default_factory=list[int])
    steps: list[int] = field(default_factory=list[int])
    axes: list[Axis] = field(default_factory=list[Axis])
    numbers: list[Node | None] = field(default_factory=list[Node | None])
    taken_whole: list[int] = field(default_factory=list[int])
    guards: list[tuple[Value, Value, Span]] = field(default_factory=list[tuple[Value, Value, Span]])
    rooms: list[Value | None] = field(default_factory=list[Value | None])

    def _next(self) -> TileAxis | None:
        return self.shown.pop(0) if self.shown else None

    def item(self, position: int, item: ast.Expr) -> None:
        s, base = self.s, self.base
        dim, extent = base.dims[position], base.axes[position].extent
        if isinstance(item, ast.SliceExpr):
            self._range(position, item, extent)
            return
        if _rank(s, item):
            if base.steps[position] != 1 or s.b.known(base.starts[dim]) != 0:
                raise Unsupported(item.span, "a gather from a part of an array")
            places = s.node(item)
            self.numbers = self.numbers or [None] * len(self.starts)
            self.numbers[dim] = places
            self._next()
            self._keep(position, 1, places.axes[0])
            return
        known = _literal(s, item)
        if known is not None and known < 0:
            at = s.b.add(extent, s.b.number(known))
        else:
            at = number(s, item)
        self.guards.append((at, extent, item.span))
        step = s.b.number(base.steps[position])
        self.starts[dim] = s.b.add(self.starts[dim], s.b.arithmetic("mul", at, step))

    def _range(self, position: int, item: ast.SliceExpr, extent: Value) -> None:
        s, base = self.s, self.base
        dim = base.dims[position]
        step = abs(_step(s, item))  # of all backwards the axis is turned afterwards
        start, end = _start(s, item, extent), _stop(s, item, extent)
        if item in s.typed.wrapping:
            start, end = _unwrapped(s, start, end, extent)
        shown = self._next()
        if item.lower is None and item.upper is None and step == 1:
            self._keep_whole(position, shown)
            return
        found = s.dim(shown.extent) if shown is not None else None
        width = s.b.apart(end, start)
        if item in s.typed.wrapping:
            found = None  # what it is by names is of the start that may have wrapped
        if found is None and width is not None and step == 1:
            found = s.b.room(extent, start, s.b.number(max(0, width)))
        elif found is None:
            found = s.b.clip(start, s.b.arithmetic("min", end, extent), step)
        move = s.b.arithmetic("mul", start, s.b.number(base.steps[position]))
        self.starts[dim] = s.b.add(self.starts[dim], move)
        axis = Axis(found, shown.capacity if shown is not None else None)
        held = base.rooms[position] if base.rooms else None
        room = s.b.room(held or extent, start, found) if item in s.typed.fits or held else None
        if item in s.typed.fits and room is not None:
            whole = s.b.cmp("eq", room, found)
            verb = "write" if self.write else "read"
            s.b.assertion(whole, s.low.site(verb, self.span, base.view.name))
        if self.write and room is not None:
            axis = Axis(room, axis.capacity)
        if item.upper is None or (_literal(s, item.upper) or 0) < 0:
            self.taken_whole.append(len(self.axes))  # as far as the array goes
        self._keep(position, step, axis, room)

    def _keep(self, position: int, step: int, axis: Axis, room: Value | None = None) -> None:
        self.rooms.append(room)
        self.along.append(len(self.dims))
        self.dims.append(self.base.dims[position])
        self.steps.append(self.base.steps[position] * step)
        self.axes.append(axis)

    def whole(self, position: int) -> None:
        self._keep_whole(position, self._next())

    def _keep_whole(self, position: int, shown: TileAxis | None) -> None:
        """All of an axis; sizes that agree have one value, so that extents do too."""
        axis, held = self.base.axes[position], self.base.rooms
        room = held[position] if held else None
        if shown is None:
            self._keep(position, 1, axis, room)
            return
        extent = self.s.dim(shown.extent)
        self.taken_whole.append(len(self.axes))
        whole = Axis(axis.extent if extent is None else extent, shown.capacity)
        self._keep(position, 1, whole, room)

    def limit(self) -> None:
        """What is too much for one tile is an iteration space, where it was taken whole."""
        if room_of(self.axes) > MOST_ELEMENTS:
            for i in self.taken_whole:
                self.axes[i] = Axis(self.axes[i].extent, None)


def _unwrapped(s: State, start: Value, end: Value, extent: Value) -> tuple[Value, Value]:
    """Bounds of a slice that is outside where its start has wrapped."""
    b, width = s.b, s.b.apart(end, start)
    key = ("unwrapped", start, extent)
    made = b.recall(key)
    if made is None:
        there = b.cmp("ge", start, b.number(0))
        made = b.remember(key, b.chosen(there, start, extent))
    return made, end if width is None else b.add(made, b.number(width))


def part_of_array(
    s: State, e: ast.Subscript, base: Read, *, write: bool
) -> tuple[Node, Value | None]:
    """The part of an array that a subscript names, and whether it is there (a bool; None: it is).

    A part of one element has no axes: the caller takes it as it needs it.
    """
    t = s.typed.types.get(e)
    if e.items and _rank(s, e.items[-1]) > 1:
        return _looked_up(s, e, _row(s, e, base)), None
    shown = list(t.axes) if isinstance(t, Tile) else []
    work = _Slice(s, base, list(base.starts), shown, write, e.span)
    position = 0
    new: list[int] = []
    for item in e.items:
        if isinstance(item, ast.NoneLit):
            new.append(len(work.along))
            work.along.append(None)
            if work.shown:
                work.shown.pop(0)
            continue
        work.item(position, item)
        position += 1
    for rest in range(position, len(base.axes)):
        work.whole(rest)
    work.limit()
    inside = _guarded(s, work, e, write)
    read = Read(
        base.view, tuple(work.starts), tuple(work.dims), tuple(work.steps), base.dtype,
        tuple(work.axes), base.version, base.staging, e.span, tuple(work.numbers),
        None if write else inside, () if write or not any(work.rooms) else tuple(work.rooms),
    )  # fmt: skip
    if not new:
        return read, inside
    one = Axis(s.b.number(1), 1)
    axes = tuple(one if a is None else work.axes[a] for a in work.along)
    places = [i for i, a in enumerate(work.along) if a is not None]
    return node_builders.with_axes(s, read, axes, places), inside


def _rank(s: State, item: ast.Expr) -> int:
    """The axes of the tile, or of the array taken whole, that chooses rows; 0 of a number."""
    t = s.typed.types.get(item)
    return len(t.axes) if isinstance(t, Tile) else len(t.shape) if isinstance(t, Tensor) else 0


def _row(s: State, e: ast.Subscript, base: Read) -> Read:
    """The table of an array of tables that the items before the last say."""
    if len(e.items) == 1:
        return base
    work = _Slice(s, base, list(base.starts), [], False, e.span)
    for position, item in enumerate(e.items[:-1]):
        work.item(position, item)
    work.whole(len(e.items) - 1)
    inside = _guarded(s, work, e, False)
    return Read(
        base.view, tuple(work.starts), tuple(work.dims), tuple(work.steps), base.dtype,
        tuple(work.axes), base.version, span=e.span, inside=inside,
    )  # fmt: skip


def _looked_up(s: State, e: ast.Subscript, base: Read) -> Node:
    """``table[places]`` of a small table: each element is compared with every place of it, and is
    0 where there is none."""
    places = s.node(e.items[-1])
    (dim,), (by,) = base.dims, base.steps
    count, step = s.b.known(base.axes[0].extent), s.b.number(by)
    if not isinstance(count, int):
        raise Unsupported(e.span, "a look-up in a table whose size is not known")
    found: Node = node_builders.constant(s, 0, base.dtype)
    for i in range(count):
        at = s.b.add(base.starts[dim], s.b.arithmetic("mul", s.b.number(i), step))
        starts = (*base.starts[:dim], at, *base.starts[dim + 1 :])
        element = _first(s, replace(base, starts=starts), len(places.axes))
        here = node_builders.compared(s, "eq", places, node_builders.constant(s, i, places.dtype))
        found = node_builders.select(s, here, element, found, s.typed.types.get(e))
    return found


def _first(s: State, at: Read, rank: int) -> Node:
    """What stands where a read begins: a number, or where the table may not be there a tile of
    one, which is 0 then."""
    if at.inside is None:
        return replace(at, dims=(), steps=(), axes=())
    one = Axis(s.b.number(1), 1)
    return node_builders.with_axes(s, replace(at, axes=(one,)), (one,) * rank, (rank - 1,))


def _guarded(s: State, work: _Slice, e: ast.Subscript, write: bool) -> Value | None:
    """Whether the indices are in the array, where that is not proved: outside there is nothing to
    write and all is 0; that is reported."""
    b = s.b
    inside: Value | None = None
    for at, extent, _ in work.guards:
        if not proved(s, at, extent):
            one = _inside(s, at, extent)
            inside = one if inside is None else b.both(inside, one)
    if inside is None:
        return work.base.inside
    if work.axes or write:
        b.assertion(inside, s.low.site("write" if write else "read", e.span, work.base.view.name))
        taken = set(work.dims)
        for dim, size in enumerate(s.low.sizes[work.base.view]):
            if dim not in taken:  # where it is outside it begins behind the array
                work.starts[dim] = b.chosen(inside, work.starts[dim], size)
    if work.base.inside is not None:
        inside = b.both(work.base.inside, inside)
    if write:
        none = b.number(0)
        work.axes = [Axis(b.chosen(inside, a.extent, none), a.capacity) for a in work.axes]
    return inside


def _inside(s: State, at: Value, extent: Value) -> Value:
    """``0 <= at < extent``; the same for the same index of arrays of one size."""
    b, key = s.b, ("inside", at, extent)
    kept = b.recall(key)
    if kept is not None:
        return kept
    return b.remember(key, b.both(b.cmp("ge", at, b.number(0)), b.cmp("lt", at, extent)))


def proved(s: State, at: Value, extent: Value) -> bool:
    """Whether ``0 <= at < extent`` is known: a number, or a loop's variable that ends there."""
    x, n = s.b.known(at), s.b.known(extent)
    if x is not None:
        return n is not None and 0 <= x < n
    found = s.below.get(at)
    if found is None:
        return False
    lower, upper = found
    low, high = s.b.known(lower), s.b.known(upper)
    if low is None or low < 0:
        return False
    return upper is extent or (high is not None and n is not None and high <= n)


def subscript(s: State, e: ast.Subscript) -> Node:
    """``x[...]`` as a value."""
    base = s.node(e.value)
    if isinstance(s.typed.types.get(e.value), Tensor):
        if not isinstance(base, Read):
            raise Unsupported(e.span, "a part of this array")
        if not base.axes:  # nothing but new axes can stand in the brackets
            one = Axis(s.b.number(1), 1)
            return Filled(node_builders.scalar_of(s, base), base.dtype, (one,) * len(e.items))
        part, _ = part_of_array(s, e, base, write=False)
        if isinstance(part, Read) and not part.axes:
            return _element(s, e, part)
        return _backwards(s, e, part)
    return part_of_tile(s, e, base)


def _backwards(s: State, e: ast.Subscript, part: Node) -> Node:
    """The part with the axes reversed that are taken with ``::-1``."""
    kept = [i for i in e.items if _gives_axis(i) or _rank(s, i)]
    for axis, item in enumerate(kept):
        if isinstance(item, ast.SliceExpr) and _step(s, item) == -1:
            part = reversed_along(s, part, axis, item.span)
    return part


def _element(s: State, e: ast.Subscript, place: Read) -> Node:
    site = s.low.site("read", e.span, place.view.name)
    value = s.b.load(place.view, place.starts, site=site, hint=place.view.name)
    return Filled(value, place.dtype, ())


# --- of tiles --------------------------------------------------------------------------------


def part_of_tile(s: State, e: ast.Subscript, base: Node) -> Node:
    """A slice, an element, or new axes of a tile."""
    t = s.typed.types.get(e)
    shown = list(t.axes) if isinstance(t, Tile) else []
    starts: list[Value] = []
    along: list[int | None] = []
    axes: list[Axis] = []
    for item in e.items:
        sema = shown.pop(0) if shown and _gives_axis(item) else None
        if isinstance(item, ast.SliceExpr) and _step(s, item) != 1:
            base = _stepped(s, item, base, len(starts), sema)
            item = ast.SliceExpr(item.span, None, None, None)
        if isinstance(item, ast.NoneLit):
            axes.append(Axis(s.b.number(1), 1))
            continue
        axis = base.axes[len(starts)]
        if not isinstance(item, ast.SliceExpr):
            starts.append(_place(s, item, axis))
            along.append(None)
            continue
        along.append(len(axes))
        start, made = _slice_of_axis(s, item, axis, sema)
        starts.append(start)
        axes.append(made)
    for axis in base.axes[len(starts) :]:
        starts.append(s.b.number(0))
        along.append(len(axes))
        axes.append(axis)
    return Part(base, tuple(starts), tuple(along), base.dtype, tuple(axes))


def _gives_axis(item: ast.Expr) -> bool:
    return isinstance(item, ast.NoneLit | ast.SliceExpr)


def _place(s: State, item: ast.Expr, axis: Axis) -> Value:
    """An element of an axis; one that is not there is reported, and another taken."""
    b, known = s.b, _literal(s, item)
    if known is not None and known < 0:
        at = b.add(axis.extent, b.number(known))
    else:
        at = number(s, item)
    if proved(s, at, axis.extent):
        return at
    inside = b.binary("and", b.cmp("ge", at, b.number(0)), b.cmp("lt", at, axis.extent))
    b.assertion(inside, s.low.site("read", item.span, "tile"))
    return b.select(inside, at, b.number(0))


def _slice_of_axis(
    s: State, item: ast.SliceExpr, axis: Axis, sema: TileAxis | None
) -> tuple[Value, Axis]:
    b = s.b
    if item.lower is None and item.upper is None:
        return b.number(0), axis
    start = bound(s, item.lower, axis.extent, b.number(0))
    stop = b.arithmetic("min", _stop(s, item, axis.extent), axis.extent)
    capacity = sema.capacity if sema is not None else None
    first = b.known(start)
    if axis.capacity is not None:
        if first is None:  # what is behind the tile is behind the extent
            start = b.arithmetic("min", start, b.number(axis.capacity))
            capacity = min(capacity or axis.capacity, axis.capacity)
        elif capacity is None or first + capacity > axis.capacity:
            capacity = max(1, axis.capacity - first)
    return start, Axis(b.clip(start, stop), capacity)


def _step(s: State, item: ast.SliceExpr) -> int:
    return 1 if item.step is None else _literal(s, item.step) or 1


def _stepped(
    s: State, item: ast.SliceExpr, base: Node, position: int, sema: TileAxis | None
) -> Node:
    """The tile with only the elements of a slice in steps along an axis."""
    b, axis, step = s.b, base.axes[position], _step(s, item)
    base = as_bound(s, base)
    if step == -1:
        return reversed_along(s, base, position, item.span)
    start = bound(s, item.lower, axis.extent, b.number(0))
    stop = b.arithmetic("min", _stop(s, item, axis.extent), axis.extent)
    capacity = sema.capacity if sema is not None else None
    if axis.capacity is not None:
        most = max(1, -(-(axis.capacity - (b.known(start) or 0)) // step))
        capacity = most if capacity is None else min(capacity, most)
    new = Axis(b.clip(start, stop, step), capacity)
    return stepped_along(s, base, position, start, step, new, item.span)
