"""``tesserac emit``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.code_lines import locator, sass_with_lines, with_lines
from tessera_lang.driver.commands.flags import (
    arch_option,
    bounds_option,
    color_option,
    examples,
    pass_options,
    path_option,
    signature_option,
)
from tessera_lang.driver.commands.inputs import session_for, source_path, watch_passes
from tessera_lang.driver.commands.kernel_selection import (
    Choice,
    chosen_kernels,
    is_tile_kernel,
    judged_for,
    machine_for,
)  # fmt: skip
from tessera_lang.driver.commands.output import show, show_passes
from tessera_lang.record import dataclass
from tessera_lang.target.arch import is_gpu_name
from tessera_lang.target.backend import LINES, join_texts

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session
    from tessera_lang.ir.core import Program
    from tessera_lang.target.backend import TargetOptions


@dataclass(frozen=True, slots=True)
class How:
    """What code is made for, and whether it says of which lines it is."""

    target: str
    arch: str
    bounds: str
    lines: bool


STAGES = ("ast", "graph", "fused", "typed", "schedule", "tile", "llvm", "ptx", "sass", "asm")
_ONLY_ON = {"ptx": "cuda", "sass": "cuda", "asm": "cpu"}


@click.command(
    name="emit",
    epilog=examples(
        "tesserac emit sum_reduce.tessera --stage=tile",
        "tesserac emit sum_reduce.tessera --stage=ptx --arch=sm_90",
        "tesserac emit loss.tessera --stage=graph --signature 'x: f32[n, k], w: f32[k]'",
        "tesserac emit loss.tessera --stage=fused --signature 'x: f32[8, 4], w: f32[4]'",
        "tesserac emit sum.tessera --stage=schedule --arch=sm_90 --signature 'x: bf16[4096]'",
    ),
)
@click.argument("file")
@click.option("--stage", type=click.Choice(STAGES), required=True, help="What to print.")
@click.option(
    "--kernel", "names", multiple=True, metavar="NAME", help="Only this kernel, or function."
)
@click.option("--target", default="", envvar="TESSERA_TARGET", metavar="[auto|cpu|cuda]",
              help="The target; ptx and sass are cuda, asm is cpu. The schedule stage shows the "
              "decisions for a target or an architecture that is named.")  # fmt: skip
@arch_option
@bounds_option
@click.option("--lines", is_flag=True,
              help="Say which place of the program each operation (schedule, tile) and each "
              "instruction (ptx, sass) is of.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
              help="Write to this file.")  # fmt: skip
@pass_options
@signature_option
@path_option
@color_option
def command(
    file: str, stage: str, names: tuple[str, ...], target: str, arch: str, bounds: str,
    lines: bool, output: Path | None, time_passes: bool, print_after: tuple[str, ...],
    verify_each: bool, signatures: tuple[str, ...], search: tuple[str, ...], color: str,
) -> int:  # fmt: skip
    """Print FILE at one stage of the compiler; `-` is standard input."""
    session = session_for(search)
    watch_passes(session, print_after, verify_each)
    path = source_path(session, file)
    if stage == "ast":
        text, code = _tree(session, path, color)
    elif stage in ("graph", "fused"):
        text, code = graph_texts(
            session, path, stage, names, signatures, color, (target, arch)
        )  # fmt: skip
    else:
        session.options = _options(stage, target, arch, bounds)
        # With kernels named, the signatures are theirs alone.
        code = show(session, session.check(path, () if names else signatures), color=color)
        if code:
            return code
        chosen = chosen_kernels(session, path, names, signatures)
        for c in chosen if names else ():
            code = show(session, session.instance(path, c.name, c.signature)[2], color=color)
            if code:
                return code
        how = How(target, arch, bounds, lines)
        text = join_texts(stage, [_stage(session, path, c, stage, how) for c in chosen])
    if output is not None:
        output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    show_passes(session, time_passes)
    return code


def _tree(session: Session, path: str, color: str) -> tuple[str, int]:
    from tessera_lang.syntax.dump import dump

    parsed = session.parsed(path)
    code = show(session, parsed.diagnostics, color=color)
    return dump(parsed.module).rstrip("\n") + "\n", code


def graph_texts(
    session: Session, path: str, stage: str, names: tuple[str, ...],
    signatures: tuple[str, ...], color: str, how: tuple[str, str],
) -> tuple[str, int]:  # fmt: skip
    """The graphs of plain functions, or the kernels that they become on a target of an architecture
    (``how``). What keeps a function from having a graph is shown as an error."""
    from tessera_lang.diagnostics import Diagnostic, TesseraError
    from tessera_lang.driver.function_graphs import graph_text, plain_functions
    from tessera_lang.driver.graph_verification import planned_for

    code = show(session, session.check(path), color=color)
    if code:
        return "", code
    machine = None
    if stage != "graph" and (how[0] == "cuda" or is_gpu_name(how[1])):
        machine = planned_for("cuda", how[1])
    known = {f.name: f for f in plain_functions(session, path)}
    missing = [n for n in names if n not in known]
    if missing or not known:
        what = f"plain function `{missing[0]}`" if missing else "plain function"
        raise session.error((Diagnostic("T0819", f"{path} has no {what}"),))
    texts: list[str] = []
    found: list[Diagnostic] = []
    for name in names or tuple(known):
        for signature in signatures or ("",):
            try:
                texts.append(graph_text(session, path, known[name], signature, stage, machine))
            except TesseraError as error:
                found += error.diagnostics
    return "\n".join(texts), show(session, found, color=color)


def _stage(session: Session, path: str, chosen: Choice, stage: str, how: How) -> str:
    if stage == "typed":
        from tessera_lang.driver.typed_dump import typed_text

        typed, _, _ = session.instance(path, chosen.name, chosen.signature)
        assert typed is not None
        return typed_text(typed, session.files.known())
    if stage in ("schedule", "tile"):
        return _ir(session, path, chosen, stage, how)
    options = _options(stage, how.target, how.arch, how.bounds)
    stages = (stage, LINES) if how.lines else (stage,)
    artifact = session.compile_kernel(path, chosen.name, chosen.signature, options, stages)
    show(session, artifact.diagnostics)
    text = artifact.texts.get(stage)
    if text is None:
        raise click.UsageError(f"The target {options.target} has no stage {stage}.")
    if how.lines and stage == "ptx":
        text = with_lines(text, session.files.known())
    if how.lines and stage == "sass":
        text = sass_with_lines(text, artifact.texts["ptx"], session.files.known())
    return text.rstrip("\n") + "\n"


def _options(stage: str, target: str, arch: str, bounds: str) -> TargetOptions:
    """What code of a stage is made for; a stage that both targets have is the CPU's where nothing
    says more."""
    only = _ONLY_ON.get(stage)
    if only is not None and target not in ("", "auto", only):
        raise click.UsageError(f"The stage {stage} belongs to the target {only}, not {target}.")
    return judged_for(only or target or ("" if is_gpu_name(arch) else "cpu"), arch, bounds)


def _ir(session: Session, path: str, chosen: Choice, stage: str, how: How) -> str:
    """The IR of a level. That of a lane kernel is one for all targets."""
    from tessera_lang.ir.printer import print_program

    machine = how.target, how.arch
    if stage == "schedule":
        programs = _schedule(session, path, chosen, machine)
    elif is_tile_kernel(session, path, chosen.name):
        programs = _tiles(session, path, chosen, machine)
    else:
        programs = (session.tile(path, chosen.name, chosen.signature)[0],)
    locate = locator(session.files.known()) if how.lines else None
    return "\n".join(print_program(p, locate=locate).rstrip("\n") + "\n" for p in programs)


def _tiles(
    session: Session, path: str, chosen: Choice, how: tuple[str, str]
) -> tuple[Program, ...]:
    """Tile IR of a tile kernel for a machine, one for each launch of a call."""
    machine = machine_for(session, *how)
    session.tile(path, chosen.name, chosen.signature, machine)  # raises where it is refused
    made = session.for_machine(path, chosen.name, chosen.signature, machine)
    return tuple(launch.lowered[0] for launch in made.launches if launch.lowered is not None)


def _schedule(
    session: Session, path: str, chosen: Choice, how: tuple[str, str]
) -> tuple[Program, ...]:
    """Schedule IR as built, or as decided where a target or an architecture is named."""
    if not is_tile_kernel(session, path, chosen.name):
        raise click.UsageError(f"{chosen.name} is a lane kernel: it has no schedule.")
    if not any(how):
        return session.scheduled(path, chosen.name, chosen.signature)
    machine = machine_for(session, *how)
    made = session.for_machine(path, chosen.name, chosen.signature, machine)
    show(session, made.remarks)
    return tuple(launch.schedule for launch in made.launches)
