"""Small launches that are run whole, in several orders, for what is open otherwise.

Owns T0416, and which launches and orders are enough for it. What meets in one of them is a fault;
where nothing does, and no access was left out, that is said, with the launches. Must not know why
an array or a buffer is open.
"""

from __future__ import annotations

from collections.abc import Set
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Launch
from tessera_lang.analysis.lanes.launch_samples import small_launches
from tessera_lang.analysis.races.hand_over_races import Shown, begins_with
from tessera_lang.analysis.races.run_records import Done, Meeting
from tessera_lang.analysis.races.simulated_launch import MOST_LANES, Order, Run
from tessera_lang.analysis.races.stored_values import Values
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import LaunchPlan

_ORDERS: tuple[tuple[Order, int], ...] = (
    ("mixed", 1), ("in turn", 0), ("reverse", 0), ("mixed", 2), ("mixed", 3),
)  # fmt: skip
_ENOUGH_ORDERS = 3
_ENOUGH_LAUNCHES = 3  # where sizes are not numbers
_MOST_LAUNCHES = 6
_STEPS = 520_000  # operations of all runs
_LAUNCH_STEPS = 500_000  # of those of one launch
_EAGER_STEPS = 100_000  # of one launch in which who waits goes first


@dataclass(slots=True)
class CheckedLaunches:
    """``unsure``: buffers of which it is not known whether what is read was written.
    ``whole``: launches that were run to their end, with how many orders; ``shown``: the first
    two accesses that meet in an array or a buffer; ``open``: those of which accesses were left
    out, or that lanes write values to that are not known; ``unwritten``: reads of what nobody
    wrote. ``data``: whether data decide what lanes do."""

    kernel: Operation
    whole: list[tuple[Launch, int]] = field(default_factory=list[tuple[Launch, int]])
    shown: dict[Value, Shown] = field(default_factory=dict[Value, Shown])
    open: set[Value] = field(default_factory=set[Value])
    unwritten: dict[Value, tuple[Launch, Done]] = field(
        default_factory=dict[Value, tuple[Launch, Done]]
    )
    unsure: set[Value] = field(default_factory=set[Value])
    begins: set[str] = field(default_factory=set[str])
    data: bool = False
    enough: bool = False

    def fine(self, root: Value) -> bool:
        """Whether lanes do not meet there, in as many launches as it takes."""
        return self.enough and root not in self.shown and root not in self.open

    def written(self, root: Value) -> bool:
        """Whether all that is read there was written before."""
        return self.fine(root) and root not in self.unwritten and root not in self.unsure

    def note(self, roots: Set[Value]) -> Diagnostic:
        """What was found of these, and in which launches."""
        names = sorted({f"`{r.name or 'array'}`" for r in roots})
        launches = "; ".join(named(x) for x, _ in self.whole)
        orders = min(n for _, n in self.whole)
        notes = [f"run whole, in {orders} orders of lanes or more: {launches}"]
        if self.begins:
            notes.append(f"{' and '.join(sorted(self.begins)[:3])} 0 before")
        notes.append("other sizes are not proved")
        if all(not x.text for x, _ in self.whole):
            notes[-1] = "that other orders give the same is not proved"
        return Diagnostic(
            "T0416",
            f"lanes do not meet in {' and '.join(names)} in the launches that were run",
            self.kernel.span, "found by running small launches", "note", notes=tuple(notes),
        )  # fmt: skip


def named(launch: Launch) -> str:
    groups = f"{prod(launch.groups)} groups" if prod(launch.groups) > 1 else "one group"
    return f"{groups} with {launch.text}" if launch.text else groups


def run_launches(
    kernel: Operation, plan: LaunchPlan, uniform: Uniformity, several: bool
) -> CheckedLaunches:
    """``several``: whether the kernel may run in several groups."""
    found = CheckedLaunches(kernel)
    values = Values(uniform.definitions, kernel.regions[0].arguments)
    left, lanes, seen = _STEPS, prod(plan.group), 0
    for launch in small_launches(kernel, plan, several):
        seen += 1
        if lanes * prod(launch.groups) > MOST_LANES:
            continue
        given = budget = min(left, _LAUNCH_STEPS)
        orders = 0
        for order, seed in _ORDERS:
            run = Run(kernel, launch, None, left=budget, seed=seed, both_ways=True)
            run.go(order)
            budget = max(run.left, 0)
            if any(m.both_write and not _is_alike(m, uniform) for m in run.met):
                run = Run(kernel, launch, values, left=budget, seed=seed, both_ways=True)
                run.go(order)
                budget = max(run.left, 0)
            if run.outside:
                break  # nobody launches it so
            _note(found, run, uniform)
            if not run.whole:
                found.data |= run.left >= 0
                break
            orders += 1
        left -= given - budget
        _run_eagerly(found, launch, values, uniform)
        if orders >= _ENOUGH_ORDERS:
            found.whole.append((launch, orders))
        if found.data or left <= 0 or len(found.whole) == _MOST_LAUNCHES:
            break
    needed = 1 if not found.whole or not found.whole[0][0].text else min(_ENOUGH_LAUNCHES, seen)
    found.enough = (
        not found.data
        and len(found.whole) >= max(needed, 1)
        and (not several or any(prod(x.groups) > 1 for x, _ in found.whole))
    )
    return found


def _run_eagerly(
    found: CheckedLaunches, launch: Launch, values: Values, uniform: Uniformity
) -> None:
    """Once more, where lanes wait for others: each goes on as soon as it can."""
    run = Run(found.kernel, launch, values, left=_EAGER_STEPS, both_ways=True)
    if not found.data and run.may_wait():
        run.go("eager")
        if not run.outside:
            _note(found, run, uniform)


def _note(found: CheckedLaunches, run: Run, uniform: Uniformity) -> None:
    found.open |= run.open
    found.unsure |= run.unsure
    begins = begins_with(run)
    found.begins.update(begins)
    for meeting in run.met:
        root = meeting.second.root
        if _is_alike(meeting, uniform):
            continue
        if meeting.both_write and None in (meeting.first.value, meeting.second.value):
            found.open.add(root)
        else:
            found.shown.setdefault(root, Shown(run.launch, meeting, begins))
    for root, done in run.unwritten.items():
        found.unwritten.setdefault(root, (run.launch, done))


def _is_alike(meeting: Meeting, uniform: Uniformity) -> bool:
    """Whether both lanes store one value."""
    a, b = meeting.first, meeting.second
    same = a.operation is b.operation and a.who[0] == b.who[0] and a.interval == b.interval
    return meeting.both_write and same and uniform.is_uniform(a.operation.operands[0])
