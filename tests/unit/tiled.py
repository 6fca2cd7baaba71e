"""A Schedule kernel as register tiles, as the driver makes them of one that was decided."""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.driver.pipeline import last_decisions
from tessera_lang.driver.tile_compilation import fitted, numbers_for
from tessera_lang.ir.core import Program
from tessera_lang.opt.schedule.canonical.grid_and_inner_axes import separate
from tessera_lang.opt.schedule.query.decision_context import Context
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine


def as_tiles(
    program: Program, plan: LaunchPlan, machine: Machine, remarks: list[Diagnostic]
) -> tuple[Program, LaunchPlan]:
    """``program`` may be decided for the machine, or not at all: then the last decisions, which
    every kernel needs, are those of one of which nobody has said anything. Raises NotTiled."""
    context = Context(machine, remarks, numbers=numbers_for(plan))
    decided = run_passes(separate(program), last_decisions(context))
    made, lowered = fitted(decided, plan, context)
    if lowered is None:
        # As the driver, whose caller looks at the remarks: an error is there, and no program.
        assert any(d.severity == "error" for d in remarks)
        return made, plan
    return lowered
