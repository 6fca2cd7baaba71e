"""Which kernels and signatures a command is about, and for which target.

Owns the choice. Must not know what is done with them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver.commands.inputs import decided_target
from tessera_lang.driver.options import from_environment
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch import is_gpu_name
from tessera_lang.target.backend import TargetOptions, backend_named, backend_names

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session
    from tessera_lang.sema.side_tables import Signature
    from tessera_lang.target.machine import Machine


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel for one signature."""

    name: str
    signature: Signature


def target_options(target: str, arch: str, bounds: str = "guard") -> TargetOptions:
    """Options with the target's own architecture where none is named. Raises TesseraError."""
    try:
        options = replace(from_environment(), bounds=bounds)
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
    if target not in backend_names():
        known = ", ".join(f"`{n}`" for n in backend_names())
        helps = (f"the installed targets are {known}",)
        raise TesseraError((Diagnostic("T0814", f"there is no target `{target}`", helps=helps),))
    return options.for_target(target, arch or backend_named(target).default_arch())


def judged_for(
    target: str, arch: str = "", bounds: str = "guard", arch_as: str = ""
) -> TargetOptions:
    """What a command makes code for, or would: ``auto`` where no target is named, and a GPU where
    an architecture of one is. Raises TesseraError."""
    usual = "cuda" if is_gpu_name(arch) else "auto"
    named = usual if target in ("", "auto") else target
    options = target_options(decided_target(named)[0], arch, bounds)
    return replace(options, arch_as=arch_as or options.arch_as)


def chosen_kernels(
    session: Session, path: str, names: tuple[str, ...], signatures: tuple[str, ...]
) -> list[Choice]:
    """The kernels to work on: those named, else all; for the signatures given, else for what
    their annotations say. Raises TesseraError where there is none."""
    from tessera_lang.driver.signatures import read_names

    declared = {f.name: f for f in session.kernels(path)}
    for name in names:
        if name not in declared:
            raise session.no_kernel(path, session.scope(path), name)
    if not declared:
        raise session.error((Diagnostic("T0819", f"{path} has no kernel", helps=_without(path)),))
    chosen: list[Choice] = []
    open_: list[Diagnostic] = []
    for name in names or tuple(declared):
        own = {p.name for p in (*declared[name].brackets, *declared[name].parameters)}
        fitting = [s for s in signatures if names or read_names(s) <= own]
        texts = fitting or ([] if signatures and not names else [""])
        for text in texts:
            try:
                chosen.append(Choice(name, session.signature_of_launches(path, name, text)))
            except TesseraError as error:
                if names or text:
                    raise
                open_.extend(error.diagnostics)
    if not chosen and open_:
        raise session.error(open_)
    if not chosen:
        message = f"no kernel of {path} has the parameters of the signature"
        raise session.error((Diagnostic("T0815", message),))
    for diagnostic in open_:
        sys.stderr.write(f"note: left out, since {diagnostic.message}\n")
    return chosen


def _without(path: str) -> tuple[str, ...]:
    """What can be done with a file that has functions of the host program alone."""
    return (
        "mark what code is to be made for with `@kernel` or `@op.kernel`",
        "functions of the host program are interpreted, so they have no stage but the tree:"
        f" `tesserac emit {path} --stage=ast`; `tesserac run` and `tessera.load` run them",
    )


def is_tile_kernel(session: Session, path: str, name: str) -> bool:
    from tessera_lang.evaluate.modules import kernel_level

    return any(f.name == name and kernel_level(f) == "tile" for f in session.kernels(path))


def machine_for(session: Session, target: str, arch: str) -> Machine:
    """The machine that ``--target`` and ``--arch`` name: an architecture of a GPU says it
    alone."""
    usual = "cuda" if is_gpu_name(arch) else "cpu"
    return session.machine(decided_target(target or usual)[0], arch)
