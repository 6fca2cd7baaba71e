"""``tesserac build``."""

from __future__ import annotations

import os
import re
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import (
    bounds_option,
    color_option,
    examples,
    pass_options,
    path_option,
    signature_option,
)
from tessera_lang.driver.commands.inputs import session_for, source_path, watch_passes
from tessera_lang.driver.commands.kernel_selection import Choice, chosen_kernels, judged_for
from tessera_lang.driver.commands.output import show, show_passes

if TYPE_CHECKING:
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.driver.session import Session
    from tessera_lang.target.backend import Artifact

_BUILT = ("cpu", "cuda")
"""Targets whose code a folder can hold: what loads it knows their kinds."""


@click.command(
    name="build",
    epilog=examples(
        "tesserac build sum_reduce.tessera -o out --target cuda --arch sm_90",
        "tesserac build add.tessera -o out --signature 'a: f32[n], b: f32[n], c: mut f32[n]'",
        "tesserac build add.tessera -o out --target cuda --arch sm_80 --arch sm_90",
    ),
)
@click.argument("file")
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(path_type=Path),
              help="The folder for code, manifest and header.")  # fmt: skip
@click.option("--kernel", "names", multiple=True, metavar="NAME", help="Only this kernel.")
@click.option("--target", default="auto", envvar="TESSERA_TARGET", metavar="[auto|cpu|cuda]",
              help="What code is made for.")  # fmt: skip
@click.option("--arch", "archs", multiple=True, metavar="ARCH", envvar="TESSERA_ARCH",
              help="sm_80 ... for cuda, native or an LLVM name for cpu; more than once for code "
              "for several.")  # fmt: skip
@click.option("--grid-axes", "grid_axes", multiple=True, type=click.IntRange(1, 3), metavar="N",
              help="Of kernels whose calls say the number of groups: code for grids of N axes. "
              "Without it, for as many as the kernel asks for.")  # fmt: skip
@click.option("--prefix", default="tessera", metavar="NAME",
              help="What the names of headers and of their functions begin with.")  # fmt: skip
@bounds_option
@pass_options
@signature_option
@path_option
@color_option
def command(
    file: str, output: Path, names: tuple[str, ...], target: str, archs: tuple[str, ...],
    grid_axes: tuple[int, ...], prefix: str, bounds: str, time_passes: bool,
    print_after: tuple[str, ...], verify_each: bool, signatures: tuple[str, ...],
    search: tuple[str, ...], color: str,
) -> int:  # fmt: skip
    """Compile the kernels of FILE to code, a manifest and a C header each."""
    from tessera_lang.target.runtime import runtime

    session = session_for(search)
    watch_passes(session, print_after, verify_each)
    path = source_path(session, file)
    if re.fullmatch("[A-Za-z][A-Za-z0-9_]*", prefix) is None:
        raise click.BadParameter(f"'{prefix}' is no name of C.", param_hint="'--prefix'")
    named = dict.fromkeys(archs or (str(click.get_current_context().lookup_default("arch") or ""),))
    every = [judged_for(target, arch, bounds) for arch in named]
    if other := next((o.target for o in every if o.target not in _BUILT), ""):
        raise click.UsageError(f"Folders are built for {' and '.join(_BUILT)}, not {other}.")
    found: dict[Diagnostic, None] = {}
    for session.options in every:
        # With kernels named, the signatures are theirs alone.
        found |= dict.fromkeys(session.check(path, () if names else signatures))
    code = show(session, tuple(found), color=color)
    if code:
        return code
    made: list[tuple[int, Artifact]] = []
    for session.options in every:
        for at, kernel in enumerate(chosen_kernels(session, path, names, signatures)):
            made += ((at, a) for a in _made(session, path, kernel, grid_axes or (0,), color))
    # Variants are numbered in this order: the architectures of a signature stand together.
    artifacts = [artifact for _, artifact in sorted(made, key=itemgetter(0))]
    root = "" if file == "-" else os.path.dirname(os.path.abspath(path))
    for written in runtime().write_build(output, artifacts, root, prefix):
        click.echo(str(written))
    show_passes(session, time_passes)
    return 0


def _made(
    session: Session, path: str, kernel: Choice, grid_axes: tuple[int, ...], color: str
) -> list[Artifact]:
    """Code of a kernel for the session's target, for grids of so many axes, each once."""
    assert session.options is not None
    made: dict[int, Artifact] = {}
    for axes in grid_axes:
        artifact = session.compile_kernel(
            path, kernel.name, kernel.signature, session.options, grid_rank=axes
        )
        new = [d for d in artifact.diagnostics if (d.code, d.message) not in session.shown]
        show(session, new, color=color)
        made[artifact.plan.grid_axes] = artifact
    return list(made.values())
