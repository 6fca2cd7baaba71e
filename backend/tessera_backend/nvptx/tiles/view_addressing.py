"""The part of a view that a register tile lies over: addresses, predicates, what is known.

Owns the split of an address into the tile's, the lane's and the register's part, and which
vectors are aligned: known from values, said by the operation, or tested by the kernel. Must not
know what is moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm.emitter import LaneEmitter, Place
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import bases, below, conjunction, dialect_of
from tessera_backend.nvptx.tiles.elementwise import Coordinates, layout_of, tile_type
from tessera_backend.nvptx.tiles.folding_builder import Number, number, product, total, widened
from tessera_lang.analysis.resources.register_layouts import VECTOR_BYTES, vector_width
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.record import dataclass, field


@dataclass(slots=True)
class Window:
    """The part of a view that a tile lies over: what every path of an access shares.

    ``strides``: elements of the view from one element of the tile to the next, by axis of the
    tile. ``base``: address of the window (uniform); ``lane``: address of the lane's register 0.
    ``extents``: by axis of the tile. ``unit``: the axis of the tile along which elements are
    neighbours, -1 for none. ``vector``: neighbours that a lane could move at once, if aligned;
    ``known``: those that are aligned for sure; ``aligned``: the test for all others (i1).
    ``cut``: the extent along the neighbours is a multiple of so many for sure.
    """

    tile: TileType
    place: Place
    strides: list[Number]
    extents: list[Number]
    bases: list[str]
    base: str
    lane: str
    unit: int
    vector: int
    known: int = 1
    aligned: str = ""
    cut: int = 1
    hint: str = ""
    _rows: dict[tuple[Number, ...], str] = field(default_factory=dict[tuple[Number, ...], str])
    _tests: dict[tuple[int, int, int], str] = field(default_factory=dict[tuple[int, int, int], str])

    def fresh(self) -> Window:
        """For another path, which sees nothing that was computed on this one."""
        return Window(
            self.tile, self.place, self.strides, self.extents, self.bases, self.base, self.lane,
            self.unit, self.vector, self.known, self.aligned, self.cut, self.hint,
        )  # fmt: skip

    def address(self, e: LaneEmitter, at: Coordinates) -> tuple[str, int]:
        """Address operand and offset in bytes of the register with these coordinates."""
        bytes_, offset = self.place.dtype.bytes, 0
        moving: list[Number] = []
        for c, stride in zip(at, self.strides, strict=True):
            if isinstance(stride, int):
                offset += c * stride * bytes_
                moving.append(0)
            else:
                moving.append(c)
        if not -(1 << 23) <= offset < 1 << 23:  # what an access adds to its address has 24 bits
            return moved(e, self.lane, self._distance(e, at)), 0
        key = tuple(moving)
        if key not in self._rows:
            distance: Number = 0
            for c, stride in zip(moving, self.strides, strict=True):
                distance = total(e, distance, product(e, stride, c))
            self._rows[key] = moved(e, self.lane, product(e, distance, bytes_))
        return self._rows[key], offset

    def _distance(self, e: LaneEmitter, at: Coordinates) -> Number:
        distance: Number = 0
        for c, stride in zip(at, self.strides, strict=True):
            distance = total(e, distance, product(e, stride, c))
        return product(e, distance, self.place.dtype.bytes)

    def inside(self, e: LaneEmitter, at: Coordinates, width: int) -> str:
        """Whether ``width`` neighbours from a register on lie in the extents ("" if surely)."""
        tests: list[str] = []
        for axis, c in enumerate(at):
            extent = self.extents[axis]
            last = c + (width - 1 if axis == self.unit else 0)
            if extent == self.tile.shape[axis]:
                continue
            key = (axis, last, 0)
            if key not in self._tests:
                self._tests[key] = self._below(e, axis, last, extent)
            tests.append(self._tests[key])
        return conjunction(e, tests)

    def _below(self, e: LaneEmitter, axis: int, last: int, extent: Number) -> str:
        limit = str(extent) if isinstance(extent, int) else e.f.value(f"trunc i64 {extent} to i32")
        return below(e, last, self.bases[axis], limit)

    def whole(self, e: LaneEmitter) -> str:
        """Whether the whole tile lies in the extents: an i1 operand, "" if surely."""
        tests = [
            e.f.value(f"icmp sge i64 {extent}, {size}")
            for extent, size in zip(self.extents, self.tile.sizes, strict=True)
            if extent != size
        ]
        return conjunction(e, tests)

    def cell(self, e: LaneEmitter, at: Coordinates, predicate: str) -> words.Cell:
        address, offset = self.address(e, at)
        pointer = e.dialect.pointer_type(self.place.space)
        return words.Cell("global", pointer, address, offset, predicate)


def moved(e: LaneEmitter, address: str, distance: Number) -> str:
    if distance == 0:
        return address
    return e.f.value(f"getelementptr i8, ptr addrspace(1) {address}, i64 {distance}")


def strides_of(e: LaneEmitter, place: Place) -> list[Number]:
    """Elements between neighbours along each axis of a view."""
    if place.strides is not None:
        return [number(s) for s in place.strides]
    strides: list[Number] = []
    reached: Number = 1
    for size in reversed(place.sizes):
        strides.append(reached)
        reached = product(e, reached, number(size))
    return strides[::-1]


# --- alignment --------------------------------------------------------------------------------


def _operands_of_view(e: LaneEmitter, view: Value) -> tuple[Value, Sequence[Value]]:
    """The pointer of a view, and the values of its sizes and strides."""
    definition = dialect_of(e).divisors.definition(view)
    assert definition is not None
    return definition.operands[0], definition.operands[1:]


def known_alignment(e: LaneEmitter, view: Value, starts: Sequence[Value | None], most: int) -> int:
    """Bytes, a power of two up to ``most``, that surely divide the address of every row.

    ``starts``: one an axis; None for an axis whose rows are taken in any order. The axis of
    neighbours counts by its start, the others by their stride.
    """
    t = view.view_type
    divisor = dialect_of(e).divisors
    pointer, numbers = _operands_of_view(e, view)
    rank, bytes_ = len(t.shape), t.dtype.bytes
    found = max(VECTOR_BYTES if t.aligned else bytes_, divisor(pointer))
    strides: list[int] = []
    if t.contiguous:
        reached = 1
        for size, value in zip(reversed(t.shape), reversed(numbers[:rank]), strict=True):
            strides.append(reached)
            reached = min(reached * (divisor(value) if size is None else size & -size), 1 << 30)
        strides = strides[::-1]
    else:
        strides = [divisor(value) for value in numbers[rank:]]
    literal = strides_of(e, e.places[view])
    for axis, start in enumerate(starts):
        if literal[axis] == 1:
            step = 1 if start is None else divisor(start)
        else:
            step = strides[axis]
            if t.shape[axis] == 1:
                continue
        found = min(found, step * bytes_)
    return min(found, most)


def _aligned_now(e: LaneEmitter, window: Window, bytes_: int) -> str:
    """Whether rows begin at multiples of ``bytes_``, tested by the kernel (i1)."""
    f = e.f
    mixed = f.value(f"ptrtoint ptr addrspace(1) {window.base} to i64")
    for axis, stride in enumerate(window.strides):
        if axis == window.unit or window.tile.shape[axis] == 1:
            continue
        step = product(e, stride, window.place.dtype.bytes)
        if isinstance(step, int) and step % bytes_ == 0:
            continue
        mixed = f.value(f"or i64 {mixed}, {step}")
    low = f.value(f"and i64 {mixed}, {bytes_ - 1}")
    return f.value(f"icmp eq i64 {low}, 0")


def _facts(
    e: LaneEmitter, op: Operation, window: Window, view: Value, numbers: Sequence[Value]
) -> None:
    """Alignment and extents of a window: known from values, said by the operation, or tested."""
    rank, bytes_ = len(window.place.sizes), window.place.dtype.bytes
    most = window.vector * bytes_
    said = op.integer("vector", 1)
    known = max(known_alignment(e, view, list(numbers[:rank]), most), min(said, most))
    window.known = max(known // bytes_, 1)
    extent = numbers[rank + window.unit]
    window.cut = dialect_of(e).divisors(extent)
    if op.attributes.get("whole", False):
        window.cut = max(window.cut, said // bytes_)
    if window.known < window.vector:
        window.aligned = _aligned_now(e, window, most)


def window_of(e: LaneEmitter, op: Operation, view: Value, numbers: Sequence[Value]) -> Window:
    """The window of a load or store of a tile."""
    tile = tile_type(op.results[0] if op.results else op.operands[0])
    dims, steps = op.integers("dims"), op.integers("steps")
    place = e.places[view]
    rank = len(place.sizes)
    starts = numbers[:rank]
    of_view = strides_of(e, place)
    first: Number = 0
    for start, stride in zip(starts, of_view, strict=True):
        first = total(e, first, product(e, number(e.operand(start)), stride))
    base = moved(e, place.pointer, product(e, first, place.dtype.bytes))
    strides = [product(e, of_view[d], s) for d, s in zip(dims, steps, strict=True)]
    extents = [number(e.operand(v)) for v in numbers[rank:]]
    window = at_lane(e, tile, place, strides, extents, base, layout_of(tile))
    hint = op.attributes.get("hint", "")
    window.hint = str(hint)
    if window.vector > 1:
        _facts(e, op, window, view, numbers)
    return window


def at_lane(
    e: LaneEmitter, tile: TileType, place: Place, strides: list[Number], extents: list[Number],
    base: str, layout: RegisterLayout,
) -> Window:  # fmt: skip
    rank, bytes_ = len(tile.shape), place.dtype.bytes
    placed = bases(e, layout, rank)
    distance: Number = 0
    for coordinate, stride in zip(placed, strides, strict=True):
        distance = total(e, distance, product(e, widened(e, coordinate), stride))
    lane = moved(e, base, product(e, distance, bytes_))
    unit = next((i for i, s in enumerate(strides) if s == 1 and tile.shape[i] != 1), -1)
    most = VECTOR_BYTES // bytes_
    vector = vector_width(layout, unit, rank, most) if unit >= 0 else 1
    return Window(tile, place, strides, extents, placed, base, lane, unit, vector)
