"""The compiler on one page: which steps take a kernel to what a target gets.

Owns the pipelines as tuples of passes, the choice between two lowerings, and the runner. Must
not know what a pass does. What only tile kernels take is loaded when one is compiled.

lane kernel: text -> ``syntax.parse_module`` -> ``sema.check_function`` -> ``lower.lower_kernel``
-> Tile IR -> ``TILE`` -> a backend's ``compile``.
tile kernel: text -> the same -> ``lower.lower_tile_kernel`` -> Schedule IR -> ``schedule`` -> and
for each machine ``for_machine``: ``decide`` -> register tiles, or else loops of lanes -> Tile IR
-> ``TILE`` -> a backend's ``compile``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tessera_grammar.directives import attributes

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.ir.core import Operation, Program, VerifyError
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.lower.ast_to_tile.kernel import finish_plan
from tessera_lang.opt.pass_type import Pass, changed_operation
from tessera_lang.opt.tile import DROP_GUARDS, NARROW, SIMPLIFY, TILE_PASSES, VERSION_GUARDS
from tessera_lang.record import dataclass, replace
from tessera_lang.target.machine import Machine
from tessera_lang.target.plan import LaunchPlan

if TYPE_CHECKING:
    from tessera_lang.opt.schedule.query.context import Context, Numbers

TILE: tuple[Pass, ...] = TILE_PASSES
"""Tile IR to the Tile IR that both backends consume."""

UNGUARDED: tuple[Pass, ...] = (DROP_GUARDS,)
"""What ``--bounds=off`` adds behind ``TILE``."""

VERSIONED: tuple[Pass, ...] = (VERSION_GUARDS,)
"""What a lane kernel goes through for a GPU before that; for a CPU groups are tested as a whole."""

NARROWED: tuple[Pass, ...] = (NARROW, SIMPLIFY)
"""What a lane kernel goes through last for a GPU, whose registers have 32 bits."""

Lowered = tuple[Program, LaunchPlan]


@dataclass(frozen=True, slots=True)
class Timing:
    """What one pass took, with its verification."""

    name: str
    seconds: float


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
    a lane that it probably needs beyond those there are."""

    decided: Program
    remarks: list[Diagnostic]
    relief: int
    tiles: Lowered | None = None
    over: int = 0


MOST_RELIEF = 2
"""How often a schedule is decided again for want of registers."""
_FAR = 1 << 16


def schedule(
    program: Program, timings: list[Timing] | None = None
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Schedule IR after the passes that know no machine, and what they had to say."""
    from tessera_lang.opt.schedule import schedule_passes

    remarks: list[Diagnostic] = []
    return run_passes(program, schedule_passes(remarks), timings), tuple(remarks)


def launches(
    program: Program, plan: LaunchPlan, timings: list[Timing] | None = None
) -> tuple[tuple[Lowered, ...], tuple[Diagnostic, ...]]:
    """A kernel as the launches that it becomes, each as ``schedule`` gives it, with its plan."""
    from tessera_lang.opt.schedule import FIRST, schedule_passes
    from tessera_lang.opt.schedule.parallel.launch_phases import in_phases

    remarks: list[Diagnostic] = []
    program = run_passes(program, FIRST, timings)
    parts = in_phases(program, plan, remarks)
    made = tuple((run_passes(p, schedule_passes(remarks), timings), own) for p, own in parts)
    return made, tuple(remarks)


def for_machine(
    program: Program, plan: LaunchPlan, machine: Machine, timings: list[Timing] | None = None,
    relief: int = 0,
) -> ForMachine:  # fmt: skip
    """What ``schedule`` gave, with the decisions for a machine, and lowered. Where it needs more
    registers than there are it is decided again, for more lanes or smaller tiles; ``relief``: how
    often it was."""
    from tessera_lang.opt.schedule.cost.slow_forms import in_one_group

    best = _attempt(program, plan, machine, timings, relief)
    while best.over > 0 and best.relief < MOST_RELIEF:
        eased = _attempt(program, plan, machine, timings, best.relief + 1)
        if eased.over >= best.over:
            break
        best = eased
    remarks = best.remarks
    if _refused(remarks) and _asked_for(best.decided):
        return ForMachine(best.decided, None, tuple(remarks), best.relief)
    tiles, decided = best.tiles, best.decided
    if tiles is None or _refused(remarks):
        decided, tiles = _as_loops(program, best, plan, machine, timings)
    if machine.target == "cuda" and (alone := in_one_group(decided.operations[0], machine)):
        remarks.append(alone)
    made, finished = tiles
    made = run_passes(made, TILE, timings)
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
    program: Program, plan: LaunchPlan, machine: Machine, timings: list[Timing] | None, relief: int
) -> _Attempt:
    """One decided schedule, lowered to register tiles on a GPU where it has a form with them. What
    the lowering has no form for is decided again without it."""
    from tessera_lang.lower.schedule_to_tile import NotHonoured
    from tessera_lang.opt.schedule.query.context import Context, Refusal

    refusals: dict[str, Refusal] = {}
    while True:
        context = Context(machine, [], relief, dict(refusals), numbers_for(plan))
        try:
            return _decided(program, plan, context, timings)
        except NotHonoured as found:
            if found.decision in refusals:
                raise _failed("decide", f"it decides {found.decision} again", program) from found
            refusals[found.decision] = Refusal(found.reason, found.span)


def _decided(
    program: Program, plan: LaunchPlan, context: Context, timings: list[Timing] | None
) -> _Attempt:
    """Raises NotHonoured."""
    from tessera_lang.lower.schedule_to_tile import NotHonoured, NotTiled
    from tessera_lang.opt.schedule.cost.slow_forms import by_elements
    from tessera_lang.opt.schedule.decide.legality import crowding
    from tessera_lang.opt.schedule.schedule_pipeline import decide_in

    remarks, relief = context.remarks, context.relief
    decided = run_passes(program, decide_in(context), timings)
    if _refused(remarks):
        crowded = remarks[-1].code == "T0741" and not _asked_for(decided)
        return _Attempt(decided, remarks, relief, None, _FAR if crowded else 0)
    if context.machine.target != "cuda":
        return _Attempt(decided, remarks, relief)
    try:
        decided, made = fitted(decided, plan, context, timings)
    except NotHonoured:
        raise
    except NotTiled as reason:
        helps = (reason.instead,) if reason.instead else ()
        kernel = decided.operations[0]
        remarks.append(by_elements(kernel, context.machine, reason.reason, reason.span, helps))
        return _Attempt(decided, remarks, relief)
    if made is None:
        return _Attempt(decided, remarks, relief)
    over, refusal = crowding(made[0].operations[0], decided.operations[0], context.machine)
    if refusal is not None and _asked_for(decided):
        remarks.append(refusal)
        return _Attempt(decided, remarks, relief, made)
    return _Attempt(decided, remarks, relief, made, over)


def fitted(
    decided: Program, plan: LaunchPlan, context: Context, timings: list[Timing] | None = None
) -> tuple[Program, Lowered | None]:
    """A schedule as register tiles, or the one like it whose buffers fit: less is taken of shared
    memory as far as that is open. None where nothing fits, and ``context`` has the refusal. Raises
    NotTiled."""
    from tessera_lang.lower.schedule_to_tile import NotHonoured, TooLarge
    from tessera_lang.opt.schedule.decide.ring_depth import with_less_shared

    least: TooLarge | None = None
    while True:
        try:
            return decided, _tiled(decided, plan, context, timings)
        except TooLarge as found:
            least = found if least is None or found.bytes < least.bytes else least
            less = with_less_shared(decided, context)
        if less is None:
            if least.refusal is None:
                raise NotHonoured("roles", least.reason, least.span)
            context.remarks.append(least.refusal)
            return decided, None
        decided = less


def _tiled(
    decided: Program, plan: LaunchPlan, context: Context, timings: list[Timing] | None
) -> Lowered:
    from tessera_lang.lower.schedule_to_tile import lower_to_tile

    notes: list[Diagnostic] = []
    made = _lowered(
        "lower_to_tile", lambda: lower_to_tile(decided, plan, context.machine, notes), decided,
        timings,
    )  # fmt: skip
    context.remarks.extend(notes)
    return made


def numbers_for(plan: LaunchPlan) -> Callable[[Operation], Numbers]:
    """What the launch knows of the scalars of a kernel, for the passes that decide."""
    from tessera_lang.lower.schedule_to_lanes.def_use import Source
    from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers

    return lambda kernel: Numbers(Source(kernel), plan)


def _as_loops(
    program: Program, found: _Attempt, plan: LaunchPlan, machine: Machine,
    timings: list[Timing] | None,
) -> tuple[Program, Lowered]:  # fmt: skip
    """The schedule as loops over elements, decided for them, and those."""
    from tessera_lang.lower.schedule_to_lanes import lower_to_lanes, notes_on_directives
    from tessera_lang.opt.schedule.schedule_pipeline import SETTLE_LOOPS, for_loops

    decided, remarks = found.decided, found.remarks
    if _refused(remarks):
        _too_large(remarks)
    if machine.target == "cuda":
        decided = run_passes(program, for_loops(machine, found.relief), timings)
    remarks.extend(notes_on_directives(decided.operations[0], machine))
    if machine.target == "cuda":
        decided = run_passes(decided, (SETTLE_LOOPS,), timings)
    lowered = _lowered(
        "lower_to_lanes", lambda: lower_to_lanes(decided, plan, machine), decided, timings
    )
    return decided, lowered


def _too_large(remarks: list[Diagnostic]) -> None:
    """Iterations a refusal into a warning: nobody asked for a schedule, the tiles are the program's
    own, and loops of lanes can do with less."""
    found = [d for d in remarks if d.severity == "error"]
    remarks[:] = [d for d in remarks if d.severity != "error"]
    remarks.append(Diagnostic(
        "T0747", f"not lowered to register tiles: {found[0].message}", found[0].span,
        notes=found[0].notes, helps=("use smaller tiles: the loops of lanes are slow",),
        severity="warning",
    ))  # fmt: skip


_SIZES = frozenset(name for name, p in attributes() if p.resources)


def _asked_for(decided: Program) -> bool:
    """Whether a directive of the user takes part in how much a schedule needs."""
    origins = decided.operations[0].attributes.get("origins", ())
    assert isinstance(origins, tuple)
    said = {str(o).partition("=")[0] for o in origins if str(o).endswith("=user")}
    return bool(said & _SIZES)


def _refused(remarks: Sequence[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in remarks)


def _lowered(
    name: str, lower: Callable[[], Lowered], before: Program, timings: list[Timing] | None
) -> Lowered:
    """One lowering, its result verified."""
    from tessera_lang.lower.schedule_to_tile import NotTiled

    begin = time.perf_counter()
    try:
        program, plan = lower()
    except NotTiled:
        raise
    except Exception as error:
        raise _failed(name, f"{type(error).__name__}: {error}", before) from error
    _verified(program, before, name, None)
    if timings is not None:
        timings.append(Timing(name, time.perf_counter() - begin))
    return program, plan


def check_joins(passes: Sequence[Pass]) -> None:
    """Whether each pass takes the level that the one before gives. Raises ValueError."""
    for before, after in itertools.pairwise(passes):
        if before.gives != after.takes:
            joint = f"pass {before.name} gives {before.gives} IR"
            raise ValueError(f"{joint} and {after.name} takes {after.takes} IR")


def run_passes(
    program: Program, passes: Sequence[Pass], timings: list[Timing] | None = None
) -> Program:
    """The program after all passes, verified before the first and after each.

    Raises InternalFault with the pass's name and the program it was given.
    """
    check_joins(passes)
    _verified(program, program, "lowering", None)
    for step in passes:
        begin = time.perf_counter()
        try:
            after = step.run(program)
        except Exception as error:
            raise _failed(step.name, f"{type(error).__name__}: {error}", program) from error
        if step.kind == "decide" and (found := changed_operation(program, after)) is not None:
            raise _failed(step.name, f"it decides, and changes an operation: {found.name}", program)
        program = _verified(after, program, step.name, step)
        if timings is not None:
            timings.append(Timing(step.name, time.perf_counter() - begin))
    return program


def _verified(after: Program, before: Program, name: str, step: Pass | None) -> Program:
    """The program after a step; one that came through as it was has been verified."""
    try:
        if step is None or after is not before:
            verify(after)
    except VerifyError as error:
        raise _failed(name, str(error), before) from error
    if step is not None and after.level != step.gives:
        raise _failed(name, f"it gave {after.level} IR and says {step.gives} IR", before)
    return after


def _failed(name: str, reason: str, program: Program) -> InternalFault:
    try:
        text = print_program(program)
    except Exception as error:  # noqa: BLE001  # a program so broken that it cannot be shown
        text = f"(the program cannot be printed: {error})"
    return InternalFault("T0901", f"the pass `{name}` failed: {reason}", stage=name, program=text)
