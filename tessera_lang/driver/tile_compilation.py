"""A tile kernel for a machine: the launches it becomes, each decided and lowered.

Owns when a schedule is decided again: for want of registers, of shared memory, or where the
lowering has no form for a decision; and the choice between two lowerings. ``pipeline.py`` has the
order of the passes. Must not know what a pass does. What only tile kernels take is loaded when
one is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tessera_grammar.directives import attributes

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver import pipeline
from tessera_lang.driver.pass_runner import PassRunner, failed
from tessera_lang.driver.warning_filter import LOOPS_OF_LANES
from tessera_lang.ir.core import Operation, Program
from tessera_lang.lower.ast_to_tile.kernel import finish_plan
from tessera_lang.record import dataclass, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine

if TYPE_CHECKING:
    from tessera_lang.opt.schedule.query.decision_context import Context, Numbers

Lowered = tuple[Program, LaunchPlan]


@dataclass(frozen=True, slots=True)
class ForMachine:
    """A tile kernel for one machine: the schedule as decided, and the Tile IR of it with its
    plan, None where the schedule was refused. ``remarks``: what the passes had to say. ``relief``:
    how often the schedule was decided again because lanes had too few registers. ``then``: the
    launches that follow, whose remarks are here too."""

    schedule: Program
    lowered: Lowered | None
    remarks: tuple[Diagnostic, ...] = ()
    relief: int = 0
    then: tuple[ForMachine, ...] = ()

    @property
    def launches(self) -> tuple[ForMachine, ...]:
        """All launches of a call, in order."""
        return self, *self.then


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A decided schedule and, where it has that form, register tiles of it. ``over``: registers of
    a lane that it probably needs beyond those there are, or more than any of these where its code
    is too long; more lanes help against both."""

    decided: Program
    remarks: list[Diagnostic]
    relief: int
    tiles: Lowered | None = None
    over: int = 0


MOST_RELIEF = 2
"""How often a schedule is decided again for want of registers, or as its code is too long."""
_FAR = 1 << 16


def schedule(
    program: Program, runner: PassRunner | None = None
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Schedule IR of one launch after the passes that know no machine, and what they had to say."""
    remarks: list[Diagnostic] = []
    runner = runner or PassRunner()
    passes = (*pipeline.parallel_loops(), *pipeline.for_any_machine(remarks))
    return runner.run(program, passes), tuple(remarks)


def launches(
    program: Program, plan: LaunchPlan, runner: PassRunner
) -> tuple[tuple[Lowered, ...], tuple[Diagnostic, ...]]:
    """A kernel as the launches that it becomes, each as ``schedule`` gives it, with its plan."""
    from tessera_lang.opt.schedule.parallel.emulated_f32_products import emulated_f32_products
    from tessera_lang.opt.schedule.parallel.launch_phases import cut_launches, split_reductions
    from tessera_lang.opt.schedule.parallel.operand_packing import lay_anew
    from tessera_lang.opt.schedule.parallel.reduction_fission import split_iterations

    remarks: list[Diagnostic] = []
    program = runner.run(program, pipeline.parallel_loops())
    whole = runner.step(
        pipeline.SPLIT_FACTORS, lambda: emulated_f32_products(program, plan, remarks), program
    )
    laid = runner.step(pipeline.LAY_ANEW, lambda: lay_anew(*whole, remarks), whole[0])
    shared = runner.step(
        pipeline.SPLIT_ITERATIONS, lambda: split_iterations(*laid, numbers_for), laid[0]
    )
    split = runner.step(pipeline.SPLIT_REDUCTIONS, lambda: split_reductions(*shared), shared[0])
    parts = runner.step(pipeline.CUT_LAUNCHES, lambda: cut_launches(*split, remarks), split[0])
    passes = pipeline.for_any_machine(remarks)
    if len(parts) > 1:
        passes = (*pipeline.parallel_loops(), *passes)
    else:
        parts = (whole,)  # parts of a reduction pay where they are a launch
    made = tuple((runner.run(p, passes), own) for p, own in parts)
    return made, tuple(remarks)


def for_machine(
    program: Program, plan: LaunchPlan, machine: Machine, runner: PassRunner | None = None,
    relief: int = 0,
) -> ForMachine:  # fmt: skip
    """What ``schedule`` gave, with the decisions for a machine, and lowered. Where it needs more
    registers than there are it is decided again, for more lanes or smaller tiles; ``relief``: how
    often it was."""
    from tessera_lang.opt.schedule.cost.slow_forms import in_one_group

    runner = runner or PassRunner()
    by_lanes = _by_lanes(program, plan, machine, runner)
    if by_lanes is not None:
        return by_lanes
    best = _attempt(program, plan, machine, runner, relief)
    while best.over > 0 and best.relief < MOST_RELIEF:
        eased = _attempt(program, plan, machine, runner, best.relief + 1)
        if eased.over >= best.over:
            break
        best = eased
    remarks = best.remarks
    if _refused(remarks) and _asked_for(best.decided):
        return ForMachine(best.decided, None, tuple(remarks), best.relief)
    tiles, decided = best.tiles, best.decided
    if tiles is None or _refused(remarks):
        decided, tiles = _as_loops(program, best, plan, machine, runner)
    if machine.target == "cuda":
        alone = in_one_group(decided.operations[0], machine, plan.kernel)
        remarks += [alone] if alone else []
    made, finished = tiles
    made = runner.run(made, pipeline.TILE)
    lowered = made, finish_plan(made, finished)
    return ForMachine(decided, lowered, tuple(remarks), best.relief)


def joined(launches: Sequence[ForMachine]) -> ForMachine:
    """The launches of a call as one: the first, with what there is to say of all, each once."""
    first, *then = launches
    if not then:
        return first
    said = dict.fromkeys(remark for launch in launches for remark in launch.remarks)
    lowered = first.lowered if all(launch.lowered for launch in launches) else None
    return replace(first, lowered=lowered, remarks=tuple(said), then=tuple(then))


def _attempt(
    program: Program, plan: LaunchPlan, machine: Machine, runner: PassRunner, relief: int
) -> _Attempt:
    """One decided schedule, lowered to register tiles on a GPU where it has a form with them. What
    the lowering has no form for is decided again without it."""
    from tessera_lang.lower.schedule_to_tile import NotHonoured
    from tessera_lang.opt.schedule.query.decision_context import Context, Refusal

    refusals: dict[str, Refusal] = {}
    while True:
        context = Context(machine, [], relief, dict(refusals), numbers_for(plan))
        try:
            return _decided(program, plan, context, runner)
        except NotHonoured as found:
            if found.decision in refusals:
                raise failed("decide", f"it decides {found.decision} again", program) from found
            refusals[found.decision] = Refusal(found.reason, found.span)


def _decided(program: Program, plan: LaunchPlan, context: Context, runner: PassRunner) -> _Attempt:
    """Raises NotHonoured."""
    from tessera_lang.lower.schedule_to_tile import NotHonoured, NotTiled, TooLong
    from tessera_lang.opt.schedule.cost.slow_forms import by_elements
    from tessera_lang.opt.schedule.decide.legality import crowding

    remarks, relief = context.remarks, context.relief
    decided = runner.run(program, pipeline.for_machine(context))
    if _refused(remarks):
        crowded = remarks[-1].code == "T0741" and not _asked_for(decided)
        return _Attempt(decided, remarks, relief, None, _FAR if crowded else 0)
    if context.machine.target != "cuda":
        return _Attempt(decided, remarks, relief)
    try:
        decided, made = fitted(decided, plan, context, runner)
    except NotHonoured:
        raise
    except NotTiled as reason:
        helps = (reason.instead,) if reason.instead else ()
        kernel = decided.operations[0]
        remarks.append(by_elements(kernel, context.machine, reason.reason, reason.span, helps))
        too_long = reason.instructions if isinstance(reason, TooLong) else 0
        return _Attempt(decided, remarks, relief, over=_FAR + too_long if too_long else 0)
    if made is None:
        return _Attempt(decided, remarks, relief)
    over, refusal = crowding(made[0].operations[0], decided.operations[0], context.machine)
    if refusal is not None and _asked_for(decided):
        remarks.append(refusal)
        return _Attempt(decided, remarks, relief, made)
    return _Attempt(decided, remarks, relief, made, over)


def fitted(
    decided: Program, plan: LaunchPlan, context: Context, runner: PassRunner | None = None
) -> tuple[Program, Lowered | None]:
    """A schedule as register tiles, or the one like it whose buffers fit: less is taken of shared
    memory as far as that is open. None where nothing fits, and ``context`` has the refusal. Raises
    NotTiled."""
    from tessera_lang.lower.schedule_to_tile import NotHonoured, TooLarge
    from tessera_lang.opt.schedule.decide.pipeline_stages import with_less_shared

    least: TooLarge | None = None
    runner = runner or PassRunner()
    while True:
        try:
            return decided, _tiled(decided, plan, context, runner)
        except TooLarge as found:
            least = found if least is None or found.bytes < least.bytes else least
            less = with_less_shared(decided, context)
        if less is None:
            if least.refusal is None:
                raise NotHonoured("roles", least.reason, least.span)
            context.remarks.append(least.refusal)
            return decided, None
        decided = less


def _tiled(decided: Program, plan: LaunchPlan, context: Context, runner: PassRunner) -> Lowered:
    from tessera_lang.lower.schedule_to_tile import NotTiled, checked_memory, lower_to_tile
    from tessera_lang.lower.schedule_to_tile.common.repacked_views import repacked
    from tessera_lang.lower.schedule_to_tile.split.split_k import in_parts

    machine, notes = context.machine, list[Diagnostic]()
    program, own = runner.step(
        pipeline.REPACK_VIEWS, lambda: repacked(decided, plan), decided, NotTiled
    )
    program, own = runner.step(pipeline.SPLIT_K, lambda: in_parts(program, own), program, NotTiled)
    made, finished, table = runner.step(
        pipeline.SCHEDULE_TO_TILE, lambda: lower_to_tile(program, own, machine, notes), program,
        NotTiled,
    )  # fmt: skip
    made = runner.run(made, pipeline.share_memory())
    finished = checked_memory(made, finished, machine, table)
    context.remarks.extend(notes)
    return made, finished


def numbers_for(plan: LaunchPlan) -> Callable[[Operation], Numbers]:
    """What the launch knows of the scalars of a kernel, for the passes that decide."""
    from tessera_lang.lower.schedule_to_lanes.def_use import Source
    from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers

    return lambda kernel: Numbers(Source(kernel), plan)


def _by_lanes(
    program: Program, plan: LaunchPlan, machine: Machine, runner: PassRunner
) -> ForMachine | None:
    """A kernel whose iterations do so little that a lane does each; None for others."""
    if machine.target != "cuda":
        return None
    from tessera_lang.lower.schedule_to_lanes import lower_to_lanes
    from tessera_lang.opt.schedule.decide.lane_per_iteration import is_by_lanes
    from tessera_lang.opt.schedule.query.decision_context import Context

    context = Context(machine, [], numbers=numbers_for(plan))
    decided = runner.run(program, pipeline.lane_per_iteration(context))
    if not is_by_lanes(decided.operations[0]):
        return None
    decided = runner.run(decided, pipeline.for_lane_per_iteration(context))
    made, finished = runner.step(
        pipeline.SCHEDULE_TO_LANES, lambda: lower_to_lanes(decided, plan, machine), decided
    )
    made = runner.run(made, pipeline.TILE)
    return ForMachine(decided, (made, finish_plan(made, finished)), tuple(context.remarks))


def _as_loops(
    program: Program, found: _Attempt, plan: LaunchPlan, machine: Machine,
    runner: PassRunner,
) -> tuple[Program, Lowered]:  # fmt: skip
    """The schedule as loops over elements, decided for them, and those."""
    from tessera_lang.lower.schedule_to_lanes import lower_to_lanes, notes_on_directives

    decided, remarks = found.decided, found.remarks
    if _refused(remarks):
        _too_large(remarks)
    if machine.target == "cuda":
        decided = runner.run(program, pipeline.for_loops(machine, found.relief))
    remarks.extend(notes_on_directives(decided.operations[0], machine))
    if machine.target == "cuda":
        decided = runner.run(decided, (pipeline.settle_loops(),))
    lowered = runner.step(
        pipeline.SCHEDULE_TO_LANES, lambda: lower_to_lanes(decided, plan, machine), decided
    )
    return decided, lowered


def _too_large(remarks: list[Diagnostic]) -> None:
    """Makes a warning of a refusal: nobody asked for a schedule, the tiles are the program's own,
    and loops over elements can do with less."""
    found = [d for d in remarks if d.severity == "error"]
    remarks[:] = [d for d in remarks if d.severity != "error"]
    remarks.append(Diagnostic(
        LOOPS_OF_LANES, f"not lowered to register tiles: {found[0].message}", found[0].span,
        notes=found[0].notes, helps=("use smaller tiles: the loops of lanes are slow",),
        severity="warning",
    ))  # fmt: skip


_SIZES = frozenset(name for name, p in attributes() if p.resources)


def _asked_for(decided: Program) -> bool:
    """Whether a directive of the user takes part in how much a schedule needs."""
    origins = decided.operations[0].strings("origins")
    said = {str(o).partition("=")[0] for o in origins if str(o).endswith("=user")}
    return bool(said & _SIZES)


def _refused(remarks: Sequence[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in remarks)
