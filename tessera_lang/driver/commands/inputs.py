"""What the command line names: files, folders, the target.

Owns standard input as a file, and what ``auto`` means. Must not import the compiler before
``session_for`` is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tessera_lang.driver.source_overlay import STDIN

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session


def session_for(search: Iterable[str]) -> Session:
    from tessera_lang.driver.session import Session
    from tessera_lang.target.runtime import InstalledProofs

    session = Session(tuple(search))
    session.proofs = InstalledProofs()
    return session


def watch_passes(session: Session, print_after: Iterable[str], verify_each: bool) -> None:
    """Has the session keep the programs behind these passes. Raises UsageError for a name that is
    none."""
    import click

    from tessera_lang.driver.pass_runner import ALL, PassRunner
    from tessera_lang.driver.pipeline import pass_names

    asked = tuple(print_after)
    if asked:
        known = (*pass_names(), ALL)
        for name in asked:
            if name not in known:
                listed = ", ".join(known)
                raise click.UsageError(f"There is no pass '{name}'. The passes are: {listed}.")
    session.runner = PassRunner(verify_each, asked)


def source_path(session: Session, name: str) -> str:
    """The path of a file argument; ``-`` reads standard input."""
    if name != "-":
        return name
    from tessera_lang.driver.source_overlay import MAX_BYTES
    from tessera_lang.syntax import decode_source

    data = sys.stdin.buffer.read(MAX_BYTES)
    file, diagnostics = decode_source(data, STDIN)
    if file is None:
        raise session.error(diagnostics)
    session.set_text(STDIN, file.text)
    return STDIN


def decided_target(target: str) -> tuple[str, str]:
    """The target that ``auto`` means here, and why another is not taken."""
    if target != "auto":
        return target, ""
    from tessera_lang.target.backend import backend_named, backend_names

    if "cuda" in backend_names():
        reason = backend_named("cuda").available()
        return ("cuda", "") if not reason else ("cpu", f"cuda: {reason}")
    return "cpu", "cuda: no such backend is installed"
