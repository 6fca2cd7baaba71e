"""``tile.memcpy.async``: copies from global to shared memory by ``cp.async``.

Owns how the lanes of the role share a matrix: neighbouring lanes take neighbouring chunks along
the axis on which the view's elements are neighbours. Whole windows go without tests, the rest
with the number of bytes that are there: the hardware writes zeros for the others. Must not know
operations on tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import (
    Term,
    bits_below,
    conjunction,
    dialect_of,
    sum_of,
)
from tessera_backend.nvptx.tiles.folding_builder import Number, number, product, total, widened
from tessera_backend.nvptx.tiles.shared_addressing import Cells, Start, base_of, starts_of
from tessera_backend.nvptx.tiles.view_addressing import strides_of
from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """Chunks of a matrix by lane: ``columns`` lanes along a line, ``rows`` lines at once;
    ``across`` chunks of a line and ``down`` lines a lane takes one after the other. ``over``:
    whether some lanes have no chunk in the last turn along a line, or no line in the last down.
    """

    columns: int
    rows: int
    across: int
    down: int
    over_across: bool
    over_down: bool


def share(lanes: int, lines: int, chunks: int) -> Share:
    """How ``lanes`` share ``lines`` of ``chunks``."""
    columns = chunks & -chunks
    if columns < min(4, chunks):
        columns = 1 << (chunks - 1).bit_length()
    columns = min(columns, 1 << (lanes.bit_length() - 1))
    rows = max(lanes // columns, 1)
    across, down = -(-chunks // columns), -(-lines // rows)
    return Share(columns, rows, across, down, bool(chunks % columns), bool(lines % rows))


@dataclass(slots=True)
class _Copy:
    """One copy: everything that its paths share. Pairs are of the line, and of the place along
    it; ``swapped``: lines are the second axis of the buffer's matrix."""

    vector: int
    element: int
    share: Share
    lines: int
    chunks: int
    cells: Cells
    lane: str
    line: str
    column: str
    strides: tuple[Number, Number]
    extents: tuple[Number, Number]
    swapped: bool
    exists: str

    @property
    def per_chunk(self) -> int:
        return self.vector // self.element


def _memcpy(e: LaneEmitter, op: Operation) -> None:
    copy = _prepare(e, op)
    f = e.f
    tests = [
        f.value(f"icmp sge i64 {extent}, {size}")
        for extent, size in zip(
            copy.extents, (copy.lines, copy.chunks * copy.per_chunk), strict=True
        )
        if extent != size
    ]
    whole = conjunction(e, tests)
    after = f.label("copied")
    if copy.exists:
        some = f.label("some")
        f.branch_if(copy.exists, some, after)
        f.place(some)
    if whole:
        here, part = f.label("whole"), f.label("part")
        f.branch_if(whole, here, part)
        f.place(here)
        _emit(e, copy, guarded=False)
        f.branch(after)
        f.place(part)
    _emit(e, copy, guarded=bool(whole))
    f.place(after)


def _prepare(e: LaneEmitter, op: Operation) -> _Copy:
    view, buffer, *numbers = op.operands
    t = buffer.buffer_type
    vector = op.integer("vector")
    dims, steps = op.integers("dims"), op.integers("steps")
    place, rank = e.places[view], len(dims)
    axes = len(place.sizes)
    starts, extents = numbers[:axes], numbers[axes : axes + rank]
    inner = starts_of(e, numbers[axes + rank :])
    probe = Cells(e, "0", t, inner, (), rank)
    along = probe.along - (len(t.shape) - rank)
    of_view = strides_of(e, place)
    first: Number = 0
    for start, stride in zip(starts, of_view, strict=True):
        first = total(e, first, product(e, number(e.operand(start)), stride))
    strides = [product(e, of_view[d], s) for d, s in zip(dims, steps, strict=True)]
    per_chunk = vector // place.dtype.bytes
    if per_chunk > 1 and strides[along] != 1:
        raise ValueError("chunks of several elements run along neighbours of the view")
    if not probe.contiguous(per_chunk):
        raise ValueError("chunks of a copy do not stay together in the buffer")
    if per_chunk == 1 and strides[along] != 1 and 1 in strides:
        along = strides.index(1)  # single elements: lanes read neighbours, and write apart
    sizes = t.shape[len(t.shape) - rank :]
    lines = sizes[1 - along] if rank == 2 else 1
    made = share(dialect_of(e).role.lanes, lines, sizes[along] // per_chunk)
    return _shared_out(
        e, _Parts(op, t, made, per_chunk, along, rank, lines, sizes[along] // per_chunk),
        first, strides, [number(e.operand(v)) for v in extents], inner,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Parts:
    op: Operation
    buffer: BufferType
    share: Share
    per_chunk: int
    along: int
    rank: int
    lines: int
    chunks: int


def _shared_out(
    e: LaneEmitter, p: _Parts, first: Number, strides: Sequence[Number],
    extents: Sequence[Number], inner: Sequence[Start],
) -> _Copy:  # fmt: skip
    """What this lane copies: its first chunk, and the terms of its addresses."""
    f, s = e.f, p.share
    linear = f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    column = f.value(f"urem i32 {linear}, {s.columns}") if s.columns > 1 else ""
    row = f.value(f"udiv i32 {linear}, {s.columns}") if p.rank == 2 or s.rows > 1 else ""
    terms: list[Term] = []
    if column:
        terms.append(Term(p.along, column, p.per_chunk, bits_below(s.columns)))
    if row and p.rank == 2:
        terms.append(Term(1 - p.along, row, 1, bits_below(s.rows)))
    place = e.places[p.op.operands[0]]
    cells = Cells(e, base_of(e, e.places[p.op.operands[1]].pointer), p.buffer, inner, terms, p.rank)
    at_column = sum_of(e, [t for t in terms if t.axis == p.along])
    both: tuple[Number, Number] = (0, strides[0]) if p.rank == 1 else (
        strides[1 - p.along], strides[p.along],
    )  # fmt: skip
    distance = total(e, first, product(e, widened(e, at_column), both[1]))
    distance = total(e, distance, product(e, widened(e, row if p.rank == 2 else ""), both[0]))
    moved = product(e, distance, place.dtype.bytes)
    lane = place.pointer
    if moved != 0:
        lane = f.value(f"getelementptr i8, ptr addrspace(1) {place.pointer}, i64 {moved}")
    used = s.rows * s.columns
    exists = ""
    if used < dialect_of(e).role.lanes or (p.rank == 1 and s.rows > 1):
        exists = f.value(f"icmp ult i32 {linear}, {used if p.rank == 2 else s.columns}")
    there: tuple[Number, Number] = (1, extents[0]) if p.rank == 1 else (
        extents[1 - p.along], extents[p.along],
    )  # fmt: skip
    vector = p.per_chunk * place.dtype.bytes
    return _Copy(
        vector, place.dtype.bytes, s, p.lines, p.chunks, cells, lane,
        row if p.rank == 2 else "", at_column, both, there, p.along == 0, exists,
    )  # fmt: skip


def _emit(e: LaneEmitter, c: _Copy, *, guarded: bool) -> None:
    c.cells.forget()
    for down in range(c.share.down):
        line = down * c.share.rows
        row = _distance(e, c, line)
        for across in range(c.share.across):
            chunk = across * c.share.columns
            _chunk(e, c, line, chunk, row, guarded)


def _distance(e: LaneEmitter, c: _Copy, line: int) -> str:
    """The lane's address in a later line."""
    bytes_ = product(e, product(e, c.strides[0], line), c.element)
    if bytes_ == 0:
        return c.lane
    return e.f.value(f"getelementptr i8, ptr addrspace(1) {c.lane}, i64 {bytes_}")


def _chunk(e: LaneEmitter, c: _Copy, line: int, chunk: int, row: str, guarded: bool) -> None:
    f = e.f
    step = chunk * c.per_chunk
    at = (step, line) if c.swapped else (line, step)
    target, offset = c.cells.at(at if c.cells.rank == 2 else (step,))
    source, added = row, product(e, product(e, c.strides[1], step), c.element)
    if not isinstance(added, int):
        source = f.value(f"getelementptr i8, ptr addrspace(1) {row}, i64 {added}")
        added = 0
    cache = "cg" if c.vector == 16 else "ca"
    name = f"cp.async.{cache}.shared.global"
    inputs = [(f"i32 {target}", "r"), (f"ptr addrspace(1) {source}", "l")]
    text = f"{name} [$0+{offset}], [$1+{added}], {c.vector}"
    if guarded:
        inputs.append((f"i32 {_bytes_there(e, c, line, step)}", "r"))
        text += ", $2"
    exists = _chunk_exists(e, c, line, chunk)
    if exists:
        text = f"@${len(inputs)} {text}"
        inputs.append((f"i1 {exists}", "b"))
    words.assembly(e, f"{text};", (), inputs)


def _chunk_exists(e: LaneEmitter, c: _Copy, line: int, chunk: int) -> str:
    """Whether this lane has this chunk at all ("" if surely)."""
    f, tests = e.f, list[str]()
    if c.share.over_down and line + c.share.rows > c.lines and c.line:
        tests.append(f.value(f"icmp ult i32 {c.line}, {c.lines - line}"))
    if c.share.over_across and chunk + c.share.columns > c.chunks and c.column:
        limit = (c.chunks - chunk) * c.per_chunk
        tests.append(f.value(f"icmp ult i32 {c.column}, {limit}"))
    return conjunction(e, tests)


def _bytes_there(e: LaneEmitter, c: _Copy, line: int, step: int) -> str:
    """Bytes of the chunk inside the extents: 0 to ``vector``."""
    f = e.f
    lines, along = (
        str(x) if isinstance(x, int) else f.value(f"trunc i64 {x} to i32") for x in c.extents
    )
    place = f.value(f"add i32 {c.column or 0}, {step}")
    left = f.value(f"sub i32 {along}, {place}")
    left = f.value(f"call i32 @llvm.smax.i32(i32 {left}, i32 0)")
    left = f.value(f"call i32 @llvm.smin.i32(i32 {left}, i32 {c.per_chunk})")
    e.module.declare("i32 @llvm.smax.i32(i32, i32)")
    e.module.declare("i32 @llvm.smin.i32(i32, i32)")
    bytes_ = f.value(f"mul i32 {left}, {c.element}")
    at_line = f.value(f"add i32 {c.line or 0}, {line}")
    inside = f.value(f"icmp slt i32 {at_line}, {lines}")
    return f.value(f"select i1 {inside}, i32 {bytes_}, i32 0")


def _commit(e: LaneEmitter, op: Operation) -> None:
    words.assembly(e, "cp.async.commit_group;", (), ())


def _wait(e: LaneEmitter, op: Operation) -> None:
    words.assembly(e, f"cp.async.wait_group {op.attributes['pending']};", (), ())


RULES: dict[str, Rule] = {
    "tile.memcpy.async": _memcpy,
    "tile.memcpy.commit": _commit,
    "tile.memcpy.wait": _wait,
}
