"""Which values are computed once for a group, and which a lane computes again.

A scalar is uniform and made of scalars by pure operations, or is needed by control of the
group (then a uniform read, too, is done once). What a lane can make again cheaply from its
number and from scalars is not kept in an array: so addresses stay visible to the vectorizer.
Must not know LLVM.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import (
    BUFFERS,
    DIVISIONS,
    LANE_IDS,
    LOOPS,
    with_effect,
)
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.types.dtype import DType

_PURE = with_effect("none") | BUFFERS
AGAIN = frozenset(
    f"tile.{name}"
    for name in "add sub mul min max and or xor shl shr neg not abs cmp select cast".split()
)
_WRITES = frozenset(
    f"tile.{name}"
    for name in (
        "store atomic atomic_cas atomic_store fence print break continue leave return"
    ).split()
) | frozenset(WARP_OPS)
_COST_LIMIT = 16


class Scalars:
    """The choice for one kernel; ``is_group`` tells which constructs stand outside lanes."""

    def __init__(
        self, kernel: Operation, uniform: Uniformity, is_group: Callable[[Operation], bool]
    ) -> None:
        self._uniform = uniform
        self._is_group = is_group
        self._scalar: set[Value] = set(kernel.regions[0].arguments)
        self._once: set[Operation] = set()
        self._definitions: dict[Value, Operation] = {}
        self._carried: dict[Value, list[Value]] = {}
        self._needed: list[Value] = []
        self._from_lanes: set[Value] = set()
        self._outside: set[Operation] = set()
        self._kept_twice: set[Value] = set()
        self._again: dict[Value, int | None] = {}
        self._loop_variables: dict[Value, Operation] = {}
        self._scan(kernel.regions[0], group=True)
        self._require()
        self._grow(kernel.regions[0])

    def is_scalar(self, value: Value) -> bool:
        return value in self._scalar

    def is_scalar_op(self, op: Operation) -> bool:
        """Whether an operation is done once for the group."""
        return op in self._once

    def is_kept_twice(self, value: Value) -> bool:
        """Whether a carried scalar ends a loop as another value in each lane."""
        return value in self._kept_twice

    def is_from_lanes(self, value: Value) -> bool:
        """Whether lanes compute a scalar, all the same, and hand it to the group."""
        return value in self._from_lanes

    def has_effect(self, op: Operation) -> bool:
        """Whether it matters that an operation is done where nobody asked for it."""
        return op.name not in _PURE

    def loop_of(self, value: Value) -> Operation | None:
        """The loop of the group whose variable ``value`` is."""
        return self._loop_variables.get(value)

    def again(self, value: Value) -> Operation | None:
        """The operation by which a lane makes a varying value again; None: keep an array."""
        return self._definitions[value] if self._cost(value) is not None else None

    def definition(self, value: Value) -> Operation | None:
        return self._definitions.get(value)

    # --- what control of the group needs ----------------------------------------------------

    def _scan(self, region: Region, *, group: bool) -> None:
        for op in region.operations:
            for result in op.results:
                self._definitions[result] = op
            outside = group and bool(op.regions) and self._is_group(op)
            for inner in op.regions:
                self._scan(inner, group=outside)
            if outside:
                self._scan_group(op)
                self._outside.add(op)

    def _scan_group(self, op: Operation) -> None:
        match op.name:
            case "tile.if":
                self._needed.append(op.operands[0])
                self._hand_over(op, op.results)
            case "tile.for":
                self._needed.extend(op.operands[:3])
                self._loop_variables[op.regions[0].arguments[0]] = op
                if all(map(self._uniform.is_uniform, (op.operands[0], op.operands[2]))):
                    self._scalar.add(op.regions[0].arguments[0])
                self._hand_over(op, op.regions[0].arguments[1:], op.operands[3:])
            case "tile.while":
                self._needed.append(op.regions[0].terminator.operands[0])
                self._hand_over(op, op.regions[0].arguments, op.operands)
            case _:
                self._hand_over(op, op.results)

    def _hand_over(
        self, op: Operation, owners: tuple[Value, ...], initial: tuple[Value, ...] = ()
    ) -> None:
        """Owners whose every source is uniform are scalars; their sources are needed."""
        is_loop = op.name in LOOPS
        onward, final = handed_values(op)
        uniform = self._uniform.is_uniform
        for number, owner in enumerate(owners):
            values = [s[number] for s in onward] + ([initial[number]] if initial else [])
            inner = [owner]
            if op.name == "tile.while":
                inner.append(op.regions[1].arguments[number])
            if not all(map(uniform, (*values, *inner))):
                continue
            last = [s[number] for s in final]
            self._scalar.update(inner)
            self._needed.extend(values)
            if not is_loop:
                continue
            if all(map(uniform, (op.results[number], *last))):
                self._scalar.add(op.results[number])
                self._needed.extend(last)
            else:
                self._kept_twice.add(owner)

    def _require(self) -> None:
        """Everything uniform that a needed value is made of is done once."""
        done: set[Value] = set()
        while self._needed:
            value = self._needed.pop()
            if value in done:
                continue
            done.add(value)
            op = self._definitions.get(value)
            if op is None or op in self._outside:
                continue
            if not self._uniform.is_uniform(value):
                if op.name in AGAIN:
                    self._needed.extend(op.operands)
                continue
            self._scalar.add(value)
            if op.regions and not self._may_be_done_once(op):
                self._from_lanes.add(value)
                continue
            self._once.add(op)
            self._scalar.update(op.results)
            self._needed.extend(v for inner in op.walk() for v in inner.operands)

    def _may_be_done_once(self, op: Operation) -> bool:
        """Whether a construct writes nothing and needs no value that varies."""
        return all(
            inner.name not in _WRITES and all(map(self._uniform.is_uniform, inner.operands))
            for inner in op.walk()
        )

    def _grow(self, region: Region) -> None:
        """Pure operations on scalars are scalars wherever the group's code reaches."""
        for op in region.operations:
            pure = op.name in _PURE or (op.name in DIVISIONS and self._divides_by_constant(op))
            if pure and all(v in self._scalar for v in op.operands):
                if op.results and self._uniform.is_uniform(op.result):
                    self._scalar.add(op.result)
                    self._once.add(op)
            if op in self._outside:
                for inner in op.regions:
                    self._grow(inner)

    # --- what a lane makes again ------------------------------------------------------------

    def _divides_by_constant(self, op: Operation) -> bool:
        if not isinstance(op.result.type, DType) or op.result.type.is_float:
            return False
        divisor = self._definitions.get(op.operands[1])
        if divisor is None or divisor.name != "tile.constant":
            return False
        value = divisor.attributes["value"]
        return isinstance(value, int) and value > 0

    def _cost(self, value: Value) -> int | None:
        if value not in self._again:
            self._again[value] = None  # a cycle cannot be: values come before their uses
            self._again[value] = self._find_cost(value)
        return self._again[value]

    def _find_cost(self, value: Value) -> int | None:
        op = self._definitions.get(value)
        if op is None or not isinstance(value.type, DType):
            return None
        if op.name in LANE_IDS:
            return 0
        operands = (v.type for v in op.operands)
        if any(isinstance(t, DType) and t.is_float for t in (value.type, *operands)):
            return None
        if op.name not in AGAIN and not (op.name in DIVISIONS and self._divides_by_constant(op)):
            return None
        total = 1
        for operand in op.operands:
            if operand in self._scalar or self.loop_of(operand) is not None:
                continue
            cost = self._cost(operand)
            if cost is None:
                return None
            total += cost
        return total if total <= _COST_LIMIT else None


Handed = list[tuple[Value, ...]]


def handed_values(op: Operation) -> tuple[Handed, Handed]:
    """Operands of the terminators that write the slots of ``op``: those that the region's
    arguments see (all of them, where there is no loop), and those only the results see."""
    onward: Handed = []
    final: Handed = []
    for region in op.regions:
        last = region.terminator
        if last.name == "tile.yield":
            onward.append(last.operands)
        elif last.name == "tile.condition":
            onward.append(last.operands[1:])
        if op.name == "tile.scope":
            _collect(region, "tile.leave", "tile.scope", onward)
        elif op.name != "tile.if":
            _collect(region, "tile.continue", "loop", onward)
            _collect(region, "tile.break", "loop", final)
    return onward, final


def _collect(region: Region, exit_name: str, stop: str, found: Handed) -> None:
    """Operands of the exits to the construct around ``region``."""
    for op in region.operations:
        if op.name == exit_name:
            found.append(op.operands)
        kind = "loop" if op.name in LOOPS else op.name
        if kind != stop:
            for inner in op.regions:
                _collect(inner, exit_name, stop, found)
