"""Indices that are outside in some lanes of every launch: no size and no data decides.

Owns T0402 where a lane has to be named. The lanes of a group are followed one by one, with no
argument known, so that what is found is so in every launch. Must not know ranges beyond which
accesses are open.
"""

from __future__ import annotations

from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Effort, Launch, Trace, WayUnknown, trace_lane
from tessera_lang.analysis.lanes.followed_operations import followed_operations
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass, field

_STEPS = 12_000  # operations of all lanes that are followed for a kernel


@dataclass(slots=True)
class _Watch:
    """``found``: the axis and the index, of accesses that a lane surely does outside."""

    open: frozenset[Operation]
    found: dict[Operation, tuple[int, int]] = field(
        default_factory=dict["Operation", "tuple[int, int]"]
    )

    def matters(self, operation: Operation) -> bool:
        return operation in self.open

    def passed_over(self, operation: Operation) -> None:
        pass

    def see(self, trace: Trace, operation: Operation) -> None:
        if operation.name == "tile.group_count":
            raise WayUnknown  # a launch decides
        if operation not in self.open or operation in self.found:
            return
        at = BUFFER_AT[operation.name]
        shape = operation.operands[at].array_type.shape
        for axis, (index, size) in enumerate(zip(operation.operands[at + 1 :], shape, strict=True)):
            number = trace.number(index)
            if number is not None and (number < 0 or (size is not None and number >= size)):
                self.found[operation] = (axis, number)


def check_lane_bounds(kernel: Operation, known: Ranges) -> tuple[Diagnostic, ...]:
    """One error per access that some lane surely does outside of an array of known size."""
    open_ = frozenset(
        o for o, access in known.accesses.items()
        if access.verdict == "unknown" and o.name in BUFFER_AT
        and None not in o.operands[BUFFER_AT[o.name]].array_type.shape
    )  # fmt: skip
    if not open_:
        return ()
    lanes, effort = prod(kernel.integers("group")), Effort(_STEPS)
    kept = followed_operations(kernel, open_.__contains__)
    ends = (0, lanes - 1, 1, lanes // 2, lanes - 2)
    found: dict[Operation, Diagnostic] = {}
    for lane in dict.fromkeys(n for n in (*ends, *range(lanes)) if 0 <= n < lanes):
        watch = _Watch(open_ - found.keys())
        trace_lane(kernel, Launch({}, (), ""), lane, effort, watch=watch, kept=kept)
        for operation, (axis, number) in watch.found.items():
            found[operation] = _report(operation, lane, axis, number)
        if effort.left <= 0 or len(found) == len(open_):
            break
    return tuple(found[o] for o in known.accesses if o in found)


def _report(operation: Operation, lane: int, axis: int, number: int) -> Diagnostic:
    array = operation.operands[BUFFER_AT[operation.name]]
    shape = array.array_type.shape
    size, of_axis = shape[axis], f" axis {axis} of" if len(shape) > 1 else ""
    name = f"`{array.name}`" if array.name else "the array"
    return Diagnostic(
        "T0402",
        f"in lane {lane} this index is {number}, outside{of_axis} {name} (size {size})",
        operation.span, f"outside in lane {lane}, whatever the call",
        helps=(f"let the lane do this only where the index is 0 to {(size or 1) - 1}",),
    )  # fmt: skip
