"""Warp operations in NVPTX: shuffles, votes and reductions of whole warps.

A reduction takes the order of docs/ir.md, so that floats have the same bits as elsewhere:
butterflies where the warp is whole, a tree toward lane 0 where it may not be. Must not know
control flow: sema and the analysis have seen to it that every lane is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tessera_backend.llvm import memory
from tessera_backend.llvm.emitter import LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.lanes.target_hooks import WARP, NvptxDialect
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.types.dtype import U32, DType


@dataclass(frozen=True, slots=True)
class _Warp:
    """The lanes of the current warp: a mask of those that exist, and how many (operands).

    ``known``: their number, where it is the same in every warp of the group.
    """

    mask: str
    count: str
    known: int | None


def _warp(e: LaneEmitter) -> _Warp:
    dialect = e.dialect
    assert isinstance(dialect, NvptxDialect)
    lanes = dialect.role.lanes
    rest = lanes % WARP
    if not rest:
        return _Warp("-1", str(WARP), WARP)
    part = (1 << rest) - 1
    if lanes < WARP:
        return _Warp(str(part), str(rest), rest)
    whole = e.f.value(f"icmp ult i64 {dialect.lane_linear(e)}, {lanes - rest}")
    mask = e.f.value(f"select i1 {whole}, i32 -1, i32 {part}")
    return _Warp(mask, e.f.value(f"select i1 {whole}, i32 {WARP}, i32 {rest}"), None)


def _lane(e: LaneEmitter) -> str:
    """Number of the lane in its warp."""
    linear = e.f.value(f"trunc i64 {e.dialect.lane_linear(e)} to i32")
    return e.f.value(f"and i32 {linear}, {WARP - 1}")


def _call(e: LaneEmitter, result: str, name: str, *arguments: tuple[str, str]) -> str:
    types = ", ".join(kind for kind, _ in arguments)
    e.module.declare(f"{result} @llvm.nvvm.{name}({types}) #1")
    given = ", ".join(f"{kind} {value}" for kind, value in arguments)
    return e.f.value(f"call {result} @llvm.nvvm.{name}({given})")


def _exchange(e: LaneEmitter, mode: str, dtype: DType, value: str, at: str, mask: str) -> str:
    """``shfl.sync`` of 32 or 64 bits; ``at`` is a lane, a distance or a pattern (i32)."""
    f, kind = e.f, register_type(dtype)

    def word(bits: str) -> str:
        return _call(
            e, "i32", f"shfl.sync.{mode}.i32",
            ("i32", mask), ("i32", bits), ("i32", at), ("i32", str(WARP - 1)),
        )  # fmt: skip

    whole = f"i{dtype.bits}"
    bits = value if kind == whole else f.value(f"bitcast {kind} {value} to {whole}")
    if dtype.bits == WARP:
        moved = word(bits)
    else:
        low = word(f.value(f"trunc i64 {bits} to i32"))
        high = word(f.value(f"trunc i64 {f.value(f'lshr i64 {bits}, 32')} to i32"))
        top = f.value(f"shl i64 {f.value(f'zext i32 {high} to i64')}, 32")
        moved = f.value(f"or i64 {top}, {f.value(f'zext i32 {low} to i64')}")
    return moved if kind == whole else f.value(f"bitcast {whole} {moved} to {kind}")


def _combined(e: LaneEmitter, kind: str, dtype: DType, a: str, b: str) -> str:
    """The operation of the lanes, as it stands everywhere else."""
    x, y, result = Value(dtype), Value(dtype), Value(dtype)
    e.bind(x, a)
    e.bind(y, b)
    e.emit(Operation(f"tile.{kind}", (x, y), (result,)))
    return e.operand(result)


def _reduce(e: LaneEmitter, op: Operation) -> None:
    dtype, kind = scalar_type(op.result), str(op.attributes["kind"])
    value, warp = e.operand(op.operands[0]), _warp(e)
    if dtype.bits == WARP and not dtype.is_float:
        name = kind if dtype.is_signed or kind == "add" else f"u{kind}"
        e.bind(op.result, _call(e, "i32", f"redux.sync.{name}", ("i32", value), ("i32", warp.mask)))
        return
    if warp.known is not None and warp.known & (warp.known - 1) == 0:
        step = warp.known // 2
        while step:
            other = _exchange(e, "bfly", dtype, value, str(step), warp.mask)
            value = _combined(e, kind, dtype, value, other)
            step //= 2
        e.bind(op.result, value)
        return
    lane, step, register = _lane(e), WARP // 2, register_type(dtype)
    while step:
        other = _exchange(e, "down", dtype, value, str(step), warp.mask)
        source = e.f.value(f"add nuw nsw i32 {lane}, {step}")
        exists = e.f.value(f"icmp ult i32 {source}, {warp.count}")
        sum_ = _combined(e, kind, dtype, value, other)
        value = e.f.value(f"select i1 {exists}, {register} {sum_}, {register} {value}")
        step //= 2
    e.bind(op.result, _exchange(e, "idx", dtype, value, "0", warp.mask))


def _shuffle(e: LaneEmitter, op: Operation) -> None:
    dtype, warp = scalar_type(op.result), _warp(e)
    value = e.operand(op.operands[0])
    wanted = e.f.value(f"trunc i64 {e.operand(op.operands[1])} to i32")
    source = e.f.value(f"and i32 {wanted}, {WARP - 1}")
    if warp.known != WARP:
        exists = e.f.value(f"icmp ult i32 {source}, {warp.count}")
        source = e.f.value(f"select i1 {exists}, i32 {source}, i32 {_lane(e)}")
    e.bind(op.result, _exchange(e, "idx", dtype, value, source, warp.mask))


def _vote(e: LaneEmitter, op: Operation) -> None:
    operand = ("i1", e.operand(op.operands[0]))
    result, name = ("i32", "ballot") if scalar_type(op.result) == U32 else ("i1", "")
    name = name or str(op.attributes["kind"])
    e.bind(op.result, _call(e, result, f"vote.{name}.sync", ("i32", _warp(e).mask), operand))


def _match(e: LaneEmitter, op: Operation) -> None:
    """Lanes with the same number of 8 bits meet in a cell of their warp's table: each sets its
    bit, all read, all clear. Wider numbers take the machine's instruction, which is slow."""
    f, dtype, warp = e.f, scalar_type(op.operands[0]), _warp(e)
    value, register = e.operand(op.operands[0]), register_type(dtype)
    if len(op.operands) == 1:
        width = max(dtype.bits, WARP)
        wide = value if dtype.bits >= WARP else f.value(f"zext {register} {value} to i32")
        name = f"match.any.sync.i{width}"
        e.bind(op.result, _call(e, "i32", name, ("i32", warp.mask), (f"i{width}", wide)))
        return
    lane = _lane(e)
    byte = f.value(f"zext {register} {value} to i64")
    first = f.value(f"and i64 {e.dialect.lane_linear(e)}, {-WARP}")
    cell = f.value(f"add nuw nsw i64 {f.value(f'shl nuw nsw i64 {first}, 3')}, {byte}")
    place = e.places[op.operands[1]]
    kind = e.dialect.pointer_type("shared")
    at = f.value(f"getelementptr inbounds i32, {kind} {place.pointer}, i64 {cell}")
    own = f.value(f"shl nuw i32 1, {lane}")
    scope = e.dialect.syncscope("group")
    f.value(f"atomicrmw or {kind} {at}, i32 {own} {scope}monotonic, align 4")
    _meet(e, warp)
    found = f.value(f"load volatile i32, {kind} {at}, align 4")
    _meet(e, warp)
    f.line(f"store volatile i32 0, {kind} {at}, align 4")
    _meet(e, warp)
    e.bind(op.result, found)


def _meet(e: LaneEmitter, warp: _Warp) -> None:
    """What lanes of the warp did to shared memory before is seen by all of them behind it."""
    e.module.declare("void @llvm.nvvm.bar.warp.sync(i32) #1")
    e.f.line(f"call void @llvm.nvvm.bar.warp.sync(i32 {warp.mask})")


def _alloc(e: LaneEmitter, op: Operation) -> None:
    """A table of ``tile.warp_match`` begins as zeros: each warp clears its own."""
    memory.RULES[op.name](e, op)
    shape = cast("BufferType", op.result.type).shape
    if not op.attributes.get("scratch") or shape[1:] != (_TABLE,):
        return
    f, kind, warp, place = e.f, e.dialect.pointer_type("shared"), _warp(e), e.places[op.result]
    lanes = warp.known if warp.known is not None and _TABLE % warp.known == 0 else 1
    first = f.value(f"and i64 {e.dialect.lane_linear(e)}, {-WARP}")
    start = f.value(f"shl nuw nsw i64 {first}, 3")
    if lanes > 1:
        start = f.value(f"add nuw nsw i64 {start}, {f.value(f'zext i32 {_lane(e)} to i64')}")
    for step in range(0, _TABLE, lanes):
        cell = f.value(f"add nuw nsw i64 {start}, {step}")
        at = f.value(f"getelementptr inbounds i32, {kind} {place.pointer}, i64 {cell}")
        f.line(f"store volatile i32 0, {kind} {at}, align 4")
    _meet(e, warp)


_TABLE = 256
RULES: dict[str, Rule] = {
    "tile.shared.alloc": _alloc,
    "tile.warp_match": _match,
    "tile.warp_reduce": _reduce,
    "tile.warp_shuffle": _shuffle,
    "tile.warp_vote": _vote,
    "tile.warp_ballot": _vote,
}
