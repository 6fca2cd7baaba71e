"""What can be said of kernels beyond errors, for those who ask: what is not proved, what is
slow, which guards stay.

Owns which analysis answers which question. Must not know how the answers are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera_lang.analysis.kept_findings import Findings, Kept
from tessera_lang.cancellation import pause
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.ignored import unused
from tessera_lang.record import dataclass

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session
    from tessera_lang.ir.core import Program
    from tessera_lang.syntax import ast
    from tessera_lang.target.launch_plan import LaunchPlan
    from tessera_lang.target.machine import Machine


@dataclass(frozen=True, slots=True)
class Questions:
    """``strict``: what is not proved of shared memory and of arrays. ``lints``: slow accesses.
    ``occupancy``: groups at once. ``guards``: accesses that keep a guard."""

    strict: bool = False
    lints: bool = False
    occupancy: bool = False
    guards: bool = False


def advice(session: Session, path: str, questions: Questions) -> tuple[Diagnostic, ...]:
    """Answers about the kernels of a file, after it has been checked, each once; about guards also
    of kernels in its imports that it calls. What is looked at are the programs code is made of."""
    if not any((questions.strict, questions.lints, questions.occupancy, questions.guards)):
        return ()
    found: dict[tuple[str, str, object], Diagnostic] = {}
    for file in session.closure(path):
        own = file == session.files.spelling(path)
        asked = questions if own else Questions(guards=questions.guards)
        programs = session.lowered(file, path)
        known = session.lints.get(file) or Kept({}, Findings())
        # The editor asks after every edit, of a file with any number of kernels.
        now = {p: known.of[p] for p, _ in programs if p in known.of}
        lints = session.lints[file] = Kept(now, known.alike)
        for program, plan in programs:
            pause()
            for diagnostic in _answers(program, plan, asked, lints):
                place = diagnostic.span
                key = None if place is None else (place.file, place.lo, place.hi)
                found.setdefault((diagnostic.code, diagnostic.message, key), diagnostic)
    kept = session.heeding((*found.values(), *_not_seen(session, path)))
    if not questions.lints or session.files.spelling(path) in session.with_errors:
        return kept
    asked = [n for n in ("strict", "lints", "occupancy", "guards") if getattr(questions, n)]
    return (*kept, *unused(session.source(path), session.ignored, asked))


def _not_seen(session: Session, path: str) -> list[Diagnostic]:
    """The lane kernels of a file that no signature was known for."""
    from tessera_lang.evaluate.modules import kernel_level

    return [
        Diagnostic(
            "P1005", f"`{function.name}` was not looked at: nothing says what its arguments are",
            function.name_span, severity="hint",
            helps=("give a `--signature`, or call it in this file",),
        )
        for function in session.kernels(path)
        if kernel_level(function) == "lane" and not session.has_instance(path, function)
    ]  # fmt: skip


def remarks_of(session: Session, path: str, machine: Machine) -> tuple[Diagnostic, ...]:
    """What the passes say of the tile kernels of a file that checks have seen, each once; and of
    ``const`` arrays, where lanes read them."""
    found: dict[tuple[str, str, object], Diagnostic] = {}
    for made in session.for_machines(path, machine):
        for diagnostic in made.remarks:
            place = diagnostic.span
            key = None if place is None else (place.file, place.lo, place.hi)
            found.setdefault((diagnostic.code, diagnostic.message, key), diagnostic)
    constants = (d for f in session.kernels(path) for d in _constants(session, path, f))
    tables = (d for program, _ in session.lowered(path, path) for d in _tables(program))
    return session.heeding((*found.values(), *constants, *dict.fromkeys(tables)))


def _tables(program: Program) -> list[Diagnostic]:
    """Numbers of the program of which lanes choose one."""
    return [
        Diagnostic(
            "P1006", f"`{o.attributes['name']}` is part of the code, in constant memory on a GPU",
            o.span, severity="note",
            notes=(f"{len(str(o.attributes['values']).split())} numbers; what is over 64 KiB of a"
                   " kernel is in global memory",),
        )
        for o in program.operations[0].walk() if o.name == "tile.table"
    ]  # fmt: skip


def _constants(session: Session, path: str, function: ast.FunctionDef) -> list[Diagnostic]:
    """Where each ``const`` array of a kernel is read from."""
    from tessera_lang.evaluate.modules import kernel_level
    from tessera_lang.sema.signature import constant_bytes, dtype_lookup
    from tessera_lang.target.array_facts import constants_by_value

    lookup = dtype_lookup(session.scope(path), {})
    shapes = [p.annotation.shape if p.annotation else () for p in function.parameters]
    sizes = [constant_bytes(p, lookup) for p in function.parameters]
    lanes = kernel_level(function) == "lane"
    chosen = constants_by_value([len(s or ()) for s in shapes], sizes)
    found: list[Diagnostic] = []
    for p, size, fits in zip(function.parameters, sizes, chosen, strict=True):
        if p.annotation is None or p.annotation.qualifier != "const":
            continue
        if fits and lanes:
            message = (
                f"`{p.name}` goes into constant memory where a launch on a GPU gets a host array"
            )
            notes = (f"{size} bytes travel with the launch; on the device, or on a CPU, it is read"
                     " where it is, through the read-only path",)  # fmt: skip
        else:
            message = f"`{p.name}` is read where it is, through the read-only path of a GPU"
            why = "a tile kernel stages what it reads" if not lanes else (
                f"its {size} bytes are more than the parameters of a launch hold" if size
                else "its sizes are not numbers, as in `const f32[64]`"
            )  # fmt: skip
            notes = (f"not in constant memory: {why}",)
        found.append(Diagnostic("P1006", message, p.name_span, severity="note", notes=notes))
    return found


def _answers(
    program: Program, plan: LaunchPlan, questions: Questions, lints: Kept
) -> list[Diagnostic]:
    from tessera_lang.analysis.guards.kept_guards import explain_guards
    from tessera_lang.analysis.races.unproved import unproved
    from tessera_lang.analysis.resources.memory_lints import check_performance
    from tessera_lang.analysis.resources.occupancy import report_occupancy
    from tessera_lang.driver.pass_runner import run_passes
    from tessera_lang.driver.pipeline import TILE
    from tessera_lang.ir.printer import print_program

    (kernel,) = program.operations
    found: list[Diagnostic] = []
    if questions.strict:
        found.extend(unproved(kernel, plan))
    if questions.lints:
        if program not in lints.of:
            text, places = print_program(program), tuple([o.span for o in program.walk()])
            slow = lints.alike.get(text, places)
            if slow is None:
                slow = check_performance(kernel)
                lints.alike.put(text, places, slow)
            lints.of[program] = slow
        found.extend(lints.of[program])
    if questions.occupancy or questions.guards:
        optimized = run_passes(program, TILE).operations[0]
        if questions.occupancy:
            found.append(report_occupancy(optimized))
        if questions.guards:
            found.extend(explain_guards(optimized))
    return found
