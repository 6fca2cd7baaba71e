"""The passes that decide a schedule for a machine, in order.

Owns the order. Each pass is a file and writes attributes with their origins; nothing is
expanded. Must not know a single decision.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.opt.passes import Pass
from tessera_lang.opt.schedule.canonical.exact_accumulators import promote
from tessera_lang.opt.schedule.canonical.late_broadcasts import expand_late
from tessera_lang.opt.schedule.canonical.pad_tiles import pad
from tessera_lang.opt.schedule.canonical.speculative_loads import load_before
from tessera_lang.opt.schedule.canonical.split_grid_loop import separate
from tessera_lang.opt.schedule.canonical.squeeze_axes import squeeze
from tessera_lang.opt.schedule.canonical.transpose_products import swap_operands
from tessera_lang.opt.schedule.canonical.unbatch import narrow
from tessera_lang.opt.schedule.decide.assign_units import assign_units
from tessera_lang.opt.schedule.decide.cache_hints import read_once
from tessera_lang.opt.schedule.decide.epilogue_tiles import subtile
from tessera_lang.opt.schedule.decide.grid_order import cluster, order_grid, persistent
from tessera_lang.opt.schedule.decide.l2_prefetch import read_ahead
from tessera_lang.opt.schedule.decide.legality import check_fit
from tessera_lang.opt.schedule.decide.persistent_rows import load_early
from tessera_lang.opt.schedule.decide.ring_depth import pipeline
from tessera_lang.opt.schedule.decide.row_kernels import limit_registers, split_rows
from tessera_lang.opt.schedule.decide.split_contraction import split_contraction
from tessera_lang.opt.schedule.decide.staging import stage
from tessera_lang.opt.schedule.decide.stream_k import deal_tiles
from tessera_lang.opt.schedule.decide.tile_sizes import choose_tiles
from tessera_lang.opt.schedule.decide.unused_directives import settle_staging
from tessera_lang.opt.schedule.decide.warp_roles import assign_roles
from tessera_lang.opt.schedule.loops.loop_peeling import peel
from tessera_lang.opt.schedule.loops.software_pipeline import overlap
from tessera_lang.opt.schedule.loops.unroll import unroll
from tessera_lang.opt.schedule.query.context import Context, Decide
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
