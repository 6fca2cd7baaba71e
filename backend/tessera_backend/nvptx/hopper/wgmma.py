"""Asynchronous products of warp groups in NVPTX: ``tile.mma.*``.

All instructions of one product stand in one piece of assembly behind its fence, with the
accumulator as tied operands: nothing can come between them, and whatever made the operands has
been computed before. A wait takes and gives the values it orders in the same way. Must not know
where operands come from.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.llvm import control_flow
from tessera_backend.llvm.emitter import LaneEmitter, NotLowered, Rule
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.hopper.descriptors import (
    STEP_BYTES,
    MatrixOperand,
    NoDescriptor,
    matrix_operand,
)
from tessera_backend.nvptx.hopper.fragments import Accumulator, NoFragment, accumulator, left_words
from tessera_backend.nvptx.hopper.matrix_start_addresses import offset_of
from tessera_backend.nvptx.hopper.roles import dialect_of, intrinsic
from tessera_backend.nvptx.tiles import words
from tessera_lang.ir.core import BufferType, Operation, TileType, Value
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.types.dtype import F32, I32, DType

_CONSTRAINTS = {"float": "f", "double": "d", "i32": "r", "i64": "l", "i16": "h", "half": "h"}
_MOST_OPERANDS = 200  # of one piece of assembly
_SMALL = 2  # registers of a tile whose numbers say that what they are made of was computed
_NEVER = 0x7FB1A5ED  # if numbers have these bits, a wait too many is made


@dataclass
class _Assembly:
    """A piece of assembly being written: results tied to operands first, then plain operands."""

    tied: list[tuple[str, str]]
    inputs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def input(self, kind: str, operand: str) -> str:
        """The name of a plain operand; equal ones are one."""
        if (kind, operand) not in self.inputs:
            self.inputs.append((kind, operand))
        return f"${2 * len(self.tied) + self.inputs.index((kind, operand))}"

    def write(self, e: LaneEmitter, text: str) -> tuple[str, ...]:
        """Writes it; the operands of the results."""
        kinds = [kind for kind, _ in self.tied]
        constraints = [f"={_CONSTRAINTS[kind]}" for kind in kinds]
        constraints += [str(i) for i in range(len(kinds))]
        constraints += [_CONSTRAINTS[kind] for kind, _ in self.inputs]
        constraints.append("~{memory}")
        given = ", ".join(f"{kind} {value}" for kind, value in (*self.tied, *self.inputs))
        result = (
            "void" if not kinds else kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"
        )
        call = f'call {result} asm sideeffect "{text}", "{",".join(constraints)}"({given}) #1'
        if not kinds:
            e.f.line(call)
            return ()
        value = e.f.value(call)
        if len(kinds) == 1:
            return (value,)
        return tuple(e.f.value(f"extractvalue {result} {value}, {i}") for i in range(len(kinds)))


@dataclass(frozen=True, slots=True)
class _Product:
    """One ``tile.mma.async``, taken apart."""

    result: Accumulator
    dtypes: tuple[DType, DType]
    depth: int
    left: MatrixOperand | None
    right: MatrixOperand
    starts_left: tuple[Value, ...]
    starts_right: tuple[Value, ...]

    @property
    def instructions(self) -> int:
        return self.depth * self.dtypes[0].bytes // STEP_BYTES


def _no(e: LaneEmitter, op: Operation, why: object) -> NotLowered:
    return NotLowered(op.name, str(why), e.dialect.name)


def _product(e: LaneEmitter, op: Operation) -> _Product:
    c, a, b = (v.type for v in op.operands[:3])
    if not isinstance(c, TileType) or c.layout is None or not isinstance(b, BufferType):
        raise _no(e, op, "an accumulator without a layout, or a right operand in registers")
    if not isinstance(a, TileType | BufferType):
        raise TypeError("the left operand is a tile or a buffer")
    starts = op.operands[4:]
    split = len(a.shape) if isinstance(a, BufferType) else 0
    along_a = 0 if op.attributes["transpose_a"] else 1
    along_b = 1 if op.attributes["transpose_b"] else 0
    try:
        left = matrix_operand(a, along_a) if isinstance(a, BufferType) else None
        right = matrix_operand(b, along_b)
        blocks = accumulator(c.layout)
    except (NoDescriptor, NoFragment) as error:
        raise _no(e, op, error) from error
    depth = a.sizes[1] if isinstance(a, TileType) else a.shape[-2:][along_a]
    return _Product(
        blocks, (a.dtype, b.dtype), depth, left, right, starts[:split], starts[split:]
    )  # fmt: skip


def _mnemonic(e: LaneEmitter, op: Operation, p: _Product) -> tuple[str, str]:
    """The instruction and what stands behind its predicate."""
    a, b = (d.matrix for d in p.dtypes)
    c = op.operands[0].tile_type
    integers = p.dtypes[0].is_integer
    if not a or not b or c.dtype != (I32 if integers else F32):
        raise _no(e, op, f"{p.dtypes[0]} by {p.dtypes[1]} into {c.dtype}")
    if a != b and not {a, b} <= {"e4m3", "e5m2"}:
        raise _no(e, op, f"{p.dtypes[0]} by {p.dtypes[1]}")
    if a == "tf32" and op.attributes["precision"] != "tf32":
        raise _no(e, op, "f32 exact")
    k = STEP_BYTES // p.dtypes[0].bytes
    shape = f"m64n{p.result.columns}k{k}"
    name = f"wgmma.mma_async.sync.aligned.{shape}.{'s32' if integers else 'f32'}.{a}.{b}"
    if integers:
        return name, ""
    if p.dtypes[0].bytes != 2:
        return name, ", 1, 1"
    sides = [side for side in (p.left, p.right) if side is not None]
    across = "".join(f", {int(not side.contraction_contiguous)}" for side in sides)
    return name, f", 1, 1{across}"


def _group_step(e: LaneEmitter, steps: Sequence[int]) -> str:
    """``steps[number of the warp group in its role]`` as an i32 operand, "" where it is 0."""
    if not any(steps):
        return ""
    if len(set(steps)) == 1:
        return str(steps[0])
    group = e.f.value(f"lshr i32 {dialect_of(e).role_warp(e)}, 2")
    if all(step == i * steps[1] for i, step in enumerate(steps)):
        return e.f.value(f"mul nuw nsw i32 {group}, {steps[1]}")
    value = str(steps[-1])
    for i, step in enumerate(steps[:-1]):
        here = e.f.value(f"icmp eq i32 {group}, {i}")
        value = e.f.value(f"select i1 {here}, i32 {step}, i32 {value}")
    return value


_WINDOW = 0x3FFFF
"""Bits of an address within its group: in a cluster those above name the group."""


def _descriptor(
    e: LaneEmitter, buffer: Value, side: MatrixOperand, starts: Sequence[Value],
    groups: Sequence[int],
) -> str:  # fmt: skip
    """The descriptor at the starts, for the rows or columns of this warp group: its low word
    (i32), which alone depends on the address."""
    f, t = e.f, buffer.buffer_type
    row, column = (e.constant(start) or 0 for start in starts[-2:])
    side.check_start(row, column)
    offset = offset_of(e, t, starts)
    place = f.value(f"ptrtoint ptr addrspace(3) {e.places[buffer].pointer} to i32")
    place = f.value(f"and i32 {place}, {_WINDOW}")
    value = f.value(f"lshr exact i32 {place}, 4")
    value = f.value(f"add i32 {value}, {side.low_bits + offset.constant // VECTOR_BYTES}")
    steps = (
        offset.units(e, VECTOR_BYTES),
        _group_step(e, [side.across(g) // VECTOR_BYTES for g in groups]),
    )
    for step in steps:
        if step:
            value = f.value(f"add i32 {value}, {step}")
    return value


def _at(e: LaneEmitter, descriptor: str, side: MatrixOperand, bytes_: int) -> str:
    """The whole descriptor (i64), so many bytes further. Its high word is a constant that no
    addition carries into: of a sum of 64 bits ptxas 13.0 has lost the high word."""
    low = e.f.value(f"add i32 {descriptor}, {bytes_ // VECTOR_BYTES}") if bytes_ else descriptor
    words = e.f.value(f"insertelement <2 x i32> <i32 0, i32 {side.high_bits}>, i32 {low}, i32 0")
    return e.f.value(f"bitcast <2 x i32> {words} to i64")


def _word(e: LaneEmitter, registers: Sequence[str], dtype: DType) -> str:
    """Elements of one 32-bit word, lowest first, as an i32."""
    kind, f = register_type(dtype), e.f
    if kind == "half":  # as words are taken apart, so that one that stays whole is one register
        return words.pack(e, registers, dtype)[0]
    whole = f"i{dtype.bits}"
    out = ""
    for i, register in enumerate(registers):
        bits = register if kind == whole else f.value(f"bitcast {kind} {register} to {whole}")
        if dtype.bits == 32:
            return bits
        wide = f.value(f"zext i{dtype.bits} {bits} to i32")
        if i:
            wide = f.value(f"shl nuw i32 {wide}, {i * dtype.bits}")
        out = f.value(f"or disjoint i32 {out}, {wide}") if out else wide
    return out


def _mma_async(e: LaneEmitter, op: Operation) -> None:
    product = _product(e, op)
    name, tail = _mnemonic(e, op, product)
    c, a, b, accumulate = op.operands[:4]
    blocks = product.result
    kind = register_type(c.tile_type.dtype)
    fresh = e.operand(accumulate) == "false"  # what was there counts as 0: no register is filled
    text = _Assembly([(kind, "undef" if fresh else r) for r in e.tiles[c]])
    try:
        right = _descriptor(
            e, b, product.right, product.starts_right, [n for _, n in blocks.groups]
        )
        left = _left(e, product, a, text)
        flag = text.input("i32", e.f.value(f"zext i1 {e.operand(accumulate)} to i32"))
        lines = ["{ .reg .pred p;"]
        if op in dialect_of(e).unchanging:
            left, copies = _copied(left)
            lines += copies
        lines += [f"setp.ne.b32 p, {flag}, 0;", "wgmma.fence.sync.aligned;"]
        for k in range(product.instructions):
            predicate = "p" if k == 0 else "1"
            for block, (_, column) in enumerate(blocks.blocks):
                first = block * blocks.registers
                results = ",".join(f"${first + i}" for i in range(blocks.registers))
                bytes_ = product.right.step(k) + product.right.across(column)
                where = text.input("i64", _at(e, right, product.right, bytes_))
                lines.append(f"{name} {{{results}}}, {left[k][block]}, {where}, {predicate}{tail};")
    except (NoDescriptor, NoFragment) as error:
        raise _no(e, op, error) from error
    lines.append("}")
    e.tiles[op.result] = text.write(e, "\\0A".join(lines))


def _left(e: LaneEmitter, p: _Product, a: Value, text: _Assembly) -> list[list[str]]:
    """The left operand of each instruction and block of rows, as it stands in the text."""
    rows = [row for row, _ in p.result.blocks]
    if p.left is not None:
        groups = [m for m, _ in p.result.groups]
        base = _descriptor(e, a, p.left, p.starts_left, groups)
        return [
            [
                text.input("i64", _at(e, base, p.left, p.left.step(k) + p.left.across(row)))
                for row in rows
            ]
            for k in range(p.instructions)
        ]
    t = a.tile_type
    assert t.layout is not None
    registers = e.tiles[a]
    out: list[list[str]] = [[] for _ in range(p.instructions)]
    for row in rows:
        lefts = left_words(t.layout, t.dtype, row, p.depth)
        for k in range(p.instructions):
            given = [
                text.input("i32", _word(e, [registers[r] for r in word], t.dtype))
                for word in lefts[4 * k : 4 * k + 4]
            ]
            out[k].append(f"{{{','.join(given)}}}")
    return out


def _copied(left: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """Copies of the words of a left operand, by an instruction that ptxas leaves where it is, and
    what makes them: of words made in front of a loop ptxas 13.0 moves its own copies there too,
    into registers that other products of the loop fill."""
    found = dict.fromkeys(w for step in left for block in step for w in block[1:-1].split(","))
    names = {word: f"a{i}" for i, word in enumerate(found)}
    copied = [
        [f"{{{','.join(names[w] for w in block[1:-1].split(','))}}}" for block in step]
        for step in left
    ]
    moves = [f"prmt.b32 {name}, {word}, 0, 0x3210;" for word, name in names.items()]
    return copied, [f".reg .b32 a<{len(names)}>;", *moves]


def _commit(e: LaneEmitter, op: Operation) -> None:
    intrinsic(e, "wgmma.commit_group.sync.aligned")


def _through(e: LaneEmitter, registers: Sequence[tuple[str, str]], text: str) -> tuple[str, ...]:
    """Registers through a piece of assembly: made before it, used behind it."""
    passed: list[str] = []
    for first in range(0, max(len(registers), 1), _MOST_OPERANDS):
        passed += _Assembly(list(registers[first : first + _MOST_OPERANDS])).write(e, text)
        text = ""
    return tuple(passed)


def _wait(e: LaneEmitter, op: Operation) -> None:
    """The wait, and the values through it: registers of fewer than 16 bits as words."""
    kinds: list[tuple[str, str]] = []
    narrow: list[str] = []
    for value in op.operands:
        assert isinstance(value.type, TileType | DType)
        kind = register_type(value.type.dtype if isinstance(value.type, TileType) else value.type)
        for register in e.parts((value,)):
            narrow.append(kind if kind in ("i1", "i8") else "")
            if narrow[-1]:
                kinds.append(("i32", e.f.value(f"zext {kind} {register} to i32")))
            else:
                kinds.append((kind, register))
    text = f"wgmma.wait_group.sync.aligned {op.attributes['pending']};"
    _computed_before(e, op, text)
    passed = _through(e, kinds, text)
    given = [
        e.f.value(f"trunc i32 {register} to {kind}") if kind else register
        for register, kind in zip(passed, narrow, strict=True)
    ]
    e.bind_parts(op.results, given)


def _computed_before(e: LaneEmitter, op: Operation, wait: str) -> None:
    """What is computed before a wait stays there: a second wait, in fact never made, depends on
    these numbers, and on small tiles beside them (sums of rows). ptxas moves waits before whatever
    they do not depend on, and products would run beside nothing."""
    words: list[str] = []
    computed = op.integers("computed")
    for place, value in enumerate(op.operands):
        registers = e.parts((value,))
        if isinstance(value.type, TileType) and (place in computed or len(registers) <= _SMALL):
            if register_type(value.type.dtype) == "float":
                words += [e.f.value(f"bitcast float {r} to i32") for r in registers]
    if not words:
        return
    mixed = words[0]
    for word in words[1:]:
        mixed = e.f.value(f"xor i32 {mixed}, {word}")
    lines = ("{ .reg .pred p;", f"setp.eq.b32 p, $0, {_NEVER};",
             "vote.sync.any.pred p, p, 0xffffffff;", f"@p {wait}", "}")  # fmt: skip
    text = _Assembly([])
    text.input("i32", mixed)
    text.write(e, "\\0A".join(lines))


def _loop(rule: Rule) -> Rule:
    """A loop around products: tiles it carries are in their registers before it begins.

    Else LLVM makes an initial accumulator on each way through the loop, one of which joins the
    others while products are in flight, and ptxas then waits for every single one (C7515).
    Two that begin as the same tile have registers of their own: copied while products are in
    flight they would be waited for, too (C7518).
    """

    def settled(e: LaneEmitter, op: Operation) -> None:
        if not op.holds("tile.mma.async"):
            rule(e, op)
            return
        operands = list(op.operands)
        for i, value in enumerate(op.operands):
            if not isinstance(value.type, TileType):
                continue
            kind = register_type(value.type.dtype)
            if kind in _CONSTRAINTS:
                operands[i] = Value(value.type, value.name)
                e.tiles[operands[i]] = _through(e, [(kind, r) for r in e.tiles[value]], "")
        rule(e, replace(op, operands=tuple(operands)))

    return settled


RULES: dict[str, Rule] = {
    "tile.for": _loop(control_flow.RULES["tile.for"]),
    "tile.while": _loop(control_flow.RULES["tile.while"]),
    "tile.mma.async": _mma_async,
    "tile.mma.commit": _commit,
    "tile.mma.wait": _wait,
}
