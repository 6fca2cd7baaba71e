"""Showing diagnostics and timings on the terminal.

Owns where they go (people read stderr, programs stdout) and when there are colours. Must
not know what a command does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO, cast

from tessera_lang.driver.exit_codes import DIAGNOSTICS, OUR_FAULT

if TYPE_CHECKING:
    from tessera_lang.diagnostics import Diagnostic, TesseraError
    from tessera_lang.diagnostics.render import Format
    from tessera_lang.driver.session import Session


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether text for ``stream`` has colours."""
    if choice != "auto":
        return choice == "always"
    env = os.environ
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "0") != "0" or env.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return stream.isatty() and env.get("TERM") != "dumb"


def show(
    session: Session, diagnostics: Iterable[Diagnostic], format_: str = "human",
    color: str = "auto",
) -> int:  # fmt: skip
    """Print diagnostics; the exit code that they mean. A fault of ours leaves a report."""
    from tessera_lang.diagnostics.render import in_order, render, summary

    items = in_order(diagnostics)
    session.shown.update((d.code, d.message) for d in items)
    files = session.files.known()
    sys.stdout.flush()
    if format_ == "human":
        text = render(items, files, "human", wants_color(color, sys.stderr))
        sys.stderr.write(f"{text}\n{summary(items)}\n" if items else "")
    else:
        sys.stdout.write(render(items, files, cast("Format", format_)))
    if any(d.code.startswith("T09") for d in items):
        from tessera_lang.driver.crash_report import write_report

        for fault in session.faults[:1]:
            sys.stderr.write(write_report(fault, sys.argv[1:]))
        return OUR_FAULT
    return DIAGNOSTICS if any(d.severity == "error" for d in items) else 0


def show_error(error: TesseraError) -> int:
    """Print the diagnostics of an error without a session; the exit code that they mean."""
    from tessera_lang.diagnostics.render import in_order, render

    text = str(error) if any(d.span for d in error.diagnostics) else ""
    text = text or render(in_order(error.diagnostics), {}, "human", wants_color("auto", sys.stderr))
    sys.stderr.write(text.rstrip() + "\n")
    ours = any(d.code.startswith("T09") for d in error.diagnostics)
    return OUR_FAULT if ours else DIAGNOSTICS


def show_passes(session: Session, times: bool) -> None:
    """The programs that were asked for behind passes, and what each pass took, in the order they
    ran."""
    for program in dict.fromkeys(session.runner.printed):
        sys.stderr.write(f"// after {program.name}\n{program.text.rstrip()}\n\n")
    for timing in session.runner.timings if times else ():
        sys.stderr.write(f"{timing.seconds * 1e3:8.2f} ms  {timing.name}\n")
