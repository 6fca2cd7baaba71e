"""``tesserac build``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import (
    bounds_option,
    color_option,
    examples,
    path_option,
    signature_option,
    time_passes_option,
)
from tessera_lang.driver.commands.inputs import decided_target, session_for, source_path
from tessera_lang.driver.commands.kernels import chosen_kernels, target_options
from tessera_lang.driver.commands.output import show, show_timings

if TYPE_CHECKING:
    from tessera_lang.target.backend import Artifact


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
@time_passes_option
@signature_option
@path_option
@color_option
def command(
    file: str, output: Path, names: tuple[str, ...], target: str, archs: tuple[str, ...],
    grid_axes: tuple[int, ...], prefix: str, bounds: str, time_passes: bool,
    signatures: tuple[str, ...], search: tuple[str, ...], color: str,
) -> int:  # fmt: skip
    """Compile the kernels of FILE to code, a manifest and a C header each."""
    from tessera_lang.target.runtime import runtime

    session = session_for(search)
    path = source_path(session, file)
    # With kernels named, the signatures are theirs alone.
    code = show(session, session.check(path, () if names else signatures), color=color)
    if code:
        return code
    if re.fullmatch("[A-Za-z][A-Za-z0-9_]*", prefix) is None:
        raise click.BadParameter(f"'{prefix}' is no name of C.", param_hint="'--prefix'")
    chosen, _ = decided_target(target)
    named = dict.fromkeys(archs or (str(click.get_current_context().lookup_default("arch") or ""),))
    artifacts: list[Artifact] = []
    for kernel in chosen_kernels(session, path, names, signatures):
        for arch in named:
            options = target_options(chosen, arch, bounds)
            made: dict[int, Artifact] = {}
            for axes in grid_axes or (0,):
                artifact = session.compile_kernel(
                    path, kernel.name, kernel.signature, options, grid_rank=axes
                )
                said = artifact.diagnostics
                new = [d for d in said if (d.code, d.message) not in session.shown]
                show(session, new, color=color)
                made[artifact.plan.grid_axes] = artifact
            artifacts.extend(made.values())
    root = "" if file == "-" else os.path.dirname(os.path.abspath(path))
    for written in runtime().write_build(output, artifacts, root, prefix):
        click.echo(str(written))
    if time_passes:
        show_timings(session)
    return 0
