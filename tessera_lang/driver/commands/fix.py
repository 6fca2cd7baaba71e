"""``tesserac fix``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import color_option, examples, path_option
from tessera_lang.driver.commands.inputs import session_for, source_path
from tessera_lang.driver.commands.output import show

if TYPE_CHECKING:
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.driver.fixes import Fixed


@click.command(
    name="fix", epilog=examples("tesserac fix kernels.tessera", "tesserac fix --unsafe --diff src/")
)
@click.argument("names", nargs=-1, required=True, metavar="FILES|DIRS|-...")
@click.option("--unsafe", is_flag=True, help="Apply fixes too that may mean another program.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
@path_option
@color_option
def command(
    names: tuple[str, ...], unsafe: bool, diff: bool, search: tuple[str, ...], color: str
) -> int:
    """Mend FILES and the files in DIRS where diagnostics say how; `-` from standard input to
    standard output."""
    from tessera_lang.diagnostics import TesseraError
    from tessera_lang.driver.discovery import source_files
    from tessera_lang.driver.fixes import apply_fixes

    session = session_for(search)
    remaining: list[Diagnostic] = []
    for name in source_files(names):
        path = source_path(session, name)
        try:
            before = session.source(path).text
        except TesseraError as error:
            remaining.extend(error.diagnostics)
            continue
        fixed = apply_fixes(session, path, unsafe)
        _deliver(path, before, fixed, diff)
        remaining.extend(fixed.remaining)
    return show(session, remaining, color=color)


def _deliver(path: str, before: str, fixed: Fixed, diff: bool) -> None:
    from tessera_lang.driver.source_overlay import STDIN
    from tessera_lang.driver.source_rewrites import difference, replace_file

    count = len(fixed.applied)
    if diff:
        sys.stdout.write(difference(path, before, fixed.text))
    elif path == STDIN:
        sys.stdout.flush()
        sys.stdout.buffer.write(fixed.text.encode("utf-8"))
        sys.stdout.buffer.flush()
    elif fixed.text != before:
        replace_file(path, fixed.text)
    if count:
        would = "would apply" if diff else "applied"
        sys.stderr.write(f"{path}: {would} {count} {'fix' if count == 1 else 'fixes'}\n")
