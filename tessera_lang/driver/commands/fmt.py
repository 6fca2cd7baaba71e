"""``tesserac fmt``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import color_option, examples
from tessera_lang.driver.commands.inputs import session_for, source_path
from tessera_lang.driver.commands.output import show
from tessera_lang.driver.exit_codes import DIAGNOSTICS, OUR_FAULT

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session


@click.command(
    name="fmt",
    epilog=examples("tesserac fmt kernels/", "tesserac fmt --check --diff kernels.tessera"),
)
@click.argument("names", nargs=-1, required=True, metavar="FILES|DIRS|-...")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@color_option
def command(names: tuple[str, ...], check: bool, diff: bool, color: str) -> int:
    """Format FILES and the files in DIRS in place; `-` from standard input to standard output."""
    from tessera_lang.driver.discovery import source_files

    session = session_for(())
    code = changed = 0
    for name in source_files(names):
        path = source_path(session, name)
        after = _formatted(session, path, color)
        if isinstance(after, int):
            code = max(code, after)
            continue
        before = session.source(path).text
        changed += after != before
        _deliver(path, before, after, check, diff)
    if (check or diff) and changed:
        what = "file" if changed == 1 else "files"
        sys.stderr.write(f"{changed} {what} would be formatted\n")
        return max(code, DIAGNOSTICS)
    return code


def _deliver(path: str, before: str, after: str, check: bool, diff: bool) -> None:
    """Write, print or name what changed."""
    from tessera_lang.driver.source_overlay import STDIN
    from tessera_lang.driver.source_rewrites import difference, replace_file

    if diff:
        sys.stdout.write(difference(path, before, after))
    elif check:
        if after != before:
            sys.stderr.write(f"would format {path}\n")
    elif path == STDIN:
        sys.stdout.flush()
        sys.stdout.buffer.write(after.encode("utf-8"))  # line ends as they are
        sys.stdout.buffer.flush()
    elif after != before:
        replace_file(path, after)
        sys.stderr.write(f"formatted {path}\n")


def _formatted(session: Session, path: str, color: str) -> str | int:
    """The new text; an exit code where there is none, and why has been shown."""
    from tessera_lang.diagnostics import TesseraError
    from tessera_lang.driver.internal_fault import InternalFault
    from tessera_lang.syntax.format import FormatFault, format_source

    try:
        after = format_source(session.source(path))
    except TesseraError as error:
        return show(session, error.diagnostics, color=color)
    except FormatFault as error:
        message = f"{path} was left as it is: the formatter would change the program ({error})"
        fault = InternalFault("T0901", message, stage="fmt")
        session.faults.append(fault)
        show(session, (fault.diagnostic(),), color=color)
        return OUR_FAULT
    if after is None:
        return show(session, session.parsed(path).diagnostics, color=color)
    return after
