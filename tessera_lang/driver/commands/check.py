"""``tesserac check``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import (
    arch_option,
    color_option,
    examples,
    format_option,
    path_option,
    signature_option,
)
from tessera_lang.driver.commands.inputs import session_for, source_path
from tessera_lang.driver.commands.kernel_selection import judged_for
from tessera_lang.driver.commands.output import show
from tessera_lang.driver.exit_codes import USAGE

if TYPE_CHECKING:
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.driver.session import Session


@click.command(
    name="check",
    epilog=examples(
        "tesserac check kernels.tessera",
        "tesserac check kernels/",
        "tesserac check kernels.tessera --signature 'x: f64[n], out: mut f64[m]' --format=json",
        "tesserac check kernels.tessera --lints --explain-guards",
        "tesserac check sum.tessera --remarks --arch=sm_90 --signature 'x: bf16[4096, 4096]'",
    ),
)
@click.argument("names", nargs=-1, metavar="[FILES|DIRS...]")
@signature_option
@click.option("--strict", is_flag=True,
              help="Also report what is not proved of shared memory.")  # fmt: skip
@click.option("--lints", is_flag=True,
              help="Also report slow accesses, and groups that fit at once.")  # fmt: skip
@click.option("--explain-guards", "guards", is_flag=True,
              help="Also report accesses that keep a guard, and what nothing proves.")  # fmt: skip
@click.option("--remarks", is_flag=True,
              help="Also report what became of the schedules of tile kernels.")  # fmt: skip
@click.option("--target", default="", envvar="TESSERA_TARGET", metavar="[auto|cpu|cuda]",
              help="The target that kernels are judged for, and that of the remarks. Without it, "
              "an architecture or a signature only what is wrong on all is found.")  # fmt: skip
@arch_option
@path_option
@format_option
@color_option
def command(
    names: tuple[str, ...], signatures: tuple[str, ...], strict: bool, lints: bool,
    guards: bool, remarks: bool, target: str, arch: str, search: tuple[str, ...], format_: str,
    color: str,
) -> int:  # fmt: skip
    """Report everything that is wrong with FILES and the files in DIRS, or in the working folder;
    `-` is standard input."""
    from tessera_lang.driver.discovery import source_files

    files = source_files(names or (".",))
    if not files:
        where = ", ".join(names) or "the working folder"
        sys.stderr.write(f"error: there is no source file (`.tessera`) in {where}\n")
        return USAGE
    session = session_for(search)
    if target or arch or signatures:  # else no backend is loaded
        session.options = judged_for(target, arch)
    found: list[Diagnostic] = []
    paths = [source_path(session, name) for name in files]
    for path in paths:
        found.extend(session.check(path, signatures))
        if strict or lints or guards:
            from tessera_lang.driver.advice import Questions, advice

            found.extend(advice(session, path, Questions(strict, lints, lints, guards)))
        if remarks or target or arch:
            from tessera_lang.driver.advice import remarks_of
            from tessera_lang.driver.commands.kernel_selection import machine_for

            machine = machine_for(session, target or ("" if arch else "cuda"), arch)
            if target or arch:
                told = {(d.code, d.span) for d in found}
                needed = session.sizes_that_build_needs(path, signatures)
                found.extend(d for d in needed if (d.code, d.span) not in told)
            said = remarks_of(session, path, machine)
            found.extend(d for d in said if remarks or d.severity == "warning")
    if not any(d.severity == "error" for d in found):
        found.extend(_unmet(session, paths, signatures))
    return show(session, found, format_, color)


def _unmet(session: Session, paths: list[str], signatures: tuple[str, ...]) -> list[Diagnostic]:
    """Signatures that were looked at for no kernel."""
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.driver.signatures import read_names

    kernels = [k for path in paths for k in session.kernels(path)]
    names = [{p.name for p in (*k.brackets, *k.parameters)} for k in kernels]
    return [
        Diagnostic(
            "T0815", f"no kernel has all the parameters of the signature `{text}`",
            helps=tuple(f"`{k.name}` has {', '.join(f'`{p.name}`' for p in k.parameters)}"
                        for k in kernels[:3]),
        )
        for text in signatures
        if not any(read_names(text) <= own for own in names)
    ]  # fmt: skip
