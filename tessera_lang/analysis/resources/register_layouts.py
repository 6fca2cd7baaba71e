"""Layouts of register tiles: the ones that the hardware knows, and queries on any layout.

Owns the constructors (fragments of ``mma.sync`` and ``wgmma``, blocked tiles), what a change of
layout costs, how wide an access can be, and how many banks of shared memory collide. Must not
know operations, targets or text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from math import gcd, prod
from typing import Literal

from tessera_lang.ir.core import BufferType, TileType
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.target.arch.isa_constants import BANK_BYTES, BANKS, VECTOR_BYTES, WARP
from tessera_lang.types.dtype import DTYPES, DType

Conversion = Literal["nothing", "repack", "shared"]
"""``nothing``: the registers stay as they are; ``repack``: a lane reorders its own;
``shared``: lanes exchange through shared memory."""


# --- the algebra ------------------------------------------------------------------------------


def canonical(layout: RegisterLayout) -> RegisterLayout:
    """The shortest layout with the same meaning: no modes of one value, neighbours merged."""
    return RegisterLayout(_merged(layout.registers), _merged(layout.lanes), _merged(layout.warps))


def _merged(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    out: list[Mode] = []
    for m in modes:
        if m.extent == 1:
            continue
        last = out[-1] if out else None
        if last is not None and last.axis == m.axis:
            if m.axis is None:
                out[-1] = Mode(last.extent * m.extent, None)
                continue
            if m.stride == last.extent * last.stride:
                out[-1] = Mode(last.extent * m.extent, m.axis, last.stride)
                continue
        out.append(m if m.axis is not None else Mode(m.extent, None))
    return tuple(out)


@functools.lru_cache(maxsize=1024)
def register_coordinates(layout: RegisterLayout, rank: int) -> tuple[tuple[int, ...], ...]:
    """What each register adds to the coordinates, in order of the registers."""
    return tuple(layout.coordinates(r, 0, 0, rank) for r in range(layout.register_count))


@functools.lru_cache(maxsize=1024)
def registers_at(layout: RegisterLayout, rank: int) -> dict[tuple[int, ...], int]:
    """The first register with each of the coordinates of ``register_coordinates``."""
    found: dict[tuple[int, ...], int] = {}
    for number, at in enumerate(register_coordinates(layout, rank)):
        found.setdefault(at, number)
    return found


def lanes_of(layout: RegisterLayout) -> int:
    """How many lanes hold a tile together."""
    return WARP * prod(m.extent for m in layout.warps)


def held_elements(tile: TileType) -> int:
    """Elements that all lanes hold of a tile, copies in other lanes too."""
    assert tile.layout is not None
    return len(registers_at(tile.layout, len(tile.shape))) * lanes_of(tile.layout)


def transposed(layout: RegisterLayout, permutation: Sequence[int]) -> RegisterLayout:
    """The layout of a tile whose axis i is axis ``permutation[i]`` of the old one."""
    to = {old: new for new, old in enumerate(permutation)}

    def renamed(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
        return tuple(m if m.axis is None else Mode(m.extent, to[m.axis], m.stride) for m in modes)

    return RegisterLayout(renamed(layout.registers), renamed(layout.lanes), renamed(layout.warps))


def covers(layout: RegisterLayout, shape: Sequence[int]) -> bool:
    """Whether the modes of each axis cover 0 .. size-1, each once; cheap."""
    for axis, size in enumerate(shape):
        modes = [
            m
            for m in (*layout.registers, *layout.lanes, *layout.warps)
            if m.axis == axis and m.extent > 1
        ]
        reached = 1
        for m in sorted(modes, key=lambda m: m.stride):
            if m.stride != reached:
                return False
            reached *= m.extent
        if reached != size:
            return False
    return prod(m.extent for m in layout.lanes) == WARP


# --- fragments of the matrix units ------------------------------------------------------------


def mma_depth(dtype: DType) -> int:
    """Contraction of one ``mma.sync`` on operands of a dtype: 32 bytes."""
    return 32 // dtype.bytes


def _fragment_rows(
    shape: Sequence[int], dtype: DType, warps: tuple[Mode, ...], rows: int, step: int
) -> RegisterLayout:
    """A: 16 x 32 bytes fragments; a lane holds words of 4 bytes along the contraction."""
    word, depth = max(1, 4 // dtype.bytes), mma_depth(dtype)
    registers = (
        Mode(word, 1, 1), Mode(2, 0, 8), Mode(2, 1, depth // 2),
        Mode(shape[1] // depth, 1, depth), Mode(rows // step, 0, step),
    )  # fmt: skip
    return canonical(RegisterLayout(registers, (Mode(4, 1, word), Mode(8, 0, 1)), warps))


def _accumulator(rows: int, columns: int, warps: tuple[Mode, ...], step: int) -> RegisterLayout:
    registers = (
        Mode(2, 1, 1),
        Mode(2, 0, 8),
        Mode(columns // 8, 1, 8),
        Mode(rows // step, 0, step),
    )
    return canonical(RegisterLayout(registers, (Mode(4, 1, 2), Mode(8, 0, 1)), warps))


def mma_c(shape: Sequence[int], warps_m: int, warps_n: int) -> RegisterLayout:
    """The accumulator of ``mma.sync``: 16 x 8 fragments, one block of the tile a warp."""
    rows, columns = shape[0] // warps_m, shape[1] // warps_n
    warps = (Mode(warps_m, 0, rows), Mode(warps_n, 1, columns))
    return _accumulator(rows, columns, warps, 16)


def mma_a(shape: Sequence[int], warps_m: int, warps_n: int, dtype: DType) -> RegisterLayout:
    """The left operand ``m x k`` that goes with ``mma_c`` of the same warps."""
    rows = shape[0] // warps_m
    warps = (Mode(warps_m, 0, rows), Mode(warps_n, None))
    return _fragment_rows(shape, dtype, warps, rows, 16)


def mma_b(shape: Sequence[int], warps_m: int, warps_n: int, dtype: DType) -> RegisterLayout:
    """The right operand ``k x n`` that goes with ``mma_c`` of the same warps."""
    word, depth = max(1, 4 // dtype.bytes), mma_depth(dtype)
    columns = shape[1] // warps_n
    registers = (
        Mode(word, 0, 1), Mode(2, 0, depth // 2), Mode(shape[0] // depth, 0, depth),
        Mode(columns // 8, 1, 8),
    )  # fmt: skip
    warps = (Mode(warps_m, None), Mode(warps_n, 1, columns))
    return canonical(RegisterLayout(registers, (Mode(4, 0, word), Mode(8, 1, 1)), warps))


def _group_warps(rows: int, groups: int) -> tuple[Mode, ...]:
    return (Mode(4, 0, 16), Mode(groups, 0, rows // groups))


def wgmma_c(shape: Sequence[int], groups: int) -> RegisterLayout:
    """The accumulator of ``wgmma``: each of ``groups`` warp groups has its block of rows."""
    rows, columns = shape
    return _accumulator(rows // groups, columns, _group_warps(rows, groups), 64)


def wgmma_a(shape: Sequence[int], groups: int, dtype: DType) -> RegisterLayout:
    """The left operand of ``wgmma`` in registers, ``m x k``."""
    rows = shape[0]
    return _fragment_rows(shape, dtype, _group_warps(rows, groups), rows // groups, 64)


# --- blocked tiles ----------------------------------------------------------------------------


def _two_power(number: int, most: int) -> int:
    """The largest power of two that divides ``number`` and is at most ``most``."""
    return gcd(number, 1 << (max(most, 1).bit_length() - 1))


def blocked(
    shape: Sequence[int], vector: int, warps: int, order: Sequence[int] | None = None,
    beside: bool = False,
) -> RegisterLayout:  # fmt: skip
    """Neighbouring lanes hold neighbouring vectors along the first axis of ``order``.

    ``order``: axes, fastest first (row-major without it). Lanes fill the fast axes, warps the
    slow ones (``beside``: the fast ones too), what is left lies in registers; sizes that no power
    of two divides too. Lanes and warps that find nothing to hold have copies. ``vector`` is the
    most: a size of an odd number of vectors leaves lanes without any, and narrower ones need fewer
    registers.
    """
    axes = tuple(order) if order is not None else tuple(reversed(range(len(shape))))
    best = _blocked(shape, vector, warps, axes, beside)
    while vector > 1:
        vector //= 2
        narrower = _blocked(shape, vector, warps, axes, beside)
        if narrower.register_count < best.register_count:
            best = narrower
    return best


def gathered(
    shape: Sequence[int], vector: int, warps: int, rows: int
) -> tuple[RegisterLayout, RegisterLayout]:
    """How lanes share a matrix whose rows, along axis ``rows``, they copy one by one in pieces of
    ``vector`` elements; and how the numbers of the rows lie for it."""
    layout = blocked(shape, vector, warps, (1 - rows, rows))
    return layout, canonical(layout.without_axis(1 - rows))


def _blocked(
    shape: Sequence[int], vector: int, warps: int, axes: tuple[int, ...], beside: bool
) -> RegisterLayout:
    left = list(shape)
    reached = [1] * len(shape)

    def take(axis: int, count: int) -> Mode:
        mode = Mode(count, axis, reached[axis])
        reached[axis] *= count
        left[axis] //= count
        return mode

    registers = [take(axes[0], _two_power(left[axes[0]], vector))] if axes else []
    lanes: list[Mode] = []
    free = WARP
    for axis in axes:
        count = _two_power(left[axis], free)
        lanes.append(take(axis, count))
        free //= count
    lanes.append(Mode(free, None))
    held: list[Mode] = []
    for axis in axes if beside else reversed(axes):
        count = gcd(left[axis], warps)
        held.append(take(axis, count))
        warps //= count
    held.append(Mode(warps, None))
    registers += [take(axis, left[axis]) for axis in axes]
    return canonical(RegisterLayout(tuple(registers), tuple(lanes), tuple(held)))


# --- queries ----------------------------------------------------------------------------------


def vector_width(layout: RegisterLayout, axis: int, rank: int, most: int = VECTOR_BYTES) -> int:
    """Neighbours along ``axis`` that one lane holds, as a power of two up to ``most``.

    They begin at a multiple of that number, whatever the lane and the warp.
    """
    width = most
    for mode in (*layout.lanes, *layout.warps):
        if mode.axis == axis and mode.extent > 1:
            width = min(width, mode.stride & -mode.stride)
    held = registers_at(layout, rank)
    while width > 1 and not all(_run(held, at, axis, width) for at in held):
        width //= 2
    return width


def _run(held: dict[tuple[int, ...], int], at: tuple[int, ...], axis: int, width: int) -> bool:
    if at[axis] % width:
        return True
    return all((*at[:axis], at[axis] + i, *at[axis + 1 :]) in held for i in range(width))


def conversion(a: RegisterLayout, b: RegisterLayout, rank: int) -> Conversion:
    """What it takes to go from layout ``a`` to layout ``b`` of one tile."""
    a, b = canonical(a), canonical(b)
    if a == b:
        return "nothing"
    same = a.lanes == b.lanes and a.warps == b.warps
    if same and set(register_coordinates(b, rank)) <= set(registers_at(a, rank)):
        return "repack"
    return "shared"


def bank_degree(
    layout: RegisterLayout, buffer: BufferType, vector: int = 1, most_registers: int = 8
) -> int:
    """How many turns the worst access of a warp takes for one: 1 has no conflict.

    ``vector``: elements of the last axis but those of ``major`` 0 that move together.
    """
    shape, bytes_ = buffer.shape, buffer.dtype.bytes
    shared = buffer.layout or SharedLayout()
    rank = len(shape)
    width = max(vector * bytes_, 1)
    lanes_at_once = max(1, min(WARP, WARP * BANK_BYTES // width))
    worst = 1
    for register in range(0, min(layout.register_count, most_registers * vector), vector):
        for first in range(0, WARP, lanes_at_once):
            lines: dict[int, set[int]] = {}
            for lane in range(first, first + lanes_at_once):
                at = layout.coordinates(register, lane, 0, rank)
                start = shared.offset(at, shape, bytes_)
                for word in range(start // BANK_BYTES, -(-(start + width) // BANK_BYTES)):
                    lines.setdefault(word % BANKS, set()).add(word)
            worst = max(worst, *(len(words) for words in lines.values()))
    return worst


def warps_along(layout: RegisterLayout, axis: int) -> int:
    """Over how many warps the elements of an axis are spread."""
    return prod(m.extent for m in layout.warps if m.axis == axis)


def crosses_warps(layout: RegisterLayout, axis: int) -> bool:
    return warps_along(layout, axis) > 1


# --- scratch ----------------------------------------------------------------------------------

_BYTE = DTYPES["u8"]
_INDEX_BYTES = 4


def scratch_buffer(bytes_: int) -> BufferType:
    """Shared memory that an operation uses as it likes."""
    return BufferType(_BYTE, (max(bytes_, 1),))


def reduce_scratch(tile: TileType, axis: int, kind: str) -> int:
    """Bytes of scratch that ``tile.reduce_tile`` needs; 0 where one warp holds a whole row."""
    places = 1 if kind.startswith("arg") else 0
    return _partials(tile, axis, 1, places)


def scan_scratch(tile: TileType, axis: int) -> int:
    """Bytes of scratch that ``tile.scan_tile`` needs; 0 where one warp holds a whole row."""
    if tile.layout is None:
        return 0
    rows = prod(m.extent for m in tile.layout.registers if m.axis == axis)
    return _partials(tile, axis, rows, 0)


def _partials(tile: TileType, axis: int, rows: int, places: int) -> int:
    """One row of results per warp of the axis, then one of their places."""
    if tile.layout is None or not crosses_warps(tile.layout, axis):
        return 0
    count = warps_along(tile.layout, axis) * rows
    count *= prod(n for i, n in enumerate(tile.sizes) if i != axis)
    return -(-count * tile.dtype.bytes // 4) * 4 + count * _INDEX_BYTES * places


def staging_layouts(shape: Sequence[int], dtype: DType) -> tuple[SharedLayout, ...]:
    """Shared layouts worth trying for a row-major matrix that is written and read back once."""
    if len(shape) < 2:
        return (SharedLayout(),)
    columns, bytes_ = shape[-1], max(dtype.bytes, 1)
    found = [SharedLayout()]
    for pad in (4, 8, 16):
        if pad % bytes_ == 0:
            found.append(SharedLayout(pitch=columns + pad // bytes_))
    panel = 128 // bytes_
    if columns % panel == 0:
        found.append(SharedLayout(panel=panel, pitch=panel, swizzle=128))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def staging(
    a: RegisterLayout, b: RegisterLayout, shape: tuple[int, ...], dtype: DType
) -> BufferType:
    """The buffer through which a tile goes from ``a`` to ``b`` with the fewest conflicts."""
    best: tuple[float, int, BufferType] | None = None
    rank = len(shape)
    for shared in staging_layouts(shape, dtype):
        buffer = BufferType(dtype, shape, layout=shared if rank > 1 else None)
        cost = 0.0
        for layout in (a, b):
            width = shared_vector(layout, buffer, rank)
            cost += bank_degree(layout, buffer, width) / width
        size = shared.bytes(shape, max(dtype.bytes, 1))
        if best is None or (cost, size) < best[:2]:
            best = (cost, size, buffer)
    assert best is not None
    return best[2]


def shared_vector(layout: RegisterLayout, buffer: BufferType, rank: int) -> int:
    """Elements that a lane moves to or from a buffer at once."""
    shared = buffer.layout or SharedLayout()
    bytes_ = max(buffer.dtype.bytes, 1)
    axis = rank - 1 if shared.major == 1 or rank == 1 else rank - 2
    most = VECTOR_BYTES // bytes_
    _, _, width, pitch = shared.geometry(buffer.shape)
    for number in (width, pitch):
        most = min(most, number & -number)
    return vector_width(layout, axis, rank, most)


def convert_scratch(tile: TileType, to: RegisterLayout) -> int:
    """Bytes of scratch that ``tile.convert`` needs; 0 where no lanes exchange anything."""
    if tile.layout is None or conversion(tile.layout, to, len(tile.shape)) != "shared":
        return 0
    buffer = staging(tile.layout, to, tile.sizes, tile.dtype)
    layout = buffer.layout or SharedLayout()
    return layout.bytes(buffer.shape, max(tile.dtype.bytes, 1))
