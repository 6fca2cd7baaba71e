"""Trip counts of a loop of the group whose lanes make different numbers of steps.

Where start and end are affine in the lane's position and the step is uniform, the fewest and
the most steps are those of two corners of the group: two divisions instead of one a lane, and
where they are equal, as in all groups but the last of most launches, nothing is kept for each
lane. Must not know what a step does.
"""

from __future__ import annotations

from tessera_backend.cpu.corner_tests import Corners
from tessera_backend.cpu.group_versions import Versions
from tessera_backend.cpu.lane_loops import Array, LaneLoops, Mask
from tessera_backend.llvm.control_flow import trip_count
from tessera_backend.llvm.emitter import scalar_type
from tessera_backend.llvm.types import register_type
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import INDEX

_LONGEST_STEP = 1 << 60  # of this length or shorter, the step past the end cannot wrap


@dataclass(frozen=True, slots=True)
class Trips:
    """``fewest`` and ``most`` steps of the active lanes (fewest is above most where none is),
    and those of each lane: valid where the two differ, or where asked for."""

    fewest: str
    most: str
    each: Array


class TripCounter:
    """Writes the counting of trips into the group's code."""

    def __init__(self, lanes: LaneLoops, corners: Corners, versions: Versions) -> None:
        self._lanes, self._corners, self._versions = lanes, corners, versions

    def count(self, op: Operation, outer: Mask | None, *, each: bool) -> Trips:
        """``each``: the array is read even where all lanes make the same number of steps."""
        f = self._lanes.e.f
        dtype = scalar_type(op.operands[0])
        kind = register_type(dtype)
        array = self._lanes.new_array(dtype)
        slots = f.slot(kind), f.slot(kind)
        if outer is None and self._is_affine(op):
            self._at_corners(op, slots, array, each=each)
        else:
            self._in_lanes(op, outer, slots, array)
        low, high = (f.value(f"load {kind}, ptr {slot}") for slot in slots)
        return Trips(low, high, array)

    def _is_affine(self, op: Operation) -> bool:
        lower, upper, step = op.operands[:3]
        forms = (self._versions.form(lower), self._versions.form(upper))
        return (
            lower.type == INDEX and None not in forms and self._lanes.plan.scalars.is_scalar(step)
        )

    # --- every lane -------------------------------------------------------------------------

    def _in_lanes(
        self, op: Operation, outer: Mask | None, slots: tuple[str, str], array: Array
    ) -> None:
        lanes, f = self._lanes, self._lanes.e.f
        kind = register_type(array.dtype)
        fewest, most = slots
        f.line(f"store {kind} -1, ptr {fewest}")
        f.line(f"store {kind} 0, ptr {most}")

        def body() -> None:
            low = count = self._trips(op, *map(lanes.lane_value, op.operands[:3]))
            active = lanes.active(outer)
            if active:
                low = f.value(f"select i1 {active}, {kind} {count}, {kind} -1")
                count = f.value(f"select i1 {active}, {kind} {count}, {kind} 0")
            lanes.write(array, count)
            self._better(fewest, kind, low, "ult")
            self._better(most, kind, count, "ugt")

        lanes.lanes(body)

    def _trips(self, op: Operation, lower: str, upper: str, step: str) -> str:
        e = self._lanes.e
        known = e.constant(op.operands[2])
        return trip_count(e, lower, upper, step, scalar_type(op.operands[0]), known, op)

    def _better(self, slot: str, kind: str, value: str, predicate: str) -> None:
        f = self._lanes.e.f
        before = f.value(f"load {kind}, ptr {slot}")
        f.line(f"store {kind} {self._choose(kind, value, before, predicate)}, ptr {slot}")

    def _choose(self, kind: str, value: str, before: str, predicate: str) -> str:
        f = self._lanes.e.f
        better = f.value(f"icmp {predicate} {kind} {value}, {before}")
        return f.value(f"select i1 {better}, {kind} {value}, {kind} {before}")

    # --- corners ----------------------------------------------------------------------------

    def _at_corners(
        self, op: Operation, slots: tuple[str, str], array: Array, *, each: bool
    ) -> None:
        f = self._lanes.e.f
        lower, upper, step = op.operands[:3]
        lane_step = self._lanes.e.operand(step)
        corners, holds = self._corners.values_without_wrap((lower, upper))
        counts = [self._trips(op, c[lower], c[upper], lane_step) for c in corners]
        low = high = counts[0]
        for count in counts[1:]:
            low = self._choose("i64", count, low, "ult")
            high = self._choose("i64", count, high, "ugt")
        f.line(f"store i64 {low}, ptr {slots[0]}")
        f.line(f"store i64 {high}, ptr {slots[1]}")
        gap = f.value(f"sub i64 {high}, {low}")
        moved = f.value(f"add i64 {lane_step}, {_LONGEST_STEP}")
        holds += [
            f.value(f"icmp ult i64 {gap}, 2"),
            f.value(f"icmp ule i64 {moved}, {2 * _LONGEST_STEP}"),
        ]
        near = holds[0]
        for test in holds[1:]:
            near = f.value(f"and i1 {near}, {test}")
        close, far, done = f.label("trips.near"), f.label("trips.far"), f.label("trips")
        f.branch_if(near, close, far)
        f.place(far)
        self._in_lanes(op, None, slots, array)
        f.branch(done)
        f.place(close)
        if not each:
            differ = f.label("trips.differ")
            f.branch_if(f.value(f"icmp eq i64 {gap}, 0"), done, differ)
            f.place(differ)
        self._one_more(op, low, array)
        f.place(done)

    def _one_more(self, op: Operation, low: str, array: Array) -> None:
        """Counts that are ``low`` or one more, without a division."""
        lanes, e, f = self._lanes, self._lanes.e, self._lanes.e.f

        def body() -> None:
            lower, upper, step = map(lanes.lane_value, op.operands[:3])
            reached = f.value(f"add i64 {lower}, {f.value(f'mul i64 {low}, {step}')}")
            known = e.constant(op.operands[2])
            more = ""
            if known is None or known > 0:
                more = f.value(f"icmp slt i64 {reached}, {upper}")
            if known is None or known <= 0:
                back = f.value(f"icmp sgt i64 {reached}, {upper}")
                forward = f.value(f"icmp sgt i64 {step}, 0")
                more = f.value(f"select i1 {forward}, i1 {more}, i1 {back}") if more else back
            lanes.write(array, f.value(f"add i64 {low}, {f.value(f'zext i1 {more} to i64')}"))

        lanes.lanes(body)
