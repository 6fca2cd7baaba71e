"""Register tiles to and from shared memory: ``read_tile``, ``write_tile``, ``convert``.

Matrix fragments go by ``ldmatrix`` and ``stmatrix``, everything else by the widest vectors that
layout and buffer allow. Must not know how addresses are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import Term, dialect_of, first_copy, terms_of
from tessera_backend.nvptx.tiles.elementwise import (
    Coordinates,
    bind_at,
    held_at,
    layout_of,
    tile_type,
)
from tessera_backend.nvptx.tiles.ldmatrix import (
    Matrices,
    load_matrices,
    matrices_of,
    matrix_terms,
    plus_all,
    store_matrices,
)
from tessera_backend.nvptx.tiles.shared_addressing import Cells, Start, base_of, starts_of
from tessera_lang.analysis.resources.register_layouts import (
    VECTOR_BYTES,
    conversion,
    registers_at,
    staging,
    vector_width,
)
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.ir.definitions import BARRIERS
from tessera_lang.ir.layout import RegisterLayout, SharedLayout
from tessera_lang.record import dataclass

Values = dict[Coordinates, str]


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer and where an access begins in it: ``base`` is an i32 address."""

    base: str
    buffer: BufferType
    starts: tuple[Start, ...]


def memory_of(e: LaneEmitter, buffer: Value, starts: Sequence[Value]) -> Memory:
    t = buffer.type
    if not isinstance(t, BufferType):
        raise TypeError("a shared buffer was expected")
    return Memory(base_of(e, e.places[buffer].pointer), t, tuple(starts_of(e, starts)))


def cells_of(e: LaneEmitter, memory: Memory, terms: Sequence[Term], rank: int) -> Cells:
    return Cells(e, memory.base, memory.buffer, memory.starts, terms, rank)


# --- reads and writes -------------------------------------------------------------------------


def _vector(layout: RegisterLayout, rank: int, cells: Cells) -> tuple[int, int]:
    """Elements at once, and the axis of the tile they lie along."""
    axis = cells.along - (len(cells.buffer.shape) - rank)
    if axis < 0:
        return 1, 0
    most = VECTOR_BYTES // cells.buffer.dtype.bytes
    width = vector_width(layout, axis, rank, most)
    while width > 1 and not cells.contiguous(width):
        width //= 2
    return width, axis


def _run(at: Coordinates, axis: int, width: int) -> list[Coordinates]:
    return [(*at[:axis], at[axis] + i, *at[axis + 1 :]) for i in range(width)]


@dataclass(slots=True)
class Reader:
    """Reads of one layout from one buffer, at constant distances from each other: the lane's part
    of the addresses is computed once."""

    e: LaneEmitter
    layout: RegisterLayout
    rank: int
    cells: Cells
    matrices: Matrices | None

    def values(self, shift: Coordinates = ()) -> Values:
        """By the coordinates of the registers; ``shift`` (along the tile's axes) is added to
        where the memory begins, and keeps the alignment."""
        moved = shift or (0,) * self.rank
        if self.matrices is not None:
            return load_matrices(self.e, self.cells, self.matrices, moved)
        dtype = self.cells.buffer.dtype
        width, axis = _vector(self.layout, self.rank, self.cells)
        out: Values = {}
        for at in registers_at(self.layout, self.rank):
            if width > 1 and at[axis] % width:
                continue
            address, offset = self.cells.at(plus_all(at, moved))
            cell = words.Cell("shared", "i32", address, offset)
            values = words.load(self.e, cell, dtype, width)
            out.update(zip(_run(at, axis, width), values, strict=True))
        return out


def reader(e: LaneEmitter, memory: Memory, layout: RegisterLayout, rank: int) -> Reader:
    probe = Cells(e, memory.base, memory.buffer, memory.starts, (), rank)
    found = matrices_of(layout, rank, probe)
    terms = terms_of(e, layout) if found is None else matrix_terms(e, layout, found)
    return Reader(e, layout, rank, cells_of(e, memory, terms, rank), found)


def read(e: LaneEmitter, memory: Memory, layout: RegisterLayout, rank: int) -> Values:
    """The elements of a layout from a buffer, by the coordinates of their registers."""
    return reader(e, memory, layout, rank).values()


def write(e: LaneEmitter, memory: Memory, layout: RegisterLayout, rank: int, held: Values) -> None:
    """The elements of a layout to a buffer; of copies in several warps one is written."""
    once = first_copy(e, RegisterLayout((), (), layout.warps))
    if not once:
        _write(e, memory, layout, rank, held)
        return
    here, after = e.f.label("write"), e.f.label("written")
    e.f.branch_if(once, here, after)
    e.f.place(here)
    _write(e, memory, layout, rank, held)
    e.f.place(after)


def _write(e: LaneEmitter, memory: Memory, layout: RegisterLayout, rank: int, held: Values) -> None:
    dtype = memory.buffer.dtype
    probe = Cells(e, memory.base, memory.buffer, memory.starts, (), rank)
    found = matrices_of(layout, rank, probe)
    if found is not None and dtype.bytes == 2 and dialect_of(e).arch.has("stmatrix"):
        cells = cells_of(e, memory, matrix_terms(e, layout, found), rank)
        store_matrices(e, cells, found, held, dtype)
        return
    cells = cells_of(e, memory, terms_of(e, layout), rank)
    width, axis = _vector(layout, rank, cells)
    for at in registers_at(layout, rank):
        if width > 1 and at[axis] % width:
            continue
        address, offset = cells.at(at)
        cell = words.Cell("shared", "i32", address, offset)
        words.store(e, cell, [held[p] for p in _run(at, axis, width)], dtype)


def _read_tile(e: LaneEmitter, op: Operation) -> None:
    tile = tile_type(op.result)
    memory = memory_of(e, op.operands[0], op.operands[1:])
    values = read(e, memory, layout_of(tile), len(tile.shape))
    bind_at(e, op.result, values.__getitem__)


def _write_tile(e: LaneEmitter, op: Operation) -> None:
    value, buffer, *starts = op.operands
    tile = tile_type(value)
    memory = memory_of(e, buffer, starts)
    write(e, memory, layout_of(tile), len(tile.shape), held_at(e, value))


# --- change of layout -------------------------------------------------------------------------


def _convert(e: LaneEmitter, op: Operation) -> None:
    source, to = tile_type(op.operands[0]), tile_type(op.result)
    rank = len(to.shape)
    held = held_at(e, op.operands[0])
    if conversion(layout_of(source), layout_of(to), rank) != "shared":
        bind_at(e, op.result, held.__getitem__)
        return
    if len(op.operands) < 2:
        raise ValueError("lanes exchange elements: `tile.convert` needs a scratch buffer")
    scratch = op.operands[1]
    buffer = staging(layout_of(source), layout_of(to), to.sizes, to.dtype)
    check_scratch(scratch, _bytes(buffer))
    memory = Memory(
        base_of(e, e.places[scratch].pointer), buffer, (Start(0, 1),) * rank
    )  # fmt: skip
    begin_scratch(e, scratch)
    write(e, memory, layout_of(source), rank, held)
    e.dialect.barrier(e)
    values = read(e, memory, layout_of(to), rank)
    end_scratch(e, scratch)
    bind_at(e, op.result, values.__getitem__)


def _bytes(buffer: BufferType) -> int:
    return (buffer.layout or SharedLayout()).bytes(buffer.shape, buffer.dtype.bytes)


def check_scratch(scratch: Value, needed: int) -> None:
    """A scratch buffer that is too small is a fault of whoever built the operation."""
    t = scratch.buffer_type
    there = (t.layout or SharedLayout()).bytes(t.shape, t.dtype.bytes)
    if there < needed:
        raise ValueError(f"scratch of {there} bytes where {needed} are needed")


_SELF_ORDERED = BARRIERS - {"tile.barrier"}


def begin_scratch(e: LaneEmitter, scratch: Value) -> None:
    """Those who used the buffer before are done with it."""
    e.dialect.barrier(e)


def end_scratch(e: LaneEmitter, scratch: Value) -> None:
    """The buffer may be used for anything again: operations with scratch begin with a barrier,
    so only others need one here."""
    users = dialect_of(e).divisors.users(scratch)
    if any(user.name not in _SELF_ORDERED for user in users):
        e.dialect.barrier(e)


RULES: dict[str, Rule] = {
    "tile.read_tile": _read_tile,
    "tile.write_tile": _write_tile,
    "tile.convert": _convert,
}
