"""Counters that a thread keeps for itself: atomic updates of a small array without atomicity.

Where all that a kernel does with an array is one kind of atomic update of integers, whose results
nobody reads, the order of the updates does not show, nor does it when they are done. A thread then
updates numbers of its own, which are the neutral ones at first, and joins them to the array when
it has run its last group. Whether that pays the sizes of a launch say. Must not know the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from tessera_backend.cpu.lane_loops import Scratch
from tessera_backend.llvm.atomics import combine
from tessera_backend.llvm.emitter import LaneEmitter, Place, Rule
from tessera_backend.llvm.memory import access_of, address, guard
from tessera_backend.llvm.types import integer_constant, memory_type, zero
from tessera_lang.ir.core import Operation, PointerType, Value, ViewType
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import DType, integer_range

_MOST_BYTES = 65536
_UPDATES = 2  # lanes for each element from which on it pays to clear and to join them


def _neutral(kind: str, dtype: DType) -> str:
    """The number that an update with changes nothing."""
    low, high = integer_range(dtype)
    numbers = {"add": 0, "or": 0, "xor": 0, "and": -1, "min": high, "max": low}
    return integer_constant(numbers[kind], dtype.bits)


_KINDS = ("add", "or", "xor", "and", "min", "max")


@dataclass(eq=False)
class _Kept:
    """An array of which a thread has numbers of its own: where they are, and slots for whether
    they are in use, for the array and for its size. ``on``: whether this launch has them."""

    kind: str
    own: str
    ready: str
    pointer: str
    count: str
    dtype: DType
    on: str = "false"


class Counters:
    """The arrays of one kernel that this can be done with."""

    def __init__(self, kernel: Operation, scratch: Scratch) -> None:
        self._lanes = prod(kernel.integers("group"))
        self._scratch = scratch
        self.kinds = _updated_arrays(kernel)
        self._kept: dict[Value, _Kept] = {}

    def rules(self, rules: Mapping[str, Rule]) -> Mapping[str, Rule]:
        if not self.kinds:
            return rules
        view, atomic = rules["tile.view"], rules["tile.atomic"]

        def view_rule(e: LaneEmitter, op: Operation) -> None:
            view(e, op)
            if op.result in self.kinds:
                self._begin(e, op.result)

        def atomic_rule(e: LaneEmitter, op: Operation) -> None:
            kept = self._kept.get(op.operands[1])
            if kept is None:
                atomic(e, op)
            else:
                self._update(e, op, kept, atomic)

        return {**rules, "tile.view": view_rule, "tile.atomic": atomic_rule}

    def _begin(self, e: LaneEmitter, view: Value) -> None:
        """At the begin of a group: the first of a thread clears its numbers."""
        f, place = e.f, e.places[view]
        dtype, kind = place.dtype, self.kinds[view]
        own = self._scratch.take(_MOST_BYTES)
        ready, pointer, size = f.slot("i1", initial="false"), f.slot("ptr"), f.slot("i64")
        kept = self._kept[view] = _Kept(kind, own, ready, pointer, size, dtype)
        count = place.sizes[0]
        for other in place.sizes[1:]:
            count = f.value(f"mul i64 {count}, {other}")
        lanes = f.value(f"mul i64 %total, {self._lanes}")
        least = f.value(f"mul i64 {count}, {_UPDATES}")
        small = f.value(f"icmp ule i64 {count}, {_MOST_BYTES // dtype.bytes}")
        kept.on = f.value(f"and i1 {small}, {f.value(f'icmp ule i64 {least}, {lanes}')}")
        begun = f.value(f"load i1, ptr {ready}")
        missing = f.value(f"and i1 {kept.on}, {f.value(f'xor i1 {begun}, true')}")
        clear, done = f.label("counters.clear"), f.label("counters")
        f.branch_if(missing, clear, done)
        f.place(clear)
        f.line(f"store i1 true, ptr {ready}")
        f.line(f"store ptr {place.pointer}, ptr {pointer}")
        f.line(f"store i64 {count}, ptr {size}")

        def one(number: str) -> None:
            at = f.value(f"getelementptr inbounds {llvm}, ptr {own}, i64 {number}")
            f.line(f"store {llvm} {_neutral(kind, dtype)}, ptr {at}, align {dtype.bytes}")

        llvm = memory_type(dtype)
        _each(e, count, one)
        f.place(done)

    def _update(self, e: LaneEmitter, op: Operation, kept: _Kept, atomic: Rule) -> None:
        f = e.f
        mine, others, join = (f.label(f"counters.{x}") for x in ("own", "all", "joined"))
        f.branch_if(kept.on, mine, others)
        f.place(mine)
        access = access_of(e, op, 1)
        value = e.operand(op.operands[0])

        def inside() -> str:
            place: Place = replace(access.place, pointer=kept.own)
            at = address(e, replace(access, place=place))
            kind, align = memory_type(kept.dtype), kept.dtype.bytes
            old = f.value(f"load {kind}, ptr {at}, align {align}")
            new = combine(e, kept.kind, old, value, kept.dtype)
            f.line(f"store {kind} {new}, ptr {at}, align {align}")
            return ""

        guard(e, access, inside, "", "")
        f.branch(join)
        f.place(others)
        atomic(e, op)
        f.place(join)
        e.bind(op.result, zero(kept.dtype))

    def end(self, e: LaneEmitter) -> None:
        """When a thread has run its last group."""
        f = e.f
        for kept in self._kept.values():
            join, done = f.label("counters.join"), f.label("counters.joined")
            f.branch_if(f.value(f"load i1, ptr {kept.ready}"), join, done)
            f.place(join)
            pointer = f.value(f"load ptr, ptr {kept.pointer}")
            count = f.value(f"load i64, ptr {kept.count}")
            _each(e, count, partial(_join, e, kept, pointer))
            f.place(done)


def _join(e: LaneEmitter, kept: _Kept, pointer: str, number: str) -> None:
    """One number joins its element, where it is not neutral."""
    f, llvm, align = e.f, memory_type(kept.dtype), kept.dtype.bytes
    at = f.value(f"getelementptr inbounds {llvm}, ptr {kept.own}, i64 {number}")
    value = f.value(f"load {llvm}, ptr {at}, align {align}")
    update, done = f.label("counters.update"), f.label("counters.next")
    changed = f.value(f"icmp ne {llvm} {value}, {_neutral(kept.kind, kept.dtype)}")
    f.branch_if(changed, update, done)
    f.place(update)
    to = f.value(f"getelementptr inbounds {llvm}, ptr {pointer}, i64 {number}")
    unsigned = "u" if kept.kind in ("min", "max") and not kept.dtype.is_signed else ""
    f.value(f"atomicrmw {unsigned}{kept.kind} ptr {to}, {llvm} {value} monotonic, align {align}")
    f.place(done)


def _each(e: LaneEmitter, count: str, one: Callable[[str], None]) -> None:
    """A loop over numbers below ``count``."""
    f = e.f
    slot, head, body, done = (
        f.slot("i64"),
        f.label("each"),
        f.label("each.one"),
        f.label("each.end"),
    )
    f.line(f"store i64 0, ptr {slot}")
    f.place(head)
    number = f.value(f"load i64, ptr {slot}")
    f.branch_if(f.value(f"icmp ult i64 {number}, {count}"), body, done)
    f.place(body)
    one(number)
    f.line(f"store i64 {f.value(f'add nuw i64 {number}, 1')}, ptr {slot}")
    f.branch(head)
    f.place(done)


def _updated_arrays(kernel: Operation) -> dict[Value, str]:
    """The arrays that a kernel only updates, each with the kind of update."""
    found: dict[Value, set[str]] = {}
    pointers: dict[Value, int] = {}
    read: set[Value] = set()
    for op in kernel.walk():
        kind = op.result.type if op.name == "tile.view" else None
        if isinstance(kind, ViewType) and kind.contiguous and op in kernel.regions[0].operations:
            pointer = op.operands[0].type
            whole = isinstance(pointer, PointerType) and pointer.space == "global"
            if whole and kind.dtype.is_integer and kind.dtype.bytes >= 4:
                found[op.result] = set()
        if op.name == "tile.view":
            pointers[op.operands[0]] = pointers.get(op.operands[0], 0) + 1
        read.update(op.operands)
    for op in kernel.walk():
        for number, value in enumerate(op.operands):
            if value in found:
                updates = op.name == "tile.atomic" and number == 1 and op.result not in read
                kind = op.attributes.get("kind") if updates else None
                relaxed = op.attributes.get("order") == "relaxed"
                found[value].add(str(kind) if relaxed and kind in _KINDS else "")
            elif isinstance(value.type, PointerType) and op.name != "tile.view":
                pointers[value] = 2
    single = {
        op.result for op in kernel.regions[0].operations
        if op.name == "tile.view" and pointers[op.operands[0]] == 1
    }  # fmt: skip
    return {
        value: next(iter(kinds))
        for value, kinds in found.items()
        if value in single and len(kinds) == 1 and "" not in kinds
    }
