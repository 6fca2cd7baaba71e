"""Runs passes: each is timed, its result verified and, where asked for, printed.

Owns what a pass may not do: give another level than it says, decide and change an operation,
leave a program that is not well formed. Any of these is a fault of the compiler, which names the
pass and shows the program that it was given. Must not know any pass.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from tessera_lang.cancellation import pause
from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.ir.core import Program, VerifyError
from tessera_lang.ir.pass_type import Pass, Step, changed_operation
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import Sound, verify
from tessera_lang.record import dataclass

T = TypeVar("T")
ALL = "all"
"""In place of a name: the program after every pass."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one pass took, with its verification."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Printed:
    """A program as a pass left it."""

    name: str
    text: str


_TIMINGS = 20_000
_OPERATIONS = 4_000
"""What is kept of runs before, so that a session that lasts does not grow: the last timings, and
operations that were verified until there are so many."""


class PassRunner:
    """Runs passes, and keeps what it saw of them in order.

    ``verify_each``: programs are verified also where a pass changed nothing, and their printed
    form is read again and must be the same program. ``print_after``: names of passes, or
    ``all``, whose programs go to ``printed``."""

    def __init__(self, verify_each: bool = False, print_after: Sequence[str] = ()) -> None:
        self.verify_each = verify_each
        self.print_after = frozenset(print_after)
        self._sound: Sound = {}
        self.timings: deque[Timing] = deque(maxlen=_TIMINGS)
        self.printed: list[Printed] = []

    def run(self, program: Program, passes: Sequence[Pass]) -> Program:
        """The program after all passes, verified before the first and after each.

        Raises InternalFault with the pass's name and the program it was given.
        """
        check_joins(passes)
        if len(self._sound) > _OPERATIONS:
            self._sound.clear()
        self._verified(program, program, "lowering", None)
        for one in passes:
            pause()
            begin = time.perf_counter()
            try:
                after = one.run(program)
            except Exception as error:
                raise failed(one.name, f"{type(error).__name__}: {error}", program) from error
            if one.kind == "decide" and (found := changed_operation(program, after)) is not None:
                reason = f"it decides, and changes an operation: {found.name}"
                raise failed(one.name, reason, program)
            program = self._verified(after, program, one.name, one)
            self._done(one.name, begin, (program,))
        return program

    def step(
        self, one: Step, make: Callable[[], T], before: Program | None,
        raises: type[Exception] | tuple[type[Exception], ...] = TesseraError,
        refused: Callable[[T], bool] | None = None,
    ) -> T:  # fmt: skip
        """What ``make`` gives, of which every program is verified, unless it was ``refused``, and
        is not whole. ``raises``: what it may raise; anything else is a fault of the step, shown
        with the program ``before`` it."""
        pause()
        begin = time.perf_counter()
        try:
            made = make()
        except raises:
            raise
        except Exception as error:
            if before is None:
                raise
            raise failed(one.name, f"{type(error).__name__}: {error}", before) from error
        programs = () if refused is not None and refused(made) else tuple(_programs(made))
        for program in programs:
            self._verified(program, before or program, one.name, None)
            if program.level != one.gives:
                raise failed(one.name, f"it gave {program.level} IR, not {one.gives} IR", program)
        self._done(one.name, begin, programs)
        return made

    def _done(self, name: str, begin: float, programs: Sequence[Program]) -> None:
        self.timings.append(Timing(name, time.perf_counter() - begin))
        if name in self.print_after or ALL in self.print_after:
            for program in programs:
                self.printed.append(Printed(name, print_program(program)))

    def _verified(self, after: Program, before: Program, name: str, one: Pass | None) -> Program:
        """The program after a step; one that came through as it was has been verified."""
        try:
            if one is None or after is not before or self.verify_each:
                verify(after, None if self.verify_each else self._sound)
        except VerifyError as error:
            raise failed(name, str(error), before) from error
        if one is not None and after.level != one.gives:
            reason = f"it gave {after.level} IR and says {one.gives} IR"
            raise failed(name, reason, before)
        if self.verify_each:
            _read_again(after, name)
        return after


def run_passes(program: Program, passes: Sequence[Pass]) -> Program:
    """The program after all passes, of which nothing is kept. Raises InternalFault."""
    return PassRunner().run(program, passes)


def check_joins(passes: Sequence[Pass]) -> None:
    """Whether each pass takes the level that the one before gives. Raises ValueError."""
    for before, after in itertools.pairwise(passes):
        if before.gives != after.takes:
            joint = f"pass {before.name} gives {before.gives} IR"
            raise ValueError(f"{joint} and {after.name} takes {after.takes} IR")


def failed(name: str, reason: str, program: Program) -> InternalFault:
    """The fault of a pass, with the program that it was given."""
    try:
        text = print_program(program)
    except Exception as error:  # noqa: BLE001  # a program so broken that it cannot be shown
        text = f"(the program cannot be printed: {error})"
    return InternalFault("T0901", f"the pass `{name}` failed: {reason}", stage=name, program=text)


def _read_again(program: Program, name: str) -> None:
    from tessera_lang.ir.parser import parse_program

    text = print_program(program)
    try:
        again = print_program(parse_program(text))
    except Exception as error:
        reason = f"its printed program cannot be read: {type(error).__name__}: {error}"
        raise failed(name, reason, program) from error
    if again != text:
        raise failed(name, "its printed program is another one when it is read", program)


def _programs(made: object) -> list[Program]:
    """The programs in what a step gave: itself, or members of tuples."""
    if isinstance(made, Program):
        return [made]
    if not isinstance(made, tuple):
        return []
    return [p for member in cast("tuple[object, ...]", made) for p in _programs(member)]
