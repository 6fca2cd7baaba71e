"""Register tiles to and from global memory: ``load_tile``, ``store_tile``, ``gather_tile``, and
registers as they are.

Owns the choice of an access: as many neighbours at once as the layout holds, the view allows and
alignment permits. What is not known now is tested once a tile, the same for all lanes: whole
tiles need no predicates, aligned ones go by vectors, the rest by elements. Must not know how an
access is spelt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tessera_backend.llvm.cast import as_index
from tessera_backend.llvm.emitter import LaneEmitter, Place, Rule
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import conjunction, dialect_of, first_copy
from tessera_backend.nvptx.tiles.elementwise import (
    Coordinates,
    apply,
    bind_at,
    held_at,
    layout_of,
    tile_type,
)
from tessera_backend.nvptx.tiles.folding_builder import Number, number, product, total
from tessera_backend.nvptx.tiles.view_addressing import (
    Window,
    at_lane,
    known_alignment,
    moved,
    strides_of,
    window_of,
)
from tessera_lang.analysis.resources.register_layouts import lanes_of, registers_at, wgmma_c
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.target.tuned_constants import TESTED_LAST
from tessera_lang.types.dtype import F32, DType

Values = dict[Coordinates, str]

# --- paths ------------------------------------------------------------------------------------

Path = Callable[[Window, int, int], Values]
"""An access of all registers: window, neighbours at once, the coordinate along them from which on
registers have predicates."""

_ALL, _NONE = 0, 1 << 30


def by_paths(e: LaneEmitter, window: Window, path: Path) -> Values:
    """The access by the best path that holds, chosen when the kernel runs."""
    whole, vector, known = window.whole(e), window.vector, min(window.known, window.vector)
    last = _last_slab(window) if whole and vector == 1 else 0
    branches: list[tuple[str, int, int]] = []
    if known < vector:
        branches.append((conjunction(e, [window.aligned, whole]), vector, _NONE))
        if whole:
            cut = _cut(e, window, vector)
            branches.append((conjunction(e, [window.aligned, cut]), vector, _ALL))
    elif whole and not last:
        branches.append((whole, known, _NONE))
    if not whole:
        branches.append(("", known, _NONE))
    elif last:
        branches.append((_reaches(e, window, last), 1, last))
        branches.append(("", 1, _ALL))
    else:
        branches.append((_cut(e, window, known), known, _ALL))
        branches.append(("", 1, _ALL))
    dtype = window.place.dtype
    values = _choose(e, branches, lambda w, tested: path(window.fresh(), w, tested), dtype)
    if branches[0][0] and values and is_accumulator(window.tile):
        return {at: _copied(e, value) for at, value in values.items()}
    return values


def _copied(e: LaneEmitter, value: str) -> str:
    """A register made on one way: ptxas waits for every product that begins with one that is made
    on several ways, where products of the turn before are in flight (C7515)."""
    return e.f.value(f'call float asm "mov.b32 $0, $1;", "=f,f"(float {value})')


def is_accumulator(tile: TileType) -> bool:
    """Whether an asynchronous product can begin with a tile."""
    if len(tile.shape) != 2 or tile.dtype != F32 or tile.layout is None:
        return False
    rows = tile.sizes[0]
    groups = [g for g in (1, 2, 3, 4) if rows % (64 * g) == 0]
    return any(wgmma_c(tile.sizes, g) == tile.layout for g in groups)


def _last_slab(window: Window) -> int:
    """Of a row that lanes access element by element: where its outermost registers begin, 0 if
    there are no others. A row that ends behind that needs predicates only there."""
    layout = layout_of(window.tile)
    if len(window.tile.shape) != 1 or layout.register_count < TESTED_LAST:
        return 0
    (size,) = window.tile.sizes
    outermost = [m for m in layout.registers if m.axis == 0 and m.extent * m.stride == size]
    return size - outermost[0].stride if outermost else 0


def _reaches(e: LaneEmitter, window: Window, size: int) -> str:
    """Whether the extent of a row is at least ``size``."""
    (extent,) = window.extents
    if isinstance(extent, int):
        return "true" if extent >= size else "false"
    return e.f.value(f"icmp sge i64 {extent}, {size}")


def _cut(e: LaneEmitter, window: Window, width: int) -> str:
    """Whether the extent ends no vector of ``width`` in its middle ("" if surely)."""
    if width <= window.cut:
        return ""
    extent = window.extents[window.unit]
    if isinstance(extent, int):
        return "" if extent % width == 0 else "false"
    rest = e.f.value(f"and i64 {extent}, {width - 1}")
    return e.f.value(f"icmp eq i64 {rest}, 0")


def _choose(
    e: LaneEmitter, branches: Sequence[tuple[str, int, int]],
    path: Callable[[int, int], Values], dtype: DType,
) -> Values:  # fmt: skip
    """The first branch whose condition holds; one without a condition always does. Narrow elements
    leave a branch in words, as they come, so that each is taken out of its word once."""
    if not branches[0][0]:
        return path(*branches[0][1:])
    f, join = e.f, e.f.label("accessed")
    ends: list[tuple[list[str], str]] = []
    order: list[Coordinates] = []
    each = max(1, 4 // dtype.bytes)
    for condition, width, tested in branches:
        here, after = f.label("access"), f.label("otherwise")
        if condition:
            f.branch_if(condition, here, after)
            f.place(here)
        values = path(width, tested)
        order = order or list(values)
        ends.append((_joined(e, [values[at] for at in order], dtype, each), f.block))
        f.branch(join)
        if not condition:
            break
        f.place(after)
    f.place(join)
    merged: list[str] = []
    packed = len(order) // each if each > 1 else 0
    for i in range(len(ends[0][0])):
        kind = words.word_type(dtype, each) if i < packed else register_type(dtype)
        sources = ", ".join(f"[ {values[i]}, %{block} ]" for values, block in ends)
        merged.append(f.value(f"phi {kind} {sources}"))
    values = words.unpack(e, merged[:packed], dtype, each) + merged[packed:]
    return dict(zip(order, values, strict=True))


def _joined(e: LaneEmitter, values: Sequence[str], dtype: DType, each: int) -> list[str]:
    """Elements in words of ``each``, and those that fill none as they are."""
    packed = len(values) // each * each if each > 1 else 0
    made = words.pack(e, values[:packed], dtype) if packed else []
    return [*made, *values[packed:]]


def vectors(window: Window, layout: RegisterLayout, width: int) -> list[Coordinates]:
    """The first coordinates of every run of ``width`` neighbours."""
    held = registers_at(layout, len(window.tile.shape))
    if width == 1:
        return list(held)
    return [at for at in held if at[window.unit] % width == 0]


def neighbours(at: Coordinates, axis: int, width: int) -> list[Coordinates]:
    if width == 1:
        return [at]
    return [(*at[:axis], at[axis] + i, *at[axis + 1 :]) for i in range(width)]


# --- rules ------------------------------------------------------------------------------------

_LOAD_HINTS = {"": "", "keep": "", "stream": ".L1::no_allocate"}
_STORE_HINTS = {"": "", "keep": "", "stream": ".cs"}


def _load(e: LaneEmitter, op: Operation) -> None:
    window = window_of(e, op, op.operands[0], op.operands[1:])
    layout, dtype = layout_of(window.tile), window.tile.dtype

    def path(w: Window, width: int, tested: int) -> Values:
        found: Values = {}
        hint = ("" if w.place.mut else ".nc") + _LOAD_HINTS[w.hint]
        for at in vectors(w, layout, width):
            predicate = w.inside(e, at, width) if at[w.unit] >= tested else ""
            values = words.load(e, w.cell(e, at, predicate), dtype, width, hint)
            found.update(zip(neighbours(at, w.unit, width), values, strict=True))
        return found

    values = by_paths(e, window, path)
    bind_at(e, op.result, values.__getitem__)
    if "ahead" in op.attributes:
        _ask_ahead(e, op, window.fresh())


def _ask_ahead(e: LaneEmitter, op: Operation, window: Window) -> None:
    """Asks for the lines of the same tile further along an axis of the view. It needs no value,
    so nothing waits; what is not in the view is not asked for."""
    axis, distance = op.integers("ahead")
    start, size = number(e.operand(op.operands[1 + axis])), number(window.place.sizes[axis])
    inside = e.f.value(f"icmp slt i64 {total(e, start, distance)}, {size}")
    step = product(e, strides_of(e, window.place)[axis], distance * window.place.dtype.bytes)
    if len(window.tile.shape) == 1 and window.strides[0] == 1 and dialect_of(e).has_bulk_copies:
        _ask_for_bytes(e, window, inside, step)
        return
    for at in vectors(window, layout_of(window.tile), window.vector):
        cell = window.cell(e, at, conjunction(e, [inside, window.inside(e, at, 1)]))
        address = moved(e, moved(e, cell.address, cell.offset), step)
        given = [(f"{cell.kind} {address}", cell.letter), (f"i1 {cell.predicate}", "b")]
        words.assembly(e, "@$1 prefetch.global.L2 [$0];", (), given, memory=False)


def _ask_for_bytes(e: LaneEmitter, window: Window, inside: str, step: Number) -> None:
    """One lane asks for neighbours in pieces of 16 bytes, none of which ends outside."""
    f = e.f
    place = f.value(f"ptrtoint ptr addrspace(1) {moved(e, window.base, step)} to i64")
    begin = f.value(f"and i64 {place}, -{VECTOR_BYTES}")
    bytes_ = product(e, window.extents[0], window.place.dtype.bytes)
    size = f.value(f"trunc i64 {f.value(f'and i64 {bytes_}, -{VECTOR_BYTES}')} to i32")
    some = f.value(f"icmp sgt i32 {size}, 0")
    first = f.value(f"icmp eq i64 {e.dialect.lane_linear(e)}, 0")
    given = [(f"i64 {begin}", "l"), (f"i32 {size}", "r")]
    given.append((f"i1 {conjunction(e, [inside, some, first])}", "b"))
    text = "@$2 cp.async.bulk.prefetch.L2.global [$0], $1;"
    words.assembly(e, text, (), given, memory=False)


def _store(e: LaneEmitter, op: Operation) -> None:
    window = window_of(e, op, op.operands[1], op.operands[2:])
    layout, dtype = layout_of(window.tile), window.tile.dtype
    held = held_at(e, op.operands[0])
    once = first_copy(e, layout)

    def path(w: Window, width: int, tested: int) -> Values:
        for at in vectors(w, layout, width):
            inside = w.inside(e, at, width) if at[w.unit] >= tested else ""
            values = [held[n] for n in neighbours(at, w.unit, width)]
            cell = w.cell(e, at, conjunction(e, [once, inside]))
            words.store(e, cell, values, dtype, _STORE_HINTS[w.hint])
        return {}

    by_paths(e, window, path)


def _gather(e: LaneEmitter, op: Operation) -> None:
    """As a load; along axes with a tile of numbers every row has its own address, and one that
    is outside the view is all zeros."""
    tile = tile_type(op.result)
    layout = layout_of(tile)
    window, jumps = gathering(e, op, tile, op.operands[1:])
    place = window.place

    def path(w: Window, width: int, tested: int) -> Values:
        found: Values = {}
        for at in vectors(w, layout, width):
            guarded = width if at[w.unit] >= tested else 0
            address, offset, valid = row_of(e, w, jumps, at, guarded)
            pointer = e.dialect.pointer_type(place.space)
            cell = words.Cell("global", pointer, address, offset, valid)
            hint = "" if place.mut else ".nc"
            values = words.load(e, cell, tile.dtype, width, hint)
            found.update(zip(neighbours(at, w.unit, width), values, strict=True))
        return found

    values = by_paths(e, window, path)
    bind_at(e, op.result, values.__getitem__)


def _scatter(e: LaneEmitter, op: Operation) -> None:
    """As a store; a row that is outside the view is not written."""
    tile = tile_type(op.operands[0])
    layout, held = layout_of(tile), held_at(e, op.operands[0])
    window, jumps = gathering(e, op, tile, op.operands[2:], op.operands[1])
    once, pointer = first_copy(e, layout), e.dialect.pointer_type(window.place.space)

    def path(w: Window, width: int, tested: int) -> Values:
        for at in vectors(w, layout, width):
            guarded = width if at[w.unit] >= tested else 0
            address, offset, valid = row_of(e, w, jumps, at, guarded)
            cell = words.Cell("global", pointer, address, offset, conjunction(e, [once, valid]))
            words.store(e, cell, [held[n] for n in neighbours(at, w.unit, width)], tile.dtype)
        return {}

    by_paths(e, window, path)


Jumps = dict[int, dict[Coordinates, tuple[Number, str]]]


def gathering(
    e: LaneEmitter, op: Operation, tile: TileType, numbers: Sequence[Value], of: Value | None = None
) -> tuple[Window, Jumps]:
    """The window of a tile whose rows have numbers, as if all were 0; and how far each is. ``of``:
    the view, where it is not the first operand."""
    view = of or op.operands[0]
    dims, place = op.integers("dims"), e.places[view]
    rank, layout = len(place.sizes), layout_of(tile)
    of_view = strides_of(e, place)
    rows = {dims.index(d): held_at(e, v) for d, v in enumerate(numbers[:rank]) if v in e.tiles}
    first: Number = 0
    for axis, start in enumerate(numbers[:rank]):
        if start not in e.tiles:
            step = product(e, number(e.operand(start)), of_view[axis])
            first = total(e, first, step)
    base = moved(e, place.pointer, product(e, first, place.dtype.bytes))
    strides: list[Number] = [0 if a in rows else of_view[d] for a, d in enumerate(dims)]
    extents = [number(e.operand(v)) for v in numbers[rank:]]
    window = at_lane(e, tile, place, strides, extents, base, layout)
    bytes_ = window.vector * place.dtype.bytes
    if window.vector > 1:
        starts = [None if v in e.tiles else v for v in numbers[:rank]]
        known = known_alignment(e, view, starts, bytes_)
        window.vector = window.known = max(known // place.dtype.bytes, 1)
    jumps = {
        a: _jumps(e, held, tile_type(numbers[dims[a]]).dtype, place, of_view[dims[a]], dims[a])
        for a, held in rows.items()
    }
    return window, jumps


def row_of(
    e: LaneEmitter, w: Window, jumps: Jumps, at: Coordinates, guarded: int
) -> tuple[str, int, str]:
    """Address and offset of a register in its row, and whether that is there; ``guarded``
    neighbours are tested against the extents."""
    address, offset = w.address(e, at)
    tests = [w.inside(e, at, guarded) if guarded else ""]
    for axis, jump in jumps.items():
        distance, valid = jump[(at[axis],)]
        address = moved(e, address, distance)
        tests.append(valid)
    return address, offset, conjunction(e, tests)


def _jumps(
    e: LaneEmitter, held: Mapping[Coordinates, str], dtype: DType, place: Place, stride: Number,
    axis: int,
) -> dict[Coordinates, tuple[Number, str]]:  # fmt: skip
    """Bytes to the row of each register of a tile of numbers, and whether it is in the view."""
    found: dict[Coordinates, tuple[Number, str]] = {}
    for at, narrow in held.items():
        operand = as_index(e, narrow, dtype)
        valid = e.f.value(f"icmp ult i64 {operand}, {place.sizes[axis]}")
        step = product(e, product(e, operand, stride), place.dtype.bytes)
        found[at] = (step, valid)
    return found


# --- registers as they are --------------------------------------------------------------------


def _put_down(e: LaneEmitter, op: Operation) -> None:
    held = held_at(e, op.operands[0])
    dtype = tile_type(op.operands[0]).dtype
    for cell, group in _pieces(e, op, list(held)):
        words.store(e, cell, [held[at] for at in group], dtype)


def _take_up(e: LaneEmitter, op: Operation) -> None:
    """All pieces are asked for before the first is added; registers decide how many can be."""
    held = held_at(e, op.operands[0])
    dtype = tile_type(op.operands[0]).dtype
    found: Values = {}
    for cell, group in _pieces(e, op, list(held)):
        found.update(zip(group, words.load(e, cell, dtype, len(group)), strict=True))
    bind_at(e, op.result, lambda at: apply(e, "tile.add", dtype, held[at], found[at]))


def _pieces(
    e: LaneEmitter, op: Operation, places: Sequence[Coordinates]
) -> Iterator[tuple[words.Cell, Sequence[Coordinates]]]:
    """Pieces of up to 16 bytes of a lane, those of neighbouring lanes next to each other."""
    view, start = op.operands[1:]
    tile = tile_type(op.operands[0])
    size, lanes = tile.dtype.bytes, lanes_of(layout_of(tile))
    base = moved(e, e.places[view].pointer, product(e, number(e.operand(start)), size))
    lane, pointer = e.dialect.lane_linear(e), e.dialect.pointer_type("global")
    starts: dict[int, str] = {}
    width = VECTOR_BYTES // size
    for first in _steps(len(places), width):
        count = min(width, 1 << ((len(places) - first).bit_length() - 1))
        if count not in starts:
            starts[count] = moved(e, base, product(e, lane, count * size))
        cell = words.Cell("global", pointer, starts[count], first * lanes * size)
        yield cell, places[first : first + count]


def _steps(total: int, width: int) -> Iterator[int]:
    """Where pieces begin: whole ones, then halves of what is left."""
    first = 0
    while first < total:
        yield first
        first += min(width, 1 << ((total - first).bit_length() - 1))


RULES: dict[str, Rule] = {
    "tile.put_down": _put_down,
    "tile.take_up": _take_up,
    "tile.load_tile": _load,
    "tile.store_tile": _store,
    "tile.gather_tile": _gather,
    "tile.scatter_tile": _scatter,
}
