"""The compiler on one page: which passes take a kernel from Tile IR to what a target gets.

Owns the pipelines as tuples of passes and their runner. Must not know what a pass does.

text -> ``syntax.parse_module`` -> ``sema.check_function`` -> ``lower.lower_kernel`` -> Tile IR
-> ``TILE`` below -> a backend's ``compile``.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from tessera_lang.driver.fault import InternalFault
from tessera_lang.ir.core import Program, VerifyError
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.opt.passes import Pass
from tessera_lang.opt.tile import DROP_GUARDS, TILE_PASSES
from tessera_lang.record import dataclass

TILE: tuple[Pass, ...] = TILE_PASSES
"""Tile IR to the Tile IR that both backends consume."""

UNGUARDED: tuple[Pass, ...] = (DROP_GUARDS,)
"""What ``--bounds=off`` adds behind ``TILE``."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one pass took, with its verification."""

    name: str
    seconds: float


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
