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

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.fault import InternalFault
from tessera_lang.ir.core import Program, VerifyError
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.lower.ast_to_tile import finish_plan
from tessera_lang.opt.passes import Pass
from tessera_lang.opt.tile import DROP_GUARDS, TILE_PASSES
from tessera_lang.record import dataclass
from tessera_lang.target.machine import Machine
from tessera_lang.target.plan import LaunchPlan

TILE: tuple[Pass, ...] = TILE_PASSES
"""Tile IR to the Tile IR that both backends consume."""

UNGUARDED: tuple[Pass, ...] = (DROP_GUARDS,)
"""What ``--bounds=off`` adds behind ``TILE``."""

Lowered = tuple[Program, LaunchPlan]


@dataclass(frozen=True, slots=True)
class Timing:
    """What one pass took, with its verification."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ForMachine:
    """A tile kernel for one machine: the schedule as decided, and the Tile IR of it with its
    plan, None where the schedule was refused. ``remarks``: what the passes had to say."""

    schedule: Program
    lowered: Lowered | None
    remarks: tuple[Diagnostic, ...] = ()


def schedule(
    program: Program, timings: list[Timing] | None = None
) -> tuple[Program, tuple[Diagnostic, ...]]:
    """Schedule IR after the passes that know no machine, and what they had to say."""
    from tessera_lang.opt.schedule import schedule_passes

    remarks: list[Diagnostic] = []
    return run_passes(program, schedule_passes(remarks), timings), tuple(remarks)


def for_machine(
    program: Program, plan: LaunchPlan, machine: Machine, timings: list[Timing] | None = None
) -> ForMachine:
    """What ``schedule`` gave, with the decisions for a machine, and lowered."""
    from tessera_lang.opt.schedule.decisions import decide

    remarks: list[Diagnostic] = []
    decided = run_passes(program, decide(machine, remarks), timings)
    if _refused(remarks) and _asked_for(decided):
        return ForMachine(decided, None, tuple(remarks))
    made, finished = _to_tile_ir(decided, plan, machine, remarks, timings)
    if _refused(remarks):
        return ForMachine(decided, None, tuple(remarks))
    made = run_passes(made, TILE, timings)
    return ForMachine(decided, (made, finish_plan(made, finished)), tuple(remarks))


def _to_tile_ir(
    decided: Program, plan: LaunchPlan, machine: Machine, remarks: list[Diagnostic],
    timings: list[Timing] | None,
) -> Lowered:  # fmt: skip
    """Register tiles on a GPU where the program has a form with them, else loops of lanes."""
    from tessera_lang.lower.schedule_to_lanes import lower_to_lanes, notes_on_directives
    from tessera_lang.lower.schedule_to_tile import NotTiled, lower_to_tile

    if machine.target == "cuda" and not _refused(remarks):
        try:
            made = _lowered(
                "lower_to_tile", lambda: lower_to_tile(decided, plan, machine, remarks), decided,
                timings,
            )  # fmt: skip
            if not _refused(remarks) or _asked_for(decided):
                return made
        except NotTiled as reason:
            remarks.append(Diagnostic(
                "T0747", f"not lowered to register tiles: {reason.reason}",
                reason.span or decided.operations[0].span, severity="note",
            ))  # fmt: skip
    if _refused(remarks):
        _too_large(remarks)
    remarks.extend(notes_on_directives(decided.operations[0], machine))
    return _lowered(
        "lower_to_lanes", lambda: lower_to_lanes(decided, plan, machine), decided, timings
    )


def _too_large(remarks: list[Diagnostic]) -> None:
    """Turns a refusal into a warning: nobody asked for a schedule, the tiles are the program's
    own, and loops of lanes can do with less."""
    found = [d for d in remarks if d.severity == "error"]
    remarks[:] = [d for d in remarks if d.severity != "error"]
    remarks.append(Diagnostic(
        "T0747", f"not lowered to register tiles: {found[0].message}", found[0].span,
        notes=found[0].notes, helps=("use smaller tiles: the loops of lanes are slow",),
        severity="warning",
    ))  # fmt: skip


_SIZES = frozenset(
    ("tile", "pipeline_stages", "padding", "warps", "warp_specialize", "cluster", "persistent")
)


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
        program = _verified(after, program, step.name, step)
        if timings is not None:
            timings.append(Timing(step.name, time.perf_counter() - begin))
    return program


def _verified(after: Program, before: Program, name: str, step: Pass | None) -> Program:
    try:
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
