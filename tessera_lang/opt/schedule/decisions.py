"""The passes that decide a schedule for a machine, in order.

Owns the order. Each pass is a file and writes attributes with their origins; nothing is
expanded. Must not know a single decision.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.opt.passes import Pass
from tessera_lang.opt.schedule.ahead import read_ahead
from tessera_lang.opt.schedule.choose_tiles import choose_tiles
from tessera_lang.opt.schedule.context import Context, Decide
from tessera_lang.opt.schedule.early import load_early
from tessera_lang.opt.schedule.expand_late import expand_late
from tessera_lang.opt.schedule.grid import cluster, order_grid, persistent
from tessera_lang.opt.schedule.in_vain import settle_staging
from tessera_lang.opt.schedule.legality import check_fit
from tessera_lang.opt.schedule.load_before import load_before
from tessera_lang.opt.schedule.narrow import narrow
from tessera_lang.opt.schedule.overlap import overlap
from tessera_lang.opt.schedule.pad import pad
from tessera_lang.opt.schedule.peel import peel
from tessera_lang.opt.schedule.pipeline import pipeline
from tessera_lang.opt.schedule.promote import promote
from tessera_lang.opt.schedule.read_once import read_once
from tessera_lang.opt.schedule.roles import assign_roles
from tessera_lang.opt.schedule.rows import limit_registers, split_rows
from tessera_lang.opt.schedule.separate import separate
from tessera_lang.opt.schedule.split import split_contraction
from tessera_lang.opt.schedule.squeeze import squeeze
from tessera_lang.opt.schedule.stage import stage
from tessera_lang.opt.schedule.stream import deal_tiles
from tessera_lang.opt.schedule.subtile import subtile
from tessera_lang.opt.schedule.swap import swap_operands
from tessera_lang.opt.schedule.units import assign_units
from tessera_lang.opt.schedule.unroll import unroll
from tessera_lang.target.machine import Machine


def normalise(program: Program, context: Context) -> Program:
    """Stacks as one matrix after the other, groups apart from loops, work on rows before they are
    stretched; on a CPU none of it matters."""
    if context.machine.target == "cpu":
        return program
    return expand_late(separate(squeeze(narrow(program))))


_DECISIONS: tuple[Decide, ...] = (
    normalise, swap_operands, choose_tiles, pad, split_rows, assign_units, promote, load_before,
    stage, assign_roles, deal_tiles, cluster, subtile, split_contraction, pipeline, order_grid,
    persistent, load_early, limit_registers, read_ahead, read_once, unroll, settle_staging,
    check_fit, peel, overlap,
)  # fmt: skip


def decide(
    machine: Machine, remarks: list[Diagnostic] | None = None, relief: int = 0
) -> tuple[Pass, ...]:
    """The passes for a machine. What they have to say goes to ``remarks``: notes, and an error
    where the schedule does not fit, after which the program is not to be lowered. ``relief``:
    how often this was done before, and needed too many registers."""
    context = Context(machine, remarks if remarks is not None else [], relief)
    return tuple(_pass(one, context) for one in _DECISIONS)


def _pass(one: Decide, context: Context) -> Pass:
    def run(program: Program) -> Program:
        return program if context.refused else one(program, context)

    return Pass(one.__name__, "schedule", "schedule", run)
