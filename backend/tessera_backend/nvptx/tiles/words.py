"""Elements of a tile in words of the machine, and accesses of several elements at once.

Owns how elements lie in 32-bit words, and the text of vector loads and stores with a predicate.
Must not know layouts or operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm import small_floats
from tessera_backend.llvm.emitter import LaneEmitter
from tessera_backend.llvm.types import bits_type, memory_type, zero
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType

CONVERGENT = "#1"
"""The attribute group of calls that all lanes of a warp make together."""

_LETTER = {"i8": "h", "i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}


def word_type(dtype: DType, count: int) -> str:
    """The LLVM type of the words that ``count`` elements make: the widest up to 32 bits, or 64
    for elements of 64."""
    if dtype.bytes == 8:
        return "i64"
    return f"i{min(32, 8 * dtype.bytes * count)}"


def words_of(dtype: DType, count: int) -> int:
    """How many words ``count`` elements make."""
    return max(1, dtype.bytes * count // (8 if dtype.bytes == 8 else 4))


def pack(e: LaneEmitter, elements: Sequence[str], dtype: DType) -> list[str]:
    """Register values as words, lowest element first."""
    kind = word_type(dtype, len(elements))
    each = int(kind[1:]) // (8 * dtype.bytes)
    if each == 1:
        return [small_floats.as_bits(e, value, dtype) for value in elements]
    out: list[str] = []
    element = memory_type(dtype)
    for first in range(0, len(elements), each):
        vector = "poison"
        for i, value in enumerate(elements[first : first + each]):
            given = small_floats.as_bits(e, value, dtype) if dtype.kind == "bool" else value
            vector = e.f.value(
                f"insertelement <{each} x {element}> {vector}, {element} {given}, i32 {i}"
            )
        out.append(e.f.value(f"bitcast <{each} x {element}> {vector} to {kind}"))
    return out


def unpack(e: LaneEmitter, words: Sequence[str], dtype: DType, count: int) -> list[str]:
    """The inverse of ``pack``."""
    kind = word_type(dtype, count)
    each = int(kind[1:]) // (8 * dtype.bytes)
    if each == 1:
        return [small_floats.from_bits(e, word, dtype) for word in words]
    out: list[str] = []
    element = memory_type(dtype)
    if element == "i16":  # by shifts, which join those that make a bf16 an f32
        for word in words:
            out.append(e.f.value(f"trunc i32 {word} to i16"))
            out.append(e.f.value(f"trunc i32 {e.f.value(f'lshr i32 {word}, 16')} to i16"))
        return out
    for word in words:
        vector = e.f.value(f"bitcast {kind} {word} to <{each} x {element}>")
        for i in range(each):
            raw = e.f.value(f"extractelement <{each} x {element}> {vector}, i32 {i}")
            out.append(small_floats.from_bits(e, raw, dtype) if dtype.kind == "bool" else raw)
    return out


def assembly(
    e: LaneEmitter, text: str, outputs: Sequence[tuple[str, str]],
    inputs: Sequence[tuple[str, str]], *, effect: bool = True, memory: bool = True,
    early: bool = False,
) -> list[str]:  # fmt: skip
    """A piece of PTX: ``outputs`` are (LLVM type, constraint letter), ``inputs`` (LLVM type with
    operand, letter). ``$0...`` are outputs, then inputs."""
    mark = "=&" if early else "="
    constraints = [mark + letter for _, letter in outputs]
    constraints += [letter for _, letter in inputs]
    if memory:
        constraints.append("~{memory}")
    kinds = [kind for kind, _ in outputs]
    result = "void" if not kinds else kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"
    given = ", ".join(value for value, _ in inputs)
    side = "sideeffect " if effect else ""
    call = f'call {result} asm {side}"{text}", "{",".join(constraints)}"({given}) {CONVERGENT}'
    if not kinds:
        e.f.line(call)
        return []
    made = e.f.value(call)
    if len(kinds) == 1:
        return [made]
    return [e.f.value(f"extractvalue {result} {made}, {i}") for i in range(len(kinds))]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where an access goes: ``space`` of PTX, an address operand with its type, an offset in
    bytes, and a predicate (i1 operand) or "" for always."""

    space: str
    kind: str
    address: str
    offset: int
    predicate: str = ""

    def operand(self, number: int) -> str:
        return f"[${number}+{self.offset}]" if self.offset else f"[${number}]"

    @property
    def letter(self) -> str:
        return "l" if self.kind.startswith("ptr") or self.kind == "i64" else "r"


def _suffix(dtype: DType, count: int) -> tuple[str, str, int]:
    """PTX type, register type of a word in LLVM, words."""
    kind, words = word_type(dtype, count), words_of(dtype, count)
    vector = f".v{words}" if words > 1 else ""
    return f"{vector}.b{kind[1:]}", "i16" if kind == "i8" else kind, words


def load(e: LaneEmitter, cell: Cell, dtype: DType, count: int, hint: str = "") -> list[str]:
    """``count`` neighbours as register values; zeros where the predicate is false."""
    suffix, register, words = _suffix(dtype, count)
    letter = _LETTER[register]
    listed = ", ".join(f"${i}" for i in range(words))
    target = f"{{{listed}}}" if words > 1 else listed
    access = f"ld.{cell.space}{hint}{suffix} {target}, {cell.operand(words)};"
    inputs = [(f"{cell.kind} {cell.address}", cell.letter)]
    if cell.predicate:
        clear = "".join(f"mov.b{register[1:]} ${i}, 0; " for i in range(words))
        access = f"{clear}@${words + 1} {access}"
        inputs.append((f"i1 {cell.predicate}", "b"))
    outputs = [(register, letter)] * words
    made = assembly(e, access, outputs, inputs, early=bool(cell.predicate))
    if word_type(dtype, count) == "i8":
        made = [e.f.value(f"trunc i16 {word} to i8") for word in made]
    return unpack(e, made, dtype, count)


def store(e: LaneEmitter, cell: Cell, values: Sequence[str], dtype: DType, hint: str = "") -> None:
    """Neighbours to memory where the predicate is true."""
    suffix, register, words = _suffix(dtype, len(values))
    packed = pack(e, values, dtype)
    if word_type(dtype, len(values)) == "i8":
        packed = [e.f.value(f"zext i8 {word} to i16") for word in packed]
    listed = ", ".join(f"${i + 1}" for i in range(words))
    source = f"{{{listed}}}" if words > 1 else listed
    access = f"st.{cell.space}{hint}{suffix} {cell.operand(0)}, {source};"
    inputs = [(f"{cell.kind} {cell.address}", cell.letter)]
    inputs += [(f"{register} {word}", _LETTER[register]) for word in packed]
    if cell.predicate:
        access = f"@${words + 1} {access}"
        inputs.append((f"i1 {cell.predicate}", "b"))
    assembly(e, access, (), inputs)


def zeros(dtype: DType, count: int) -> list[str]:
    return [zero(dtype)] * count


def shuffled(e: LaneEmitter, value: str, dtype: DType, mode: str, at: str) -> str:
    """``shfl.sync`` of a register value of any dtype in a whole warp; ``at`` is i32."""
    f = e.f
    bits = small_floats.as_bits(e, value, dtype)
    kind = bits_type(dtype)

    def word(operand: str) -> str:
        name = f"@llvm.nvvm.shfl.sync.{mode}.i32"
        e.module.declare(f"i32 {name}(i32, i32, i32, i32) #1")
        clamp = 0 if mode == "up" else 31
        return f.value(f"call i32 {name}(i32 -1, i32 {operand}, i32 {at}, i32 {clamp})")

    if kind == "i32":
        moved = word(bits)
    elif kind == "i64":
        low = word(f.value(f"trunc i64 {bits} to i32"))
        high = word(f.value(f"trunc i64 {f.value(f'lshr i64 {bits}, 32')} to i32"))
        top = f.value(f"shl i64 {f.value(f'zext i32 {high} to i64')}, 32")
        moved = f.value(f"or i64 {top}, {f.value(f'zext i32 {low} to i64')}")
    else:
        wide = word(f.value(f"zext {kind} {bits} to i32"))
        moved = f.value(f"trunc i32 {wide} to {kind}")
    return small_floats.from_bits(e, moved, dtype)
