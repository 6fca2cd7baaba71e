"""Warp operations of a group on one thread: vectors of 32 lanes over arrays of the group.

The operand of every lane is written to an array, padded to whole warps with what changes no
result; each warp is one vector, folded in the order of docs/ir.md. Must not know the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_backend.cpu.interchange import inner_axis
from tessera_backend.cpu.lane_loops import Array, LaneLoops
from tessera_backend.llvm.emitter import NotLowered, scalar_type
from tessera_backend.llvm.types import float_constant, integer_constant, memory_type
from tessera_lang.ir.core import Operation, Value
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import BOOL, INDEX, U32, DType, integer_range


def emit_warp(loops: LaneLoops, op: Operation) -> Array:
    """Emits a warp operation of all lanes; the array of its results."""
    if op.name == "tile.warp_shuffle" and (lanes := _fixed_lanes(loops, op.operands[1])):
        return _permute(loops, op.operands[0], lanes)
    if op.name == "tile.warp_shuffle" and (stride := _stride(loops, op.operands[1])) is not None:
        return _shift(loops, op.operands[0], op.operands[1], stride)
    given = _padded_array(loops, scalar_type(op.operands[0]))
    if op.name == "tile.warp_shuffle":
        _give(loops, op.operands[0], given)
        return _shuffle(loops, op.operands[1], given)
    if op.name == "tile.warp_match":
        _give(loops, op.operands[0], given)
        return _match(loops, given)
    _pad(loops, given, _neutral(op, given.dtype))
    _give(loops, op.operands[0], given)
    result = _padded_array(loops, scalar_type(op.result))
    _each_warp(loops, op, given, result)
    return result


def _padded_array(loops: LaneLoops, dtype: DType) -> Array:
    count = -(-loops.lanes_count // WARP) * WARP
    return Array(loops.scratch.take(count * dtype.bytes), dtype)


def _give(loops: LaneLoops, value: Value, given: Array) -> None:
    loops.lanes(lambda: loops.write(given, loops.lane_value(value)))


def _neutral(op: Operation, dtype: DType) -> str:
    """What a lane that does not exist has, in memory."""
    kind = op.attributes.get("kind")
    if dtype == BOOL:
        return "1" if kind == "all" else "0"
    if dtype.is_float:
        value = {"add": -0.0, "min": float("inf"), "max": -float("inf")}[str(kind)]
        return float_constant(value, dtype)
    low, high = integer_range(dtype)
    return integer_constant({"add": 0, "min": high, "max": low}[str(kind)], dtype.bits)


def _pad(loops: LaneLoops, given: Array, neutral: str) -> None:
    kind, f = memory_type(given.dtype), loops.e.f
    for lane in range(loops.lanes_count, -(-loops.lanes_count // WARP) * WARP):
        place = f.value(f"getelementptr inbounds {kind}, ptr {given.pointer}, i64 {lane}")
        f.line(f"store {kind} {neutral}, ptr {place}, align {given.dtype.bytes}")


_STEPS: dict[str, Callable[[int, int], int]] = {
    "tile.add": int.__add__, "tile.sub": int.__sub__, "tile.mul": int.__mul__,
    "tile.xor": int.__xor__, "tile.and": int.__and__, "tile.or": int.__or__,
}  # fmt: skip


def _fixed_lanes(loops: LaneLoops, lane: Value) -> list[int] | None:
    """The lane of the warp that each lane takes its value of, where that is the same in all warps
    and known; None where it is not."""
    group = loops.dialect.group
    axis = inner_axis(group)
    if group[axis] != WARP:
        return None

    def of(value: Value) -> list[int] | None:
        if value.type != INDEX:
            return None
        known = loops.plan.strides.constant(value)
        if known is not None:
            return [known % WARP] * WARP
        op = loops.plan.strides.definition(value)
        if op is None:
            return None
        if op.name == "tile.lane_index" and op.attributes["axis"] == axis:
            return list(range(WARP))
        if op.name == "tile.lane_linear":  # whole warps come before this one
            return list(range(WARP))
        if op.name == "tile.mod":
            divisor, whole = loops.plan.strides.constant(op.operands[1]), of(op.operands[0])
            if whole is None or divisor is None or divisor <= 0 or WARP % divisor:
                return None
            return [lane % divisor for lane in whole]
        step = _STEPS.get(op.name)
        sides = [of(v) for v in op.operands] if step else []
        if step is None or None in sides:
            return None
        return [step(a, b) % WARP for a, b in zip(*cast("list[list[int]]", sides), strict=True)]

    return of(lane)


def _permute(loops: LaneLoops, value: Value, lanes: list[int]) -> Array:
    """A shuffle that is the same in every warp: of one vector another."""
    f, dtype = loops.e.f, scalar_type(value)
    result = _padded_array(loops, dtype)
    given = None if value in loops.e.values else loops.arrays.get(value)
    if given is None:
        given = _padded_array(loops, dtype)
        _give(loops, value, given)
    kind, sources = f"<{WARP} x {memory_type(dtype)}>", ", ".join(f"i32 {x}" for x in lanes)

    def permuted(vector: str) -> str:
        return f.value(f"shufflevector {kind} {vector}, {kind} poison, <{WARP} x i32> <{sources}>")

    _warps(loops, given, result, permuted)
    return result


def _stride(loops: LaneLoops, lane: Value) -> int | None:
    """0 where a warp takes the value of one lane, 1 where its lanes take those of neighbours, also
    from the other end; None where neither is known, or the innermost loop is not over a warp."""
    group = loops.dialect.group
    if group[inner_axis(group)] != WARP:
        return None
    stride = loops.plan.strides.of(lane)
    return stride if stride in (0, 1) else None


def _shift(loops: LaneLoops, value: Value, lane: Value, stride: int) -> Array:
    """A shuffle whose lanes read side by side: each warp from two copies of itself in a row."""
    f, dtype, result = loops.e.f, scalar_type(value), _padded_array(loops, scalar_type(value))
    kind, axis = memory_type(dtype), inner_axis(loops.dialect.group)
    copies = loops.scratch.take(2 * loops.lanes_count * dtype.bytes)

    def place(at: str) -> str:
        """Address of an element of the warp's copies."""
        first = f.value(f"sub i64 {loops.dialect.lane}, {loops.dialect.lane_ids[axis]}")
        at = f.value(f"add i64 {f.value(f'shl nuw nsw i64 {first}, 1')}, {at}")
        return f.value(f"getelementptr inbounds {kind}, ptr {copies}, i64 {at}")

    def access() -> str:
        return f"align {dtype.bytes}{loops.dialect.suffix(None)}"

    def give() -> None:
        own, inside = loops.lane_value(value), loops.dialect.lane_ids[axis]
        for at in (inside, f.value(f"add nuw nsw i64 {inside}, {WARP}")):
            f.line(f"store {kind} {own}, ptr {place(at)}, {access()}")

    def take() -> None:
        inside, source = loops.dialect.lane_ids[axis], loops.lane_value(lane)
        if stride:
            source = f.value(f"sub i64 {source}, {inside}")
        at = f.value(f"and i64 {source}, {WARP - 1}")
        if stride:
            at = f.value(f"add nuw nsw i64 {at}, {inside}")
        loops.write(result, f.value(f"load {kind}, ptr {place(at)}, {access()}"))

    loops.lanes(give)
    loops.lanes(take)
    return result


def _shuffle(loops: LaneLoops, lane: Value, given: Array) -> Array:
    f, count, result = loops.e.f, loops.lanes_count, _padded_array(loops, given.dtype)

    def body() -> None:
        own = loops.dialect.lane
        low = f.value(f"and i64 {loops.lane_value(lane)}, {WARP - 1}")
        first = f.value(f"and i64 {own}, {-WARP}")
        source = f.value(f"or i64 {first}, {low}")
        if count % WARP:
            exists = f.value(f"icmp ult i64 {source}, {count}")
            source = f.value(f"select i1 {exists}, i64 {source}, i64 {own}")
        kind = memory_type(given.dtype)
        place = f.value(f"getelementptr inbounds {kind}, ptr {given.pointer}, i64 {source}")
        suffix = loops.dialect.suffix(None)
        loops.write(result, f.value(f"load {kind}, ptr {place}, align {given.dtype.bytes}{suffix}"))

    loops.lanes(body)
    return result


def _match(loops: LaneLoops, given: Array) -> Array:
    """For each lane the bits of those with the same number."""
    f, count, result = loops.e.f, loops.lanes_count, _padded_array(loops, U32)
    kind = memory_type(given.dtype)
    vector = f"<{WARP} x {kind}>"

    def element(at: str) -> str:
        return f.value(f"getelementptr inbounds {kind}, ptr {given.pointer}, i64 {at}")

    def body() -> None:
        own, suffix = loops.dialect.lane, loops.dialect.suffix(None)
        first = f.value(f"and i64 {own}, {-WARP}")
        all_ = f.value(f"load {vector}, ptr {element(first)}, align {_align(given)}{suffix}")
        mine = f.value(f"load {kind}, ptr {element(own)}, align {given.dtype.bytes}{suffix}")
        one = f.value(f"insertelement {vector} poison, {kind} {mine}, i64 0")
        every = f.value(
            f"shufflevector {vector} {one}, {vector} poison, <{WARP} x i32> zeroinitializer"
        )
        same = f.value(f"icmp eq {vector} {all_}, {every}")
        bits = f.value(f"bitcast <{WARP} x i1> {same} to i{WARP}")
        if count % WARP:
            partial = f.value(f"icmp eq i64 {first}, {count - count % WARP}")
            there = f.value(f"select i1 {partial}, i32 {(1 << count % WARP) - 1}, i32 -1")
            bits = f.value(f"and i32 {bits}, {there}")
        loops.write(result, bits)

    loops.lanes(body)
    return result


def _each_warp(loops: LaneLoops, op: Operation, given: Array, result: Array) -> None:
    """One vector of each warp in, one number out to all its lanes."""
    f, target = loops.e.f, memory_type(result.dtype)

    def shared(vector: str) -> str:
        number = _voted(loops, op, vector) if given.dtype == BOOL else _folded(loops, op, vector)
        one = f.value(f"insertelement <{WARP} x {target}> poison, {target} {number}, i64 0")
        return f.value(
            f"shufflevector <{WARP} x {target}> {one}, <{WARP} x {target}> poison, "
            f"<{WARP} x i32> zeroinitializer"
        )

    _warps(loops, given, result, shared)


def _warps(
    loops: LaneLoops, given: Array, result: Array, made: Callable[[str], str]
) -> None:  # fmt: skip
    """A loop over the warps: of the vector of each another one."""
    f = loops.e.f
    counter, head, done = f.slot("i64"), f.label("warp"), f.label("warps.done")
    f.line(f"store i64 0, ptr {counter}")
    f.place(head)
    first = f.value(f"load i64, ptr {counter}")
    source, target = memory_type(given.dtype), memory_type(result.dtype)
    place = f.value(f"getelementptr inbounds {source}, ptr {given.pointer}, i64 {first}")
    vector = f.value(f"load <{WARP} x {source}>, ptr {place}, align {_align(given)}")
    every = made(vector)
    place = f.value(f"getelementptr inbounds {target}, ptr {result.pointer}, i64 {first}")
    f.line(f"store <{WARP} x {target}> {every}, ptr {place}, align {_align(result)}")
    following = f.value(f"add nuw nsw i64 {first}, {WARP}")
    f.line(f"store i64 {following}, ptr {counter}")
    f.branch_if(f.value(f"icmp ult i64 {following}, {loops.lanes_count}"), head, done)
    f.place(done)


def _align(array: Array) -> int:
    """Scratch memory starts at multiples of 64."""
    return min(WARP * array.dtype.bytes, 64)


def _voted(loops: LaneLoops, op: Operation, vector: str) -> str:
    """The bits of a vote, or what they say, as memory holds it."""
    f = loops.e.f
    votes = f.value(f"trunc <{WARP} x i8> {vector} to <{WARP} x i1>")
    bits = f.value(f"bitcast <{WARP} x i1> {votes} to i{WARP}")
    if scalar_type(op.result) == U32:
        return bits
    holds = "ne i32 {}, 0" if op.attributes["kind"] == "any" else "eq i32 {}, -1"
    return f.value(f"zext i1 {f.value('icmp ' + holds.format(bits))} to i8")


def _folded(loops: LaneLoops, op: Operation, vector: str) -> str:
    f, dtype = loops.e.f, scalar_type(op.result)
    kind, count = memory_type(dtype), WARP
    while count > 1:
        half = count // 2
        sides = [
            f.value(
                f"shufflevector <{count} x {kind}> {vector}, <{count} x {kind}> poison, "
                f"<{half} x i32> <{', '.join(f'i32 {start + n}' for n in range(half))}>"
            )
            for start in (0, half)
        ]
        vector = _combined(loops, str(op.attributes["kind"]), dtype, half, sides[0], sides[1])
        count = half
    return f.value(f"extractelement <1 x {kind}> {vector}, i64 0")


def _combined(loops: LaneLoops, what: str, dtype: DType, count: int, a: str, b: str) -> str:
    e, kind = loops.e, memory_type(dtype)
    vector = f"<{count} x {kind}>"
    if what == "add":
        return e.f.value(f"{'fadd' if dtype.is_float else 'add'} {vector} {a}, {b}")
    if dtype.is_float:
        name = "minimum" if what == "min" else "maximum"
        if not e.dialect.lowers(name, kind):
            raise NotLowered(f"tile.warp_reduce {what}", str(dtype), e.dialect.name)
    else:
        name = ("s" if dtype.is_signed else "u") + what
    suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
    callee = f"@llvm.{name}.v{count}{suffix}"
    e.module.declare(f"{vector} {callee}({vector}, {vector})")
    return e.f.value(f"call {vector} {callee}({vector} {a}, {vector} {b})")
