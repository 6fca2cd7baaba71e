"""Passes on Schedule IR: what is independent, and what the machine decides.

``schedule_passes`` are those that know no machine; ``decisions.decide`` those for one.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.opt.pass_type import Pass
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.parallel.loop_invariants import hoist
from tessera_lang.opt.schedule.parallel.map_grid import map_grid
from tessera_lang.opt.schedule.parallel.promote_accumulators import privatize

__all__ = ["FIRST", "schedule_passes"]

FIRST = (Pass("tidy", "schedule", "schedule", tidy),)
"""What stands in front of the cut into launches."""


def schedule_passes(remarks: list[Diagnostic]) -> tuple[Pass, ...]:
    """The passes for every machine; what they have to say goes to ``remarks``."""

    def grid(program: Program) -> Program:
        return map_grid(program, remarks)

    def sums(program: Program) -> Program:
        return privatize(program, remarks)

    return (
        Pass("tidy", "schedule", "schedule", tidy),
        Pass("map_grid", "schedule", "schedule", grid),
        Pass("privatize", "schedule", "schedule", sums),
        Pass("hoist", "schedule", "schedule", hoist),
        Pass("tidy", "schedule", "schedule", tidy),
    )
