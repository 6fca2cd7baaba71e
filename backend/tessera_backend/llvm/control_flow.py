"""Rules for structured control flow: regions become basic blocks.

Carried values and results live in stack slots (LLVM makes registers of them). An exit asks
the innermost target of its kind to write the branch; how a target does that is its own
matter, so a backend may put other targets on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tessera_backend.llvm import fault_reports
from tessera_backend.llvm.emitter import LaneEmitter, Rule, register_count, scalar_type
from tessera_backend.llvm.types import register_type
from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class Slots:
    """One stack slot a value, or register of a tile; one for two neighbours of 16 bits, which
    else took a whole register of the machine each."""

    pointers: tuple[str, ...]
    kinds: tuple[str, ...]
    counts: tuple[int, ...]

    def store(self, e: LaneEmitter, values: Sequence[str]) -> None:
        at = 0
        for pointer, kind, count in zip(self.pointers, self.kinds, self.counts, strict=True):
            if count == 1:
                e.f.line(f"store {kind} {values[at]}, ptr {pointer}")
            else:
                e.f.line(f"store i32 {_word(e, kind, values[at], values[at + 1])}, ptr {pointer}")
            at += count

    def load(self, e: LaneEmitter) -> tuple[str, ...]:
        out: list[str] = []
        for pointer, kind, count in zip(self.pointers, self.kinds, self.counts, strict=True):
            if count == 1:
                out.append(e.f.value(f"load {kind}, ptr {pointer}"))
            else:
                out += _halves(e, kind, e.f.value(f"load i32, ptr {pointer}"))
        return tuple(out)


def _word(e: LaneEmitter, kind: str, low: str, high: str) -> str:
    """Two registers of 16 bits as one."""
    bits = [v if kind == "i16" else e.f.value(f"bitcast {kind} {v} to i16") for v in (low, high)]
    wide = [e.f.value(f"zext i16 {v} to i32") for v in bits]
    moved = e.f.value(f"shl nuw i32 {wide[1]}, 16")
    return e.f.value(f"or disjoint i32 {wide[0]}, {moved}")


def _halves(e: LaneEmitter, kind: str, word: str) -> list[str]:
    """The inverse of ``_word``."""
    moved = e.f.value(f"lshr i32 {word}, 16")
    bits = [e.f.value(f"trunc i32 {w} to i16") for w in (word, moved)]
    return [v if kind == "i16" else e.f.value(f"bitcast i16 {v} to {kind}") for v in bits]


def slots_for(e: LaneEmitter, values: Sequence[Value]) -> Slots:
    """Slots of the types of ``values``; of a tile one a register, or two of 16 bits."""
    pointers: list[str] = []
    kinds: list[str] = []
    counts: list[int] = []
    for value in values:
        found = _kinds(value)
        count = 2 if found[0] in ("i16", "half") and len(found) % 2 == 0 else 1
        for kind in found[::count]:
            pointers.append(e.f.slot("i32" if count == 2 else kind))
            kinds.append(kind)
            counts.append(count)
    return Slots(tuple(pointers), tuple(kinds), tuple(counts))


def _kinds(value: Value) -> list[str]:
    if isinstance(value.type, TileType):
        return [register_type(value.type.dtype)] * register_count(value)
    return [register_type(scalar_type(value))]


@dataclass(frozen=True, slots=True)
class ReturnTarget:
    label: str
    kind: Literal["loop", "scope", "kernel"] = "kernel"

    def leave(self, e: LaneEmitter, values: tuple[str, ...], how: str) -> None:
        e.f.branch(self.label)


@dataclass(frozen=True, slots=True)
class LoopTarget:
    slots: Slots
    continue_label: str
    break_label: str
    kind: Literal["loop", "scope", "kernel"] = "loop"

    def leave(self, e: LaneEmitter, values: tuple[str, ...], how: str) -> None:
        self.slots.store(e, values)
        e.f.branch(self.break_label if how == "break" else self.continue_label)


@dataclass(frozen=True, slots=True)
class ScopeTarget:
    slots: Slots
    label: str
    kind: Literal["loop", "scope", "kernel"] = "scope"

    def leave(self, e: LaneEmitter, values: tuple[str, ...], how: str) -> None:
        self.slots.store(e, values)
        e.f.branch(self.label)


_KINDS = {"break": "loop", "continue": "loop", "leave": "scope", "return": "kernel"}


def _exit(how: str) -> Rule:
    def rule(e: LaneEmitter, op: Operation) -> None:
        target = next(t for t in reversed(e.targets) if t.kind == _KINDS[how])
        target.leave(e, e.parts(op.operands), how)

    return rule


# --- if and scope ---------------------------------------------------------------------------


def _side(e: LaneEmitter, region: Region, results: Slots, join: str) -> None:
    e.emit_all(region.operations[:-1])
    last = region.terminator
    if not e.f.open:
        return
    if last.name == "tile.yield":
        results.store(e, e.parts(last.operands))
        e.f.branch(join)
    else:
        e.emit(last)


def _if(e: LaneEmitter, op: Operation) -> None:
    f = e.f
    then, otherwise, join = f.label("then"), f.label("else"), f.label("endif")
    results = slots_for(e, op.results)
    f.branch_if(e.operand(op.operands[0]), then, otherwise)
    for label, region in zip((then, otherwise), op.regions, strict=True):
        f.place(label)
        _side(e, region, results, join)
    f.place(join)
    _bind_all(e, op.results, results)


def _scope(e: LaneEmitter, op: Operation) -> None:
    join = e.f.label("endscope")
    results = slots_for(e, op.results)
    e.targets.append(ScopeTarget(results, join))
    e.emit_all(op.regions[0].operations)
    e.targets.pop()
    e.f.place(join)
    _bind_all(e, op.results, results)


def _bind_all(e: LaneEmitter, values: Sequence[Value], slots: Slots) -> None:
    e.bind_parts(values, slots.load(e))


# --- loops ----------------------------------------------------------------------------------


def trip_count(
    e: LaneEmitter, lower: str, upper: str, step: str, dtype: DType, known: int | None,
    op: Operation,
) -> str:  # fmt: skip
    """How often ``range(lower, upper, step)`` runs, in unsigned arithmetic of the width.

    The difference of two numbers of a width fits that width unsigned, so nothing overflows.
    ``known`` is the step where it is a constant. A step of 0 reports and gives 0.
    """
    f, kind = e.f, register_type(dtype)
    if known is not None and known != 0:
        return _count_one_way(e, lower, upper, step, dtype, forward=known > 0)
    zero = f.value(f"icmp eq {kind} {step}, 0")
    fault_reports.report_if(e, zero, op, axis="0", index="0", bound="0")
    safe = f.value(f"select i1 {zero}, {kind} 1, {kind} {step}")
    count = _count_one_way(e, lower, upper, safe, dtype, forward=True)
    if dtype.is_signed:
        back = _count_one_way(e, lower, upper, safe, dtype, forward=False)
        negative = f.value(f"icmp slt {kind} {step}, 0")
        count = f.value(f"select i1 {negative}, {kind} {back}, {kind} {count}")
    return f.value(f"select i1 {zero}, {kind} 0, {kind} {count}")


def _count_one_way(
    e: LaneEmitter, lower: str, upper: str, step: str, dtype: DType, *, forward: bool
) -> str:
    f, kind = e.f, register_type(dtype)
    sign = "s" if dtype.is_signed else "u"
    first, last = (lower, upper) if forward else (upper, lower)
    stride = step if forward else f.value(f"sub {kind} 0, {step}")
    some = f.value(f"icmp {sign}lt {kind} {first}, {last}")
    gap = f.value(f"sub {kind} {f.value(f'sub {kind} {last}, {first}')}, 1")
    count = f.value(f"add {kind} {f.value(f'udiv {kind} {gap}, {stride}')}, 1")
    return f.value(f"select i1 {some}, {kind} {count}, {kind} 0")


def _for(e: LaneEmitter, op: Operation) -> None:
    f = e.f
    lower, upper, step = map(e.operand, op.operands[:3])
    dtype = scalar_type(op.operands[0])
    kind = register_type(dtype)
    trips = trip_count(e, lower, upper, step, dtype, e.constant(op.operands[2]), op)
    slots = slots_for(e, op.results)
    slots.store(e, e.parts(op.operands[3:]))
    head, body, latch, done = (f.label(x) for x in ("for", "for.body", "for.next", "endfor"))
    count, variable = f.slot(kind), f.slot(kind)
    f.line(f"store {kind} 0, ptr {count}")
    f.line(f"store {kind} {lower}, ptr {variable}")
    f.place(head)
    counted = f.value(f"load {kind}, ptr {count}")
    f.branch_if(f.value(f"icmp ult {kind} {counted}, {trips}"), body, done)
    f.place(body)
    region = op.regions[0]
    iv = f.value(f"load {kind}, ptr {variable}")
    e.bind(region.arguments[0], iv)
    _bind_all(e, region.arguments[1:], slots)
    _loop_body(e, region, LoopTarget(slots, latch, done))
    f.place(latch)
    f.line(f"store {kind} {f.value(f'add nuw {kind} {counted}, 1')}, ptr {count}")
    # Past the last step the variable may wrap: nobody reads it there.
    f.line(f"store {kind} {f.value(f'add {kind} {iv}, {step}')}, ptr {variable}")
    f.branch(head, e.dialect.loop_suffix(e, op))
    f.place(done)
    _bind_all(e, op.results, slots)


def _loop_body(e: LaneEmitter, region: Region, target: LoopTarget) -> None:
    e.targets.append(target)
    e.emit_all(region.operations[:-1])
    last = region.terminator
    if e.f.open:
        if last.name == "tile.yield":
            target.leave(e, e.parts(last.operands), "continue")
        else:
            e.emit(last)
    e.targets.pop()


def _while(e: LaneEmitter, op: Operation) -> None:
    f = e.f
    before, region = op.regions
    slots = slots_for(e, op.results)
    slots.store(e, e.parts(op.operands))
    head, body, done = f.label("while"), f.label("while.body"), f.label("endwhile")
    each_turn = e.dialect.counted(e, op)
    f.place(head)
    _bind_all(e, before.arguments, slots)
    e.emit_all(before.operations[:-1])
    condition, *carried = e.parts(before.terminator.operands)
    slots.store(e, carried)
    f.branch_if(each_turn(condition), body, done)
    f.place(body)
    e.bind_parts(region.arguments, carried)
    _loop_body(e, region, LoopTarget(slots, head, done))
    f.place(done)
    _bind_all(e, op.results, slots)


RULES: dict[str, Rule] = {
    "tile.for": _for,
    "tile.while": _while,
    "tile.if": _if,
    "tile.scope": _scope,
    **{f"tile.{how}": _exit(how) for how in _KINDS},
}
