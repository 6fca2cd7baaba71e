"""``tesserac test``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import (
    as_option,
    checked_option,
    color_option,
    examples,
    format_option,
    path_option,
)
from tessera_lang.driver.commands.inputs import session_for, source_path
from tessera_lang.driver.commands.kernel_selection import judged_for
from tessera_lang.driver.commands.output import show
from tessera_lang.driver.commands.run import Where
from tessera_lang.driver.exit_codes import DIAGNOSTICS, FAILED_RUN, OUR_FAULT, USAGE

if TYPE_CHECKING:
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.driver.session import Session
    from tessera_lang.driver.testing import Found, Result


@click.command(
    name="test",
    epilog=examples(
        "tesserac test kernels/",
        "tesserac test kernels.tessera -k sum --target all --junit results.xml",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="FILES|DIRS...")
@click.option("-k", "words", default="", metavar="TEXT",
              help="Only tests whose FILE::NAME holds this text.")  # fmt: skip
@click.option(
    "--target", default="auto", envvar="TESSERA_TARGET", metavar="[auto|cpu|cuda|all]",
    help="Where kernels run; all is every target that works here.",
)  # fmt: skip
@click.option("--junit", "junit_file", default="", metavar="FILE.xml",
              help="Write the results as JUnit XML too.")  # fmt: skip
@click.option("-x", "--exit-first", is_flag=True, help="End at the first test that fails.")
@as_option
@checked_option
@path_option
@format_option
@color_option
def command(
    names: tuple[str, ...], words: str, target: str, junit_file: str, exit_first: bool,
    arch_as: str, checked: bool, lane_order: str, lane_seed: int, search: tuple[str, ...],
    format_: str, color: str,
) -> int:  # fmt: skip
    """Run the `@test` functions of FILES and of the files in DIRS."""
    from tessera_lang.driver.discovery import source_files
    from tessera_lang.driver.testing import find_tests, run_tests

    session = session_for(search)
    where = Where(target, arch_as, checked, lane_order, lane_seed)
    targets = _targets(where)
    session.options = judged_for(targets[0], arch_as=arch_as)
    paths = [source_path(session, name) for name in source_files(names)]
    found = find_tests(session, paths, words)
    view = _View(session, found, format_, color, len(targets) > 1)
    if not found.tests and not found.has_errors:
        what = f" with `{words}` in its name" if words else ""
        sys.stderr.write(f"error: there is no test{what} in {', '.join(names)}\n")
        return USAGE
    start = time.perf_counter()
    for result in run_tests(session, found.tests, targets, arch_as, checked):
        view.add(result)
        if exit_first and not result.passed:
            break
    where.report()
    if junit_file:
        _write_junit(junit_file, view.results, found, session)
    return view.end(time.perf_counter() - start)


def _targets(where: Where) -> tuple[str, ...]:
    """The targets to run on. Raises TesseraError where one cannot be had."""
    from tessera_lang.target.backend import backend_named, backend_names

    if where.target == "all" and not (where.arch_as or where.checked):
        works = [n for n in sorted(backend_names()) if not backend_named(n).available()]
        for missing in sorted(set(backend_names()) - set(works)):
            why = backend_named(missing).available()
            sys.stderr.write(f"target: not {missing} ({why})\n")
        return tuple(works)
    return (where.decided(),)


def _write_junit(file: str, results: list[Result], found: Found, session: Session) -> None:
    from tessera_lang.driver.junit import junit

    text = junit(results, found.diagnostics, session.files.known())
    Path(file).write_text(text, encoding="utf-8")


class _View:
    """Shows results as they come, and ends with the exit code that they mean.

    For people each test has a line on standard output, and what is wrong goes to the error
    stream; the other formats say on standard output what programs read.
    """

    def __init__(
        self, session: Session, found: Found, format_: str, color: str, several: bool
    ) -> None:
        self.session = session
        self.found = found
        self.format = format_
        self.color = color
        self.several = several
        self.results: list[Result] = []
        self.code = 0
        if format_ != "sarif":  # one document, at the end
            self.code = self._show(self._of_files())

    def _of_files(self) -> tuple[Diagnostic, ...]:
        return tuple(d for ds in self.found.diagnostics.values() for d in ds)

    def _show(self, diagnostics: tuple[Diagnostic, ...]) -> int:
        return show(self.session, diagnostics, self.format, self.color) if diagnostics else 0

    def add(self, result: Result) -> None:
        self.results.append(result)
        match self.format:
            case "human":
                where = f" [{result.target}]" if self.several else ""
                word = "ok  " if result.passed else "FAIL"
                time_text = f"{result.seconds * 1e3:.0f} ms"
                sys.stdout.write(f"{word} {result.test.name}{where} ({time_text})\n")
                if not result.passed and result.output:
                    sys.stdout.write(f"--- printed by {result.test.function.name}\n")
                    sys.stdout.write(result.output.rstrip("\n") + "\n---\n")
                self._fail(result)
            case "json":
                sys.stdout.write(json.dumps(self._record(result)) + "\n")
            case "sarif":
                pass
            case _:
                self._fail(result)

    def _fail(self, result: Result) -> None:
        if self._show(result.diagnostics) == OUR_FAULT:
            self.code = OUR_FAULT

    def _record(self, result: Result) -> dict[str, object]:
        from tessera_lang.diagnostics.record import SCHEMA, record

        files = self.session.files.known()
        return {
            "schema": SCHEMA,
            "test": result.test.name,
            "file": result.test.path,
            "name": result.test.function.name,
            "target": result.target,
            "outcome": "passed" if result.passed else "failed",
            "seconds": round(result.seconds, 6),
            "output": result.output,
            "diagnostics": [record(d, files) for d in result.diagnostics],
        }

    def end(self, seconds: float) -> int:
        failed = [r for r in self.results if not r.passed]
        passed = len(self.results) - len(failed)
        if self.format == "sarif":
            of_tests = tuple(d for r in failed for d in r.diagnostics)
            self._show_always((*self._of_files(), *of_tests))
        if self.format in ("human", "short"):
            stream = sys.stdout if self.format == "human" else sys.stderr
            stream.write(f"{passed} passed, {len(failed)} failed in {seconds:.2f} s\n")
        if self.code == OUR_FAULT:
            return OUR_FAULT
        if self.found.has_errors:
            return DIAGNOSTICS
        return FAILED_RUN if failed else 0

    def _show_always(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        if show(self.session, diagnostics, self.format, self.color) == OUR_FAULT:
            self.code = OUR_FAULT
