"""What `--strict` tells: what is neither proved nor an error.

What is open is settled by small launches, where these can be run whole. Must not know how it is
found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_lang.analysis.races.array_races import array_fault, open_arrays, several_groups
from tessera_lang.analysis.races.checked_launches import CheckedLaunches, run_launches
from tessera_lang.analysis.races.hand_over_races import Runs, element_of_root, report
from tessera_lang.analysis.races.shared_check import Open, check_shared, never_written
from tessera_lang.analysis.races.unproved_bounds import unproved_bounds
from tessera_lang.analysis.ranges.integer_ranges import ranges
from tessera_lang.analysis.uniformity.lane_uniformity import uniformity
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import BUFFERS
from tessera_lang.target.launch_plan import LaunchPlan


def unproved(kernel: Operation, plan: LaunchPlan) -> list[Diagnostic]:
    """Of shared memory, of arrays, and of indices that are outside in every launch tried."""
    uniform, known = uniformity(kernel), ranges(kernel)
    runs = Runs(kernel, plan, uniform)
    shared = check_shared(kernel, plan, uniform, known, runs)
    arrays = open_arrays(kernel, plan, uniform, runs)
    sure = [d for d in arrays.values() if d.code != "T0412"]
    waiting = (Open("meet", p, d) for p, d in arrays.items() if d.code == "T0412")
    open_ = [*shared.open, *waiting]
    if open_:
        several = several_groups(kernel, plan) is not None
        found = list(_settled(kernel, plan, open_, run_launches(kernel, plan, uniform, several)))
    else:
        found = list[Diagnostic]()
    return [*found, *sure, *shared.notes, *unproved_bounds(kernel, known, plan, uniform)]


def _settled(
    kernel: Operation, plan: LaunchPlan, open_: Sequence[Open], checked: CheckedLaunches
) -> Iterator[Diagnostic]:
    """A fault for each array and buffer that launches show one in; what they leave open; and a note
    of those where lanes do not meet."""
    told: dict[object, bool] = {}
    fine: set[Value] = set()
    for o in open_:
        roots = _buffers(kernel) if o.where is None else (o.where,)
        if o.question == "meet" and all(map(checked.fine, roots)):
            if o.where is not None or all(map(checked.written, roots)):
                fine.update(roots)
                continue
        if o.question == "read" and all(map(checked.written, roots)):
            fine.update(roots)
            continue
        key = (o.question, o.where)
        if key not in told:
            fault = _fault(kernel, plan, o, checked)
            told[key] = fault is not None
            if fault is not None:
                yield fault
        if not told[key]:
            yield o.said
    if fine:
        yield checked.note(fine)


def _buffers(kernel: Operation) -> tuple[Value, ...]:
    return tuple(o.result for o in kernel.walk() if o.name in BUFFERS)


def _fault(
    kernel: Operation, plan: LaunchPlan, o: Open, checked: CheckedLaunches
) -> Diagnostic | None:
    where = o.where
    if where is None:
        return None
    if o.question == "read":
        read = checked.unwritten.get(where)
        if read is None or where in checked.open:
            return None
        launch, done = read
        element = element_of_root(done.root, done.place)
        return never_written(done.operation, done.who[1], element, launch.text)
    shown = checked.shown.get(where)
    if shown is None:
        return None
    if where not in _buffers(kernel):
        return array_fault(kernel, plan, shown)
    return report(shown, "T0410", "error") if len(shown.begins) <= 1 else None
