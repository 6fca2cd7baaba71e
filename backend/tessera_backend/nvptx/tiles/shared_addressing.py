"""Addresses of a lane's elements in a shared buffer: one base at run time, constants apart.

Owns the split of ``SharedLayout.offset`` into what depends on the lane (computed once) and what
depends on the register (an offset in the instruction). The swizzle is linear over the bits of
an address, so it splits too, wherever the constant has no bit in common with the rest; where it
has, the address is computed in full. Must not know what is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.nvptx.tiles.element_places import ALL_BITS, Term, dialect_of, sum_of
from tessera_backend.nvptx.tiles.folding_builder import Number, number
from tessera_lang.ir.core import BufferType, Value
from tessera_lang.ir.layout import SharedLayout, swizzled
from tessera_lang.record import dataclass, field

_SWIZZLED = 1024
"""Bytes after which a swizzle repeats."""

_MASKS = {0: 0, 32: 1, 64: 3, 128: 7}
"""Bits of a line's number, by the bytes of a swizzle, that its place in the line is moved by."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where an access begins along an axis: a number, or an i32 operand that ``divisor``
    divides."""

    at: Number
    divisor: int


def starts_of(e: LaneEmitter, values: Sequence[Value]) -> list[Start]:
    """Starts of an operation."""
    out: list[Start] = []
    for value in values:
        known = number(e.operand(value))
        if isinstance(known, int):
            out.append(Start(known, 1))
        else:
            narrow = e.f.value(f"trunc i64 {known} to i32")
            out.append(Start(narrow, dialect_of(e).divisors(value)))
    return out


def base_of(e: LaneEmitter, pointer: str) -> str:
    """A shared pointer as an i32 address."""
    return e.f.value(f"ptrtoint ptr addrspace(3) {pointer} to i32")


def _scaled(bits: int, factor: int) -> int:
    """Bits that a multiple of a number may have set."""
    if factor & (factor - 1) == 0:
        return bits * factor
    low = (bits & -bits) * (factor & -factor)
    return -low if bits else 0


def _joined(a: int, b: int) -> int:
    """Bits that a sum may have set."""
    both = a & b
    return a | b if not both else a | b | -(both & -both)


@dataclass(slots=True)
class Cells:
    """The cells of a buffer that a lane accesses, by what the register adds to its coordinates.

    ``terms`` belong to the axes of the tile, which are the last ones of the buffer.
    """

    e: LaneEmitter
    base: str
    buffer: BufferType
    starts: Sequence[Start]
    terms: Sequence[Term]
    rank: int
    _constant: list[int] = field(default_factory=list[int])
    _moving: list[list[Term]] = field(default_factory=list[list[Term]])
    _stage: str = ""
    _stage_offset: int = 0
    _bits: int = 0
    _within: str = ""
    _along: str = ""
    _found: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        shape = self.buffer.shape
        lead = len(shape) - self.rank
        self._moving = [[] for _ in shape]
        self._constant = [0] * len(shape)
        for axis, start in enumerate(self.starts):
            if isinstance(start.at, int):
                self._constant[axis] = start.at
            else:
                bits = ALL_BITS & ~(start.divisor - 1)
                self._moving[axis].append(Term(axis, start.at, 1, bits))
        for term in self.terms:
            axis = term.axis + lead
            self._moving[axis].append(Term(axis, term.operand, term.factor, term.bits))
        self._prepare()

    # --- geometry ---------------------------------------------------------------------------

    @property
    def layout(self) -> SharedLayout:
        return self.buffer.layout or SharedLayout()

    @property
    def along(self) -> int:
        """The axis of the buffer whose elements are neighbours."""
        last = len(self.buffer.shape) - 1
        return last if self.layout.major == 1 or last == 0 else last - 1

    @property
    def line(self) -> int:
        """The other axis of the matrix; -1 for a buffer of one axis."""
        last = len(self.buffer.shape) - 1
        return -1 if last == 0 else 2 * last - 1 - self.along

    def _prepare(self) -> None:
        """What the lane adds to every address: the stage, and the place in the matrix."""
        e, shape, element = self.e, self.buffer.shape, self.buffer.dtype.bytes
        _, _, _, pitch = self.layout.geometry(shape)
        matrix = self.layout.matrix_bytes(shape, element)
        stage: list[Term] = []
        for axis in range(len(shape) - 2):
            factor = prod(shape[axis + 1 : -2]) * matrix
            self._stage_offset += self._constant[axis] * factor
            stage += [Term(0, t.operand, t.factor * factor, t.bits) for t in self._moving[axis]]
        moved = sum_of(e, stage)
        self._stage = e.f.value(f"add i32 {self.base}, {moved}") if moved else self.base
        lines = self._moving[self.line] if self.line >= 0 else []
        self._along = sum_of(e, self._moving[self.along])
        lined = sum_of(e, lines, pitch * element)
        for term in lines:
            self._bits = _joined(self._bits, _scaled(term.bits, term.factor * pitch * element))
        along = self._moving_bytes(self._along)
        for term in self._moving[self.along]:
            self._bits = _joined(self._bits, self._along_bits(term))
        self._within = e.f.value(f"add i32 {lined}, {along}") if lined and along else lined or along

    def _along_bits(self, term: Term) -> int:
        """Bits of the byte that a term of the contiguous axis may set."""
        element = self.buffer.dtype.bytes
        panels, lines, width, pitch = self.layout.geometry(self.buffer.shape)
        bits = _scaled(term.bits, term.factor)
        if panels == 1 or width & (width - 1):
            return _scaled(bits, element)
        panel = _scaled(bits // width, lines * pitch * element)
        return _joined(_scaled(bits & (width - 1), element), panel)

    def _moving_bytes(self, along: str) -> str:
        """Bytes of a place along the contiguous axis (i32, "" for 0), panels included."""
        e, element = self.e, self.buffer.dtype.bytes
        panels, lines, width, pitch = self.layout.geometry(self.buffer.shape)
        if not along:
            return ""
        if panels == 1:
            return e.f.value(f"mul i32 {along}, {element}")
        panel = e.f.value(f"udiv i32 {along}, {width}")
        within = e.f.value(f"urem i32 {along}, {width}")
        a = e.f.value(f"mul i32 {panel}, {lines * pitch * element}")
        return e.f.value(f"add i32 {a}, {e.f.value(f'mul i32 {within}, {element}')}")

    def _known_bytes(self, along: int, line: int) -> int:
        element = self.buffer.dtype.bytes
        _, lines, width, pitch = self.layout.geometry(self.buffer.shape)
        panel, within = divmod(along, width)
        return (panel * lines * pitch + line * pitch + within) * element

    def forget(self) -> None:
        """What was computed since this was made is not seen where the code goes on."""
        self._found.clear()

    # --- addresses --------------------------------------------------------------------------

    def at(self, coordinates: Sequence[int]) -> tuple[str, int]:
        """Address (i32) and offset in bytes of the element the register adds these to."""
        lead = len(self.buffer.shape) - self.rank
        full = [
            c + (coordinates[i - lead] if i >= lead else 0) for i, c in enumerate(self._constant)
        ]
        stage = self._stage_offset
        for axis in range(len(self.buffer.shape) - 2):
            step = full[axis] - self._constant[axis]
            matrix = self.layout.matrix_bytes(self.buffer.shape, self.buffer.dtype.bytes)
            stage += step * prod(self.buffer.shape[axis + 1 : -2]) * matrix
        along, line = full[self.along], full[self.line] if self.line >= 0 else 0
        if not self._panels_split(along):
            return self._in_full(along, line), stage
        constant = self._known_bytes(along, line)
        if not self.layout.swizzle:
            return self._sum(0), stage + constant
        low = constant % _SWIZZLED
        if self._bits & low:
            return self._in_full(along, line), stage
        moved = swizzled(low, self.layout.swizzle)
        own = moved & self._swizzled_bits()  # the rest is a sum: it needs no address of its own
        return self._sum(own), stage + constant - low + moved - own

    def _panels_split(self, along: int) -> bool:
        """Whether the constant part carries nothing over into the next panel."""
        panels, _, width, _ = self.layout.geometry(self.buffer.shape)
        if panels == 1 or not self._along:
            return True
        bits = 0
        for term in self._moving[self.along]:
            bits = _joined(bits, _scaled(term.bits, term.factor))
        return width & (width - 1) == 0 and not bits & along & (width - 1)

    def _sum(self, low: int) -> str:
        """The lane's part with the swizzled constant ``low``."""
        if low not in self._found:
            e = self.e
            inner = self._swizzled(self._within)
            if low:
                inner = e.f.value(f"xor i32 {inner}, {low}") if inner else str(low)
            self._found[low] = (
                e.f.value(f"add i32 {self._stage}, {inner}") if inner else self._stage
            )
        return self._found[low]

    def _swizzled_bits(self) -> int:
        """Bits that the lane's part may have set, swizzled."""
        return self._bits | self._bits >> 3 & _MASKS[self.layout.swizzle] << 4

    def _swizzled(self, byte: str) -> str:
        mask = _MASKS[self.layout.swizzle]
        if not mask or not byte:
            return byte
        f = self.e.f
        bits = f.value(f"and i32 {f.value(f'lshr i32 {byte}, 3')}, {mask << 4}")
        return f.value(f"xor i32 {byte}, {bits}")

    def _in_full(self, along: int, line: int) -> str:
        e, element = self.e, self.buffer.dtype.bytes
        _, _, _, pitch = self.layout.geometry(self.buffer.shape)
        place = self._along
        if along:
            place = e.f.value(f"add i32 {place}, {along}") if place else str(along)
        byte = self._moving_bytes(place) or "0"
        lined = sum_of(e, self._moving[self.line] if self.line >= 0 else [], pitch * element)
        if lined:
            byte = e.f.value(f"add i32 {byte}, {lined}")
        byte = e.f.value(f"add i32 {byte}, {line * pitch * element}")
        return e.f.value(f"add i32 {self._stage}, {self._swizzled(byte)}")

    # --- alignment --------------------------------------------------------------------------

    def contiguous(self, width: int) -> bool:
        """Whether ``width`` neighbours that begin at a multiple of it stay together, aligned."""
        shape = self.buffer.shape
        panels, _, line, pitch = self.layout.geometry(shape)
        bytes_ = width * self.buffer.dtype.bytes
        if self.layout.swizzle and bytes_ > 16:
            return False
        if len(shape) > 1 and pitch % width:
            return False
        if panels > 1 and line % width:
            return False
        start = self.starts[self.along]
        return (start.at if isinstance(start.at, int) else start.divisor) % width == 0
