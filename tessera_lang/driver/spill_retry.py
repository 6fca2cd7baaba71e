"""Code that spills registers: other schedules of the kernel are tried, what is left is reported.

Owns the second look at a schedule, with what the backend found. Must not know a target.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.analysis.resources.register_pressure import pressure, table
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.kernel_instances import Scheduled
from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.tile_compilation import MOST_RELIEF, ForMachine, for_machine
from tessera_lang.ir.core import Program
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine

_FEW = 512
"""Bytes of registers in memory, of a lane."""
Compile = Callable[[Program, LaunchPlan], Artifact]


def without_spills(
    scheduled: Scheduled, machine: Machine, artifact: Artifact, compiled: Compile,
    runner: PassRunner,
) -> Artifact:  # fmt: skip
    """The code of the schedule that spills least, with a warning where all of them do. That
    schedule is the kernel's for this machine from now on."""
    best = scheduled.machines[machine]
    while artifact.resources.spill_bytes > 0 and best.relief < MOST_RELIEF:
        other = for_machine(scheduled.program, scheduled.plan, machine, runner, best.relief + 1)
        if other.lowered is None or _shape(other) == _shape(best):
            break
        few = artifact.resources.spill_bytes <= _FEW
        if few and _asynchronous(other) < _asynchronous(best):
            break  # few registers in memory cost less than products that are waited for
        tried = compiled(*other.lowered)
        if tried.resources.spill_bytes >= artifact.resources.spill_bytes:
            break
        best, artifact = other, tried
    scheduled.machines[machine] = best
    if artifact.resources.spill_bytes <= 0:
        return artifact
    warning = _warning(best, artifact.resources.spill_bytes)
    return replace(artifact, diagnostics=(*artifact.diagnostics, warning))


def _asynchronous(made: ForMachine) -> int:
    """How many products run by themselves."""
    dots = (o for o in made.schedule.walk() if o.name == "tessera.schedule.dot")
    return sum(o.attributes.get("unit") == "wgmma" for o in dots)


def _shape(made: ForMachine) -> tuple[object, ...]:
    """The sizes of tiles, the lanes of a group, whether lanes bring tiles in pieces, and how many
    products there are: two of one where turns overlap."""
    assert made.lowered is not None
    decided = made.schedule.operations[0].attributes
    group = made.lowered[0].operations[0].attributes["group"]
    return decided.get("tile"), group, decided.get("pieces"), _asynchronous(made)


def _warning(made: ForMachine, size: int) -> Diagnostic:
    assert made.lowered is not None
    worst = max(pressure(made.lowered[0].operations[0]), key=lambda p: p.total)
    place = worst.place.span if worst.place is not None else None
    return Diagnostic(
        "T0881", f"{size} bytes of registers are spilled: more is alive here than lanes can hold",
        place or made.schedule.operations[0].span, severity="warning", notes=table(worst),
        helps=("use smaller tiles, or more lanes: `schedule.warps(...)`",),
    )  # fmt: skip
