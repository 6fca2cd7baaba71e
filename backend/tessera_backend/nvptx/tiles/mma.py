"""``tile.dot`` on the matrix units: ``mma.sync`` over the fragments of the tiles.

Owns which instruction multiplies which dtypes, and how words of a lane become its operands. An
operand is a tile in the layout of its fragments, or a buffer that is read fragment by fragment.
Must not know how shared memory is addressed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_backend.llvm import small_floats
from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import dialect_of
from tessera_backend.nvptx.tiles.elementwise import Coordinates, held_at
from tessera_backend.nvptx.tiles.shared_memory import Memory, reader
from tessera_lang.analysis.resources.register_layouts import canonical, mma_depth, registers_at
from tessera_lang.ir.core import Value
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import F16, F32, DType

Values = dict[Coordinates, str]
Operand = Callable[[int], Values]
"""The elements of an operand for the contraction from a place on, by coordinates within it."""

_F8_PTX = 84
"""The PTX that has the instruction for 8-bit floats."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One instruction: the contraction it takes, its types, and whether operands are converted
    (8-bit floats where the machine has no product of them)."""

    depth: int
    text: str
    accumulator: str
    through_f16: bool = False


def unit_for(e: LaneEmitter, a: DType, b: DType, precision: str) -> Unit | None:
    """The instruction for a product, None where there is none."""
    if not a.matrix or not b.matrix or (a == F32 and precision != "tf32"):
        return None
    depth = mma_depth(a)
    if a.bits == 8 and not a.is_float:
        types = f"s32.{a.matrix}.{b.matrix}.s32"
        return Unit(depth, f"mma.sync.aligned.m16n8k{depth}.row.col.{types}", "i32")
    if a.bits == 8:
        arch = dialect_of(e).arch
        if not arch.has("f8_mma") or arch.ptx < _F8_PTX:
            return Unit(
                depth, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "float", True
            )  # fmt: skip
    types = f"f32.{a.matrix}.{b.matrix}.f32"
    return Unit(depth, f"mma.sync.aligned.m16n8k{depth}.row.col.{types}", "float")


# --- layouts ----------------------------------------------------------------------------------


def without(modes: Sequence[Mode], axis: int) -> tuple[Mode, ...]:
    """Modes of ``axis`` become copies."""
    return tuple(Mode(m.extent, None) if m.axis == axis else m for m in modes)


def blocks_of(layout: RegisterLayout) -> list[Coordinates] | None:
    """Where each 16 x 8 fragment of an accumulator begins; None for other layouts."""
    short = canonical(layout)
    if short.lanes != (Mode(4, 1, 2), Mode(8, 0, 1)):
        return None
    held = registers_at(layout, 2)
    if any(m.axis == 0 and m.stride % 16 or m.axis == 1 and m.stride % 8 for m in short.warps):
        return None
    found = [at for at in held if at[0] % 16 == 0 and at[1] % 8 == 0]
    whole = [(r + i, c + j) for r, c in found for i in (0, 8) for j in (0, 1)]
    return found if sorted(whole) == sorted(held) else None


def operand_layout(layout: RegisterLayout, dtype: DType, side: int) -> RegisterLayout:
    """The layout of one step of the contraction of operand a (side 0) or b (side 1) that goes
    with an accumulator."""
    along, across = 1 - side, side
    word, depth = max(1, 4 // dtype.bytes), mma_depth(dtype)
    inner = (Mode(word, along, 1),)
    rest = tuple(m for m in _split_registers(layout) if m.axis == across)
    if side == 0:
        inner += (Mode(2, 0, 8), Mode(2, 1, depth // 2))
        rest = tuple(m for m in rest if m.stride != 8)
    else:
        inner += (Mode(2, 0, depth // 2),)
    lanes = (Mode(4, along, word), Mode(8, across, 1))
    warps = without(layout.warps, along)
    if side == 1:
        rest = tuple(m for m in rest if m.stride != 1)
    return canonical(RegisterLayout((*inner, *rest), lanes, warps))


def _split_registers(layout: RegisterLayout) -> list[Mode]:
    """Register modes with the pairs of the fragment (8 rows, 2 columns) apart from the rest."""
    out: list[Mode] = []
    for m in layout.registers:
        first = {(0, 8): 2, (1, 1): 2}.get((m.axis if m.axis is not None else -1, m.stride))
        if first is not None and m.extent > first:
            out += [Mode(first, m.axis, m.stride), Mode(m.extent // first, m.axis, 2 * m.stride)]
        else:
            out.append(m)
    return out


def tile_operand(e: LaneEmitter, value: Value, along: int) -> Operand:
    """An operand that is a tile in registers; ``along`` is its axis of contraction."""
    held = held_at(e, value)

    def at(start: int) -> Values:
        found: Values = {}
        for place, operand in held.items():
            step = place[along] - start
            if step >= 0:
                found[(place[0], step) if along == 1 else (step, place[1])] = operand
        return found

    return at


def buffer_operand(e: LaneEmitter, memory: Memory, layout: RegisterLayout, along: int) -> Operand:
    """An operand in shared memory; ``layout`` is that of one step."""
    source = reader(e, memory, layout, 2)
    return lambda start: source.values((0, start) if along == 1 else (start, 0))


# --- the product ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Words:
    """The words of one operand for one step of the contraction; made once each."""

    e: LaneEmitter
    values: Values
    dtype: DType
    along: int
    unit: Unit
    made: dict[Coordinates, list[str]]

    def at(self, place: Coordinates) -> list[str]:
        """The word (two, of f16, for converted 8-bit floats) that begins at an element."""
        if place not in self.made:
            count = max(1, 4 // self.dtype.bytes)
            parts = [self.values[self._next(place, i)] for i in range(count)]
            self.made[place] = self._word(parts)
        return self.made[place]

    def _next(self, place: Coordinates, step: int) -> Coordinates:
        row, column = place
        return (row, column + step) if self.along == 1 else (row + step, column)

    def _word(self, parts: list[str]) -> list[str]:
        e = self.e
        if self.dtype == F32:
            return words.assembly(
                e, "cvt.rna.tf32.f32 $0, $1;", [("i32", "r")], [(f"float {parts[0]}", "f")],
                effect=False, memory=False,
            )  # fmt: skip
        if self.unit.through_f16 and dialect_of(e).arch.has("f8_convert"):
            (packed,) = words.pack(e, parts, self.dtype)
            return _halves(e, packed, self.dtype)
        if self.unit.through_f16:
            wide = [
                small_floats.narrow(e, small_floats.widen(e, p, self.dtype), F16) for p in parts
            ]
            return words.pack(e, wide, F16)
        return words.pack(e, parts, self.dtype)


def _halves(e: LaneEmitter, word: str, dtype: DType) -> list[str]:
    """Four 8-bit floats as two words of f16: exact, and one instruction each."""
    name = f"cvt.rn.f16x2.{dtype.matrix}x2"
    text = f"{{ .reg .b16 l, h; mov.b32 {{l, h}}, $2; {name} $0, l; {name} $1, h; }}"
    return words.assembly(
        e, text, [("i32", "r")] * 2, [(f"i32 {word}", "r")], effect=False, memory=False
    )  # fmt: skip


def multiply(
    e: LaneEmitter, unit: Unit, a: tuple[Operand, DType], b: tuple[Operand, DType], depth: int,
    accumulator: Values, blocks: Sequence[Coordinates],
) -> Values:  # fmt: skip
    """The accumulator with the product added, fragment by fragment."""
    half = unit.depth // 2
    for start in range(0, depth, unit.depth):
        left = _Words(e, a[0](start), a[1], 1, unit, {})
        right = _Words(e, b[0](start), b[1], 0, unit, {})
        for row, column in blocks:
            x = [left.at((row + i, k)) for k in (0, half) for i in (0, 8)]
            y = [right.at((k, column)) for k in (0, half)]
            places = [(row + i, column + j) for i in (0, 8) for j in (0, 1)]
            for part in range(len(x[0])):
                old = [accumulator[p] for p in places]
                new = _instruction(e, unit, [w[part] for w in x], [w[part] for w in y], old)
                accumulator.update(zip(places, new, strict=True))
    return accumulator


def _instruction(
    e: LaneEmitter, unit: Unit, a: Sequence[str], b: Sequence[str], c: Sequence[str]
) -> list[str]:
    letter = "f" if unit.accumulator == "float" else "r"
    text = f"{unit.text} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
    inputs = [(f"i32 {word}", "r") for word in (*a, *b)]
    inputs += [(f"{unit.accumulator} {value}", letter) for value in c]
    outputs = [(unit.accumulator, letter)] * 4
    return words.assembly(e, text, outputs, inputs, effect=False, memory=False)
