"""The passes that make a schedule for a machine, in order.

Owns the order. A pass either decides, which changes attributes and nothing else (they say their
origins, and the runner sees to it), or rewrites. The last one settles what the lowering builds.
Must not know a single decision.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.opt.pass_type import Pass
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
from tessera_lang.opt.schedule.decide.one_flow import settle_loops, settle_one_flow
from tessera_lang.opt.schedule.decide.persistent_rows import load_early
from tessera_lang.opt.schedule.decide.ring_depth import pipeline
from tessera_lang.opt.schedule.decide.row_kernels import limit_registers, split_rows
from tessera_lang.opt.schedule.decide.split_contraction import split_contraction
from tessera_lang.opt.schedule.decide.staging import stage
from tessera_lang.opt.schedule.decide.staging_directives import settle_staging
from tessera_lang.opt.schedule.decide.stream_k import deal_tiles
from tessera_lang.opt.schedule.decide.tile_sizes import choose_tiles, give_sizes
from tessera_lang.opt.schedule.decide.warp_roles import assign_roles
from tessera_lang.opt.schedule.loops.loop_peeling import peel
from tessera_lang.opt.schedule.loops.software_pipeline import overlap
from tessera_lang.opt.schedule.loops.unroll import unroll
from tessera_lang.opt.schedule.query.context import (
    Context,
    MachinePass,
    rewrites,
)
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine


@rewrites
def normalise(program: Program, context: Context) -> Program:
    """Stacks as one matrix after the other, groups apart from loops, work on rows before they are
    stretched; on a CPU none of it matters."""
    if context.machine.target == "cpu":
        return program
    return expand_late(separate(squeeze(narrow(program))))


@rewrites
def squeeze_again(program: Program, context: Context) -> Program:
    """Axes of one element that the passes between have left are taken away too."""
    return program if context.machine.target == "cpu" else squeeze(program)


_DECISIONS: tuple[MachinePass, ...] = (
    normalise, swap_operands, choose_tiles, give_sizes, pad, split_rows, assign_units, promote,
    load_before, stage, assign_roles, deal_tiles, cluster, subtile, split_contraction, pipeline,
    order_grid, persistent, load_early, limit_registers, read_ahead, read_once, unroll,
    settle_staging, check_fit, peel, overlap, squeeze_again, settle_one_flow,
)  # fmt: skip


_FOR_TILES: tuple[MachinePass, ...] = (squeeze_again, settle_one_flow)


def decide(
    machine: Machine, remarks: list[Diagnostic] | None = None, relief: int = 0
) -> tuple[Pass, ...]:
    """The passes for a machine. What they have to say goes to ``remarks``: notes, and an error
    where the schedule does not fit, after which the program is not to be lowered. ``relief``:
    how often this was done before, and needed too many registers."""
    return decide_in(Context(machine, remarks if remarks is not None else [], relief))


def decide_in(context: Context) -> tuple[Pass, ...]:
    """The same, with what else is known."""
    return tuple(_pass(one, context) for one in _DECISIONS)


def last_decisions(context: Context) -> tuple[Pass, ...]:
    """The last of these passes alone, which a kernel needs that nothing else was decided of."""
    return tuple(_pass(one, context) for one in _FOR_TILES)


def for_loops(machine: Machine, relief: int = 0) -> tuple[Pass, ...]:
    """The passes for a kernel that becomes loops over elements, behind which ``SETTLE_LOOPS``
    stands: they have no rows that several groups share."""
    features = tuple(f for f in machine.features if f != "cluster")
    context = Context(replace(machine, features=features), [], relief)
    return tuple(_pass(one, context) for one in _DECISIONS if one not in _FOR_TILES)


SETTLE_LOOPS = Pass("settle_loops", "schedule", "schedule", settle_loops)


def _pass(one: MachinePass, context: Context) -> Pass:
    def run(program: Program) -> Program:
        return program if context.refused else one(program, context)

    return Pass(one.name, "schedule", "schedule", run, one.kind)
