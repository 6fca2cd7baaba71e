"""``tesserac run``."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.commands.flags import (
    as_option,
    checked_option,
    color_option,
    examples,
    memory_budget_option,
    path_option,
)
from tessera_lang.driver.commands.inputs import decided_target, session_for, source_path
from tessera_lang.driver.commands.kernel_selection import judged_for
from tessera_lang.driver.commands.output import show
from tessera_lang.driver.exit_codes import FAILED_RUN, OUR_FAULT
from tessera_lang.record import dataclass

if TYPE_CHECKING:
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.driver.session import Session
    from tessera_lang.target.host_world import World

DATA = (".npy", ".npz", ".csv")


@click.command(
    name="run",
    epilog=examples(
        "tesserac run examples/measurements.tessera",
        "tesserac run sum.tessera --set x=data.npy --set repeat=3 --target cpu",
        "tesserac run product.tessera --as sm_90a",
    ),
)
@click.argument("file")
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE",
    help="Give a top-level name a value: a number, a 'string', or a .npy, .npz or .csv file; "
    "`x=data.npz:key` names an array in one.",
)  # fmt: skip
@click.option(
    "--target", default="auto", envvar="TESSERA_TARGET", metavar="[auto|cpu|cuda]",
    help="Where kernels run; auto takes cuda where a device works.",
)  # fmt: skip
@click.option(
    "--threads",
    type=int,
    metavar="N",
    help="Threads of kernels on the CPU, in place of TESSERA_NUM_THREADS.",
)
@memory_budget_option
@click.option(
    "--check-nan", is_flag=True,
    help="Stop at the first operator that gives NaN and takes none, of fused functions too.",
)  # fmt: skip
@as_option
@checked_option
@path_option
@color_option
def command(
    file: str, settings: tuple[str, ...], target: str, threads: int | None, budget: float | None,
    check_nan: bool, arch_as: str, checked: bool, lane_order: str, lane_seed: int,
    search: tuple[str, ...], color: str,
) -> int:  # fmt: skip
    """Check FILE, then run its top-level statements; `-` is standard input."""
    session = session_for(search)
    session.memory_budget = int(budget or 0)
    path = source_path(session, file)
    given = dict(_setting(text) for text in settings)
    unknown = _unknown_names(session, path, tuple(given))
    if unknown:
        return show(session, unknown, color=color)
    with suppress(TesseraError):  # a target that is not there is said when the run begins
        session.options = judged_for("cpu" if arch_as or checked else target, arch_as=arch_as)
    found = session.check(path, given=frozenset(given))
    if any(d.severity == "error" for d in found):
        return show(session, found, color=color)
    show(session, found, color=color)
    where = Where(target, arch_as, checked, lane_order, lane_seed, threads, check_nan)
    return _run(session, path, given, where, color)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise click.UsageError(f"`--set {text}` is not of the form NAME=VALUE.")
    return name, value


def _unknown_names(session: Session, path: str, names: tuple[str, ...]) -> list[Diagnostic]:
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.diagnostics.nearest import nearest
    from tessera_lang.driver.function_keys import names_in

    if not names:
        return []
    module = session.parsed(path).module
    known = names_in(tuple(s for s in module.body if s not in module.functions))
    found: list[Diagnostic] = []
    for name in names:
        if name not in known:
            close = nearest(name, known)
            helps = (f"did you mean `{close}`?",) if close else ()
            message = f"`--set {name}=...`: the top level of {path} has no name `{name}`"
            found.append(Diagnostic("T0812", message, helps=helps))
    return found


@dataclass(frozen=True, slots=True)
class Where:
    """A target as it is named, the architecture whose code the CPU runs, and whether it looks at
    every access, in which orders of lanes."""

    target: str
    arch_as: str = ""
    checked: bool = False
    lane_order: str = "all"
    lane_seed: int = 1
    threads: int | None = None
    check_nan: bool = False

    def decided(self) -> str:
        """The target to run on, which is said. Raises TesseraError."""
        from tessera_lang.diagnostics import TesseraError
        from tessera_lang.target.runtime import runtime

        chosen, why = decided_target("cpu" if self._as_cpu() else self.target)
        if self.threads is not None:
            if self.target == "cuda" and chosen == "cuda":
                raise click.UsageError("--threads is for kernels on the CPU, not --target cuda.")
            runtime().set_num_threads(self.threads)
        if self.checked:
            runtime().use_lane_order(self.lane_order, self.lane_seed)
        refused = refusal(chosen)
        if refused is not None:
            raise TesseraError((refused,))
        why = f"as {self.arch_as}" if self.arch_as else "checked" if self.checked else why
        if self.threads is not None and chosen == "cuda":
            why = "; ".join(filter(None, (why, "--threads is for kernels on the CPU")))
        sys.stderr.write(f"target: {chosen}{f' ({why})' if why else ''}\n")
        return chosen

    def _as_cpu(self) -> bool:
        """Raises TesseraError where ``--as`` or ``--checked`` cannot be had."""
        if self.checked and (self.arch_as or self.target not in ("auto", "cpu")):
            other = "--as" if self.arch_as else f"--target {self.target}"
            raise click.UsageError(f"--checked runs on the CPU as it is, not with {other}.")
        if not self.arch_as:
            return self.checked
        from tessera_lang.diagnostics import TesseraError
        from tessera_lang.driver.emulated_arch import refused_as

        refused = refused_as(self.target, self.arch_as)
        if refused is not None:
            raise TesseraError((refused,))
        return True

    def report(self) -> None:
        """What a run with ``--as`` says of itself."""
        from tessera_lang.target.runtime import runtime

        lines = runtime().asynchronous_report(self.arch_as) if self.arch_as else ()
        for line in (*lines, *(runtime().checked_report() if self.checked else ())):
            sys.stderr.write(f"{line}\n")


def _run(session: Session, path: str, given: dict[str, str], where: Where, color: str) -> int:
    from tessera_lang.diagnostics import Diagnostic, TesseraError
    from tessera_lang.driver.internal_fault import InternalFault
    from tessera_lang.evaluate.fault import HostFault
    from tessera_lang.target.host_world import WorldFault
    from tessera_lang.target.runtime import runtime

    try:
        world = runtime().host_world(
            session, where.decided(), _write, where.arch_as, where.checked, where.check_nan
        )
        values = {name: _value(text, world) for name, text in given.items()}
        session.run(path, world, values)
        world.finish()
        where.report()
        return 0
    except (HostFault, TesseraError) as error:
        diagnostics = error.diagnostics
    except WorldFault as error:
        diagnostics = (Diagnostic(error.code, error.message, helps=error.helps, notes=error.notes),)
    except InternalFault as error:
        raise error
    code = show(session, diagnostics, color=color)
    return OUR_FAULT if code == OUR_FAULT else FAILED_RUN


def _write(text: str) -> None:
    sys.stdout.write(text)


def refusal(target: str) -> Diagnostic | None:
    """Why kernels cannot run on a target here."""
    from tessera_lang.diagnostics import Diagnostic
    from tessera_lang.target.backend import backend_named, backend_names

    if target not in backend_names():
        known = ", ".join(f"`{n}`" for n in backend_names())
        helps = (f"the installed targets are {known}",)
        return Diagnostic("T0814", f"there is no target `{target}`", helps=helps)
    reason = backend_named(target).available()
    if not reason:
        return None
    helps = ("`--target cpu` runs everywhere", "`tesserac doctor` says what is missing")
    return Diagnostic("T0814", f"nothing runs on `{target}` here: {reason}", helps=helps)


def _value(text: str, world: World) -> object:
    """The value of a setting: a data file, or a literal."""
    file, _, key = text.partition(":")
    if text.endswith(DATA):
        file, key = text, ""
    if file.endswith(DATA):
        return world.load(os.fspath(file), key or None, None)
    from tessera_lang.diagnostics import Diagnostic, TesseraError
    from tessera_lang.evaluate.constant import NotConstant, evaluate_constant
    from tessera_lang.source import SourceFile
    from tessera_lang.syntax import parse_module
    from tessera_lang.syntax.ast import Assign, Name

    parsed = parse_module(SourceFile("<set>", f"value = {text}\n"))
    body = parsed.module.body
    if not parsed.diagnostics and len(body) == 1 and isinstance(body[0], Assign):
        value = body[0].value
        if isinstance(value, Name) and value.id not in ("inf", "nan"):
            return text
        try:
            return evaluate_constant(value, _unknown)
        except NotConstant:
            pass
    helps = ("a value is a number, a string, a tuple of them, or a data file",)
    raise TesseraError((Diagnostic("T0812", f"`{text}` is no value", helps=helps),))


def _unknown(name: object) -> object:
    raise LookupError(name)
