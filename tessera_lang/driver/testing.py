"""Runs the tests of files: each in a world of its own.

Owns finding them and what became of each. Must not know how results are shown
(``commands/test.py``, ``junit.py``) or how a world works.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.record import dataclass

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session
    from tessera_lang.syntax import ast


@dataclass(frozen=True, slots=True)
class Test:
    """One test of one file. ``name`` is ``FILE::FUNCTION``."""

    path: str
    function: ast.FunctionDef

    @property
    def name(self) -> str:
        return f"{self.path}::{self.function.name}"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a test on a target; ``diagnostics`` say why it failed. ``output`` is
    what the test printed."""

    test: Test
    target: str
    seconds: float
    diagnostics: tuple[Diagnostic, ...] = ()
    output: str = ""

    @property
    def passed(self) -> bool:
        return not self.diagnostics


@dataclass(slots=True)
class Found:
    """The tests of files that can run, and what is wrong with files that cannot."""

    tests: list[Test]
    diagnostics: dict[str, tuple[Diagnostic, ...]]

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for ds in self.diagnostics.values() for d in ds)


def find_tests(session: Session, paths: Iterable[str], words: str = "") -> Found:
    """The tests of files whose names hold ``words``. A file that has tests, or that cannot be
    read, is checked first; one with errors has no test that can run."""
    found = Found([], {})
    for path in paths:
        name = session.files.spelling(path)
        try:
            parsed = session.parsed(name)
        except TesseraError as error:
            found.diagnostics[name] = error.diagnostics
            continue
        tests = [Test(name, function) for function in session.tests(name)]
        chosen = [t for t in tests if words in t.name]
        if not chosen and not any(d.severity == "error" for d in parsed.diagnostics):
            continue
        diagnostics = session.check(name)
        if diagnostics:
            found.diagnostics[name] = diagnostics
        if not any(d.severity == "error" for d in diagnostics):
            found.tests.extend(chosen)
    return found


def run_tests(
    session: Session, tests: Iterable[Test], targets: Iterable[str], arch_as: str = "",
    checked: bool = False,
) -> Iterator[Result]:  # fmt: skip
    """Each test on each target; a fault of the program becomes a result. ``arch_as``: the
    architecture whose code of tile kernels the CPU runs; ``checked``: it looks at every access of
    lanes."""
    targets = tuple(targets)
    for test in tests:
        for target in targets:
            yield _run(session, test, target, arch_as, checked)


def _run(session: Session, test: Test, target: str, arch_as: str, checked: bool) -> Result:
    from tessera_lang.evaluate.fault import HostFault
    from tessera_lang.target.host_world import WorldFault
    from tessera_lang.target.runtime import runtime

    output: list[str] = []
    diagnostics: tuple[Diagnostic, ...] = ()
    start = time.perf_counter()
    try:
        world = runtime().host_world(session, target, output.append, arch_as, checked)
        session.run_test(test.path, test.function, world)
        world.finish()
    except (HostFault, TesseraError) as error:
        diagnostics = error.diagnostics
    except WorldFault as error:
        diagnostics = (
            Diagnostic(error.code, error.message, test.function.name_span,
                       helps=error.helps, notes=error.notes),
        )  # fmt: skip
    seconds = time.perf_counter() - start
    return Result(test, target, seconds, diagnostics, "".join(output))
