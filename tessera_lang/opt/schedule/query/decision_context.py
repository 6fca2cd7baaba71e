"""The context of a deciding pass: the machine, the remarks, and decisions with their origins.

Owns the record of a machine with the remarks, and the attributes with their origins. A pass
never undoes what the user said: ``decide`` keeps it, and the pass says why where it cannot be
honoured. Must not know any single decision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, Operation, Program, Value
from tessera_lang.ir.pass_type import Kind
from tessera_lang.ir.rewrite import rewrite_operation
from tessera_lang.opt.schedule.query.kernel_facts import kernel_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import Span
from tessera_lang.target.machine import Machine
from tessera_lang.types.shape import Dim

USER = "user"
COST = "cost model"
LEGALITY = "legality"


class Numbers(Protocol):
    """What the launch knows of the scalars of a kernel."""

    def key(self, value: Value) -> Hashable:
        """Equal for numbers that the launch checks to be equal."""
        ...

    def dim(self, value: Value) -> Dim | None:
        """What it is in sizes of the launch; None where it is none of them."""
        ...

    def number(self, value: Value) -> int | None:
        """What it is in every launch of this code; None where that differs."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a decision cannot be built: a clause, and where."""

    reason: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """``remarks`` collects what the passes have to say: notes, and errors that end the way.
    ``relief``: how often a schedule for this machine was found to need too many registers.
    ``refusals``: decisions (``roles``, ``split``, ``async_copy``, ``subtile``, ``epilogue_parts``,
    ``epilogue_prefetch``, ``windows``, ``pingpong``) that the lowering of an earlier schedule of
    this kernel found no form for, and that are not to be taken again. ``numbers``: what the launch
    knows of a kernel, where there is a plan. ``reasons``: why a decision was not
    taken, for the passes behind."""

    machine: Machine
    remarks: list[Diagnostic] = field(default_factory=list[Diagnostic])
    relief: int = 0
    refusals: Mapping[str, Refusal] = field(default_factory=dict[str, Refusal])
    numbers: Callable[[Operation], Numbers] | None = None
    reasons: dict[str, str] = field(default_factory=dict[str, str])

    def note(
        self, code: str, message: str, span: Span | None, notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.remarks.append(
            Diagnostic(code, message, span, severity="note", notes=tuple(notes),
                       helps=tuple(helps))
        )  # fmt: skip

    def refuse(
        self, code: str, message: str, span: Span | None, notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.remarks.append(Diagnostic(code, message, span, notes=tuple(notes), helps=tuple(helps)))

    @property
    def refused(self) -> bool:
        return any(d.severity == "error" for d in self.remarks)


Run = Callable[[Program, Context], Program]


@dataclass(frozen=True, slots=True)
class MachinePass:
    """A pass over a schedule for a machine. One that decides changes attributes and nothing else,
    which the runner sees to; what else a pass does is a rewrite."""

    kind: Kind
    run: Run

    @property
    def name(self) -> str:
        return self.run.__name__

    def __call__(self, program: Program, context: Context) -> Program:
        return self.run(program, context)


def decides(run: Run) -> MachinePass:
    """A pass that writes decisions."""
    return MachinePass("decide", run)


def rewrites(run: Run) -> MachinePass:
    """A pass that changes operations or types."""
    return MachinePass("rewrite", run)


def origins_of(kernel: Operation) -> dict[str, str]:
    """Who said what, by the name of the attribute."""
    found = kernel.strings("origins")
    pairs = (str(entry).partition("=") for entry in found)
    return {name: origin for name, _, origin in pairs}


def said_by_user(kernel: Operation, name: str) -> bool:
    return name in kernel.attributes and origins_of(kernel).get(name, USER) == USER


def with_decisions(
    kernel: Operation, decisions: Mapping[str, Attribute], origin: str = COST
) -> Operation:
    """The kernel with these attributes; what the user said stays as it was."""
    attributes, origins = dict(kernel.attributes), origins_of(kernel)
    for name, value in decisions.items():
        if said_by_user(kernel, name) or attributes.get(name) == value:
            continue
        attributes[name] = value
        origins[name] = origin
    attributes["origins"] = tuple(f"{n}={o}" for n, o in sorted(origins.items()))
    return replace(kernel, attributes=attributes)


def decided(kernel: Operation, name: str, value: Attribute) -> Operation:
    """With a value that the code has, whoever said another; that was reported before."""
    return with_decisions(without(kernel, (name,)), {name: value}, LEGALITY)


def without(kernel: Operation, names: Sequence[str]) -> Operation:
    """The kernel without these attributes and who said them."""
    attributes = {n: v for n, v in kernel.attributes.items() if n not in names}
    origins = [f"{n}={o}" for n, o in origins_of(kernel).items() if n not in names]
    return replace(kernel, attributes={**attributes, "origins": tuple(sorted(origins))})


def overruled(
    kernel: Operation, name: str, value: Attribute, context: Context, reason: str
) -> Operation:
    """The kernel with another value than the user said, which is reported with the reason."""
    said = kernel.attributes.get(name)
    text = f"padding={said}" if name == "padding" else f"schedule.{name}({_shown(said)})"
    context.note("T0742", f"`{text}` is not honoured: {reason}", kernel.span)
    attributes, origins = dict(kernel.attributes), origins_of(kernel)
    attributes[name] = value
    origins[name] = LEGALITY
    attributes["origins"] = tuple(f"{n}={o}" for n, o in sorted(origins.items()))
    return replace(kernel, attributes=attributes)


def _shown(value: Attribute | None) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return str(value[0]) if len(value) == 1 else f"({', '.join(map(str, value))})"


def with_kernel(program: Program, kernel: Operation) -> Program:
    return program if kernel is kernel_of(program) else replace(program, operations=(kernel,))


def with_attributes(
    kernel: Operation, decisions: Mapping[Operation, Mapping[str, Attribute]]
) -> Operation:
    """The kernel where these operations inside it have further attributes."""
    by_identity = {_identity(o): more for o, more in decisions.items()}

    def step(operation: Operation) -> Operation | None:
        more = by_identity.get(_identity(operation))
        if more is None:
            return None
        return replace(operation, attributes={**operation.attributes, **more})

    return rewrite_operation(kernel, step) if by_identity else kernel


def _identity(operation: Operation) -> int:
    """What stays of an operation whose inside is rewritten: its results, where it has any."""
    return id(operation.results) if operation.results else id(operation)
