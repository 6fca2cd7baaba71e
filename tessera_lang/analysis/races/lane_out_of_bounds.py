"""Indices that are outside in some lanes: in every launch.

Owns T0402 where a lane has to be named: no size and no data decides. The lanes are followed one by
one, with no argument known, so that what is found is so in every launch; all groups where the grid
is written out, else the first. Must not know ranges beyond which accesses are open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Effort, Launch, Trace, trace_lane
from tessera_lang.analysis.lanes.decoded_steps import steps_of
from tessera_lang.analysis.lanes.followed_operations import followed_operations
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan

_STEPS = 12_000  # operations of all lanes that are followed for a kernel
Who = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Outside:
    """An access that a lane of a group does outside of an axis. ``possible``: if data say so."""

    who: Who
    axis: int
    index: int
    size: int
    possible: bool = False


@dataclass(slots=True)
class Watch:
    """``views``: where sizes are those of a launch. ``found``: the first index outside of each
    access; ``inside``: accesses with a known index that was not;
    ``unknown``: with one that is not."""

    open: frozenset[Operation]
    who: Who
    views: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    found: dict[Operation, Outside] = field(default_factory=dict["Operation", "Outside"])
    inside: set[Operation] = field(default_factory=set[Operation])
    unknown: set[Operation] = field(default_factory=set[Operation])

    def matters(self, operation: Operation) -> bool:
        return operation in self.open

    def passed_over(self, operation: Operation) -> None:
        pass

    def see(self, trace: Trace, operation: Operation) -> None:
        if operation not in self.open or not self._asks(trace, operation):
            return
        at = BUFFER_AT[operation.name]
        sizes = self._sizes(trace, operation.operands[at])
        for axis, (index, size) in enumerate(zip(operation.operands[at + 1 :], sizes, strict=True)):
            number = trace.number(index)
            if number is None or size is None:
                self.unknown.add(operation)
                continue
            if 0 <= number < size:
                self.inside.add(operation)
            else:
                possible = trace.possible > 0
                self.found[operation] = Outside(self.who, axis, number, size, possible)
                break

    def _asks(self, trace: Trace, operation: Operation) -> bool:
        """What is sure counts for more than what data say."""
        before = self.found.get(operation)
        return before is None or (before.possible and not trace.possible)

    def _sizes(self, trace: Trace, array: Value) -> Sequence[int | None]:
        view = self.views.get(array)
        if view is None:
            return array.array_type.shape
        sizes = view.operands[1 : 1 + len(array.array_type.shape)]
        return [trace.number(v) for v in sizes]


def check_lane_bounds(kernel: Operation, known: Ranges, plan: LaunchPlan) -> tuple[Diagnostic, ...]:
    """One error per access that some lane surely does outside of an array of known size."""
    open_ = frozenset(
        o
        for o in open_accesses(known)
        if None not in o.operands[BUFFER_AT[o.name]].array_type.shape
    )
    if not open_:
        return ()
    literal = [g for g in plan.grid or () if isinstance(g, int)]
    groups = tuple(literal) if plan.grid and len(literal) == len(plan.grid) else ()
    found = _followed(kernel, Launch({}, groups, ""), open_, {})
    several = prod(groups) > 1
    return tuple(_report(o, found[o], several) for o in known.accesses if o in found)


def open_accesses(known: Ranges) -> Iterator[Operation]:
    for o, access in known.accesses.items():
        if access.verdict == "unknown" and o.name in BUFFER_AT:
            yield o


def _followed(
    kernel: Operation, launch: Launch, open_: frozenset[Operation], views: dict[Value, Operation]
) -> dict[Operation, Outside]:
    effort, found = Effort(_STEPS), dict[Operation, Outside]()
    ready = steps_of(followed_operations(kernel, open_.__contains__))
    for group, lane in in_turn(prod(kernel.integers("group")), prod(launch.groups)):
        watch = Watch(open_ - found.keys(), (group, lane), views)
        there = replace(launch, group=group)
        trace_lane(kernel, there, lane, effort, watch=watch, ready=ready)
        found.update(watch.found)
        if effort.left <= 0 or len(found) == len(open_):
            break
    return found


def in_turn(lanes: int, groups: int) -> Iterator[Who]:
    """Those at the ends first."""
    ends = [n for n in dict.fromkeys((0, lanes - 1, 1, lanes // 2, lanes - 2)) if 0 <= n < lanes]
    order = [*dict.fromkeys((0, groups - 1)), *range(1, groups - 1)]
    yield from ((g, n) for g in order for n in ends)
    rest = [n for n in range(lanes) if n not in ends]
    yield from ((g, n) for g in order for n in rest)


def _report(operation: Operation, outside: Outside, several: bool) -> Diagnostic:
    array = operation.operands[BUFFER_AT[operation.name]]
    shape = array.array_type.shape
    size, of_axis = outside.size, f" axis {outside.axis} of" if len(shape) > 1 else ""
    name = f"`{array.name}`" if array.name else "the array"
    lane = f"lane {outside.who[1]}" + (f" of group {outside.who[0]}" if several else "")
    return Diagnostic(
        "T0402",
        f"in {lane} this index is {outside.index}, outside{of_axis} {name} (size {size})",
        operation.span, f"outside in {lane}, whatever the call",
        helps=(f"let the lane do this only where the index is 0 to {(size or 1) - 1}",),
    )  # fmt: skip
