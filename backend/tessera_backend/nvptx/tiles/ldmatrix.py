"""Registers of a tile as 8x8 matrices: ``ldmatrix`` and ``stmatrix``.

Owns whether a layout is made of such matrices of a buffer, which lane gives the address of which
line, and the instructions. Must not know operations on tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import Term, lane_in_warp, warp_terms
from tessera_backend.nvptx.tiles.elementwise import Coordinates
from tessera_backend.nvptx.tiles.shared_addressing import Cells
from tessera_lang.analysis.resources.register_layouts import canonical
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.types.dtype import DType

Values = dict[Coordinates, str]


@dataclass(frozen=True, slots=True)
class Matrices:
    """How the registers of a layout make 8x8 matrices (of 16-byte lines) of a buffer.

    ``word``: elements of a 32-bit register. ``steps``: coordinates from one matrix of an access
    to the next (none, one or two bits: 1, 2 or 4 matrices). ``firsts``: coordinates of the first
    matrix of each access.
    """

    transposed: bool
    word: int
    steps: tuple[Coordinates, ...]
    firsts: tuple[Coordinates, ...]
    along: int
    line: int


def matrices_of(layout: RegisterLayout, rank: int, cells: Cells) -> Matrices | None:
    """None where the registers are no such matrices."""
    lead = len(cells.buffer.shape) - rank
    along, line = cells.along - lead, cells.line - lead
    element = cells.buffer.dtype.bytes
    if rank < 2 or line < 0 or element not in (1, 2, 4) or cells.buffer.dtype.kind == "bool":
        return None
    word = 4 // element
    short = canonical(layout)
    registers, lanes = list(short.registers), short.lanes
    fast = lanes[0].axis if lanes else None
    if fast not in (along, line) or (fast == line and element != 2):
        return None
    other = line if fast == along else along
    if lanes != (Mode(4, fast, word), Mode(8, other, 1)):
        return None
    if word > 1:
        if not registers or registers[0].axis != fast or registers[0].stride != 1:
            return None
        if registers[0].extent % word:
            return None
        registers[0] = Mode(registers[0].extent // word, fast, word)
    if any(m.axis is None for m in registers) or not _aligned(short, registers, cells, along):
        return None
    return _grouped(registers, rank, fast != along, word, along, line)


def _aligned(layout: RegisterLayout, registers: Sequence[Mode], cells: Cells, along: int) -> bool:
    """Whether every line of a matrix is 16 aligned bytes."""
    per_line = VECTOR_BYTES // cells.buffer.dtype.bytes
    modes = [m for m in (*registers, *layout.warps) if m.axis == along and m.extent > 1]
    return all(m.stride % per_line == 0 for m in modes) and cells.contiguous(per_line)


def _grouped(
    registers: Sequence[Mode], rank: int, transposed: bool, word: int, along: int, line: int
) -> Matrices:
    left = [m for m in registers if m.extent > 1]
    steps: list[Coordinates] = []
    while left and len(steps) < 2 and left[0].extent % 2 == 0:
        first = left[0]
        assert first.axis is not None
        steps.append(tuple(first.stride if i == first.axis else 0 for i in range(rank)))
        left[0] = Mode(first.extent // 2, first.axis, first.stride * 2)
        if left[0].extent == 1:
            left.pop(0)
    rest = RegisterLayout(tuple(left), (), ())
    firsts = tuple(rest.coordinates(r, 0, 0, rank) for r in range(rest.register_count))
    return Matrices(transposed, word, tuple(steps), firsts, along, line)


def matrix_terms(e: LaneEmitter, layout: RegisterLayout, found: Matrices) -> list[Term]:
    """Lane l gives the address of line l % 8 of matrix l / 8."""
    f, lane = e.f, lane_in_warp(e)
    terms = [Term(found.line, f.value(f"and i32 {lane}, 7"), 1, 7)]
    for number, step in enumerate(found.steps):
        bit = f.value(f"and i32 {f.value(f'lshr i32 {lane}, {3 + number}')}, 1")
        terms += [Term(axis, bit, s, 1) for axis, s in enumerate(step) if s]
    return [*terms, *warp_terms(e, layout.warps)]


def _elements(found: Matrices, first: Coordinates) -> list[list[Coordinates]]:
    """For each matrix of an access, the coordinates of the elements of a lane's register."""
    places = [first]
    for step in found.steps:
        places += [tuple(a + b for a, b in zip(p, step, strict=True)) for p in places]
    axis = found.line if found.transposed else found.along
    return [
        [(*p[:axis], p[axis] + i, *p[axis + 1 :]) for i in range(found.word)] for p in places
    ]  # fmt: skip


def _mnemonic(name: str, found: Matrices) -> str:
    trans = ".trans" if found.transposed else ""
    return f"{name}.sync.aligned.m8n8.x{1 << len(found.steps)}{trans}.shared.b16"


def load_matrices(e: LaneEmitter, cells: Cells, found: Matrices, shift: Coordinates) -> Values:
    dtype = cells.buffer.dtype
    count = 1 << len(found.steps)
    listed = ", ".join(f"${i}" for i in range(count))
    out: Values = {}
    for first in found.firsts:
        address, offset = cells.at(plus_all(first, shift))
        text = f"{_mnemonic('ldmatrix', found)} {{{listed}}}, [${count}+{offset}];"
        made = words.assembly(e, text, [("i32", "r")] * count, [(f"i32 {address}", "r")])
        for word, places in zip(made, _elements(found, first), strict=True):
            values = words.unpack(e, [word], dtype, found.word)
            out.update(zip(places, values, strict=True))
    return out


def store_matrices(
    e: LaneEmitter, cells: Cells, found: Matrices, held: Values, dtype: DType
) -> None:
    count = 1 << len(found.steps)
    listed = ", ".join(f"${i + 1}" for i in range(count))
    for first in found.firsts:
        address, offset = cells.at(first)
        inputs = [(f"i32 {address}", "r")]
        for places in _elements(found, first):
            (word,) = words.pack(e, [held[p] for p in places], dtype)
            inputs.append((f"i32 {word}", "r"))
        text = f"{_mnemonic('stmatrix', found)} [$0+{offset}], {{{listed}}};"
        words.assembly(e, text, (), inputs)


def plus_all(a: Coordinates, b: Coordinates) -> Coordinates:
    return tuple(x + y for x, y in zip(a, b, strict=True))
