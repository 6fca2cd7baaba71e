"""What a backend is to the compiler: a protocol, and discovery by entry point.

The compiler hands over verified Tile IR and a plan and gets an artifact back; it never
imports a backend. Backends register in the entry-point group ``tessera.backends``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.ir.pass_type import Pass
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.installed import entry_points
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.ptx_merge import joined


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What code is made for and how. All of it is part of a cache key.

    ``arch``: ``sm_80`` ... for cuda, ``native`` or an LLVM CPU name for cpu.
    ``bounds``: ``guard`` or ``off``. ``optimize``: 0 or 3; the project's own tests also take 1,
    which for the CPU is code that is made in little time. ``arch_as``: on the CPU the architecture
    whose code of tile kernels is run there, operation by operation; empty for none.
    ``checked``: on the CPU every access of lanes is looked at.
    """

    target: str
    arch: str = "native"
    bounds: str = "guard"
    optimize: int = 3
    arch_as: str = ""
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """What the tools or the driver report of the compiled code; -1 = not known."""

    registers: int = -1
    spill_bytes: int = -1
    shared_bytes: int = -1
    local_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiled code of one kernel and signature.

    ``kind``: ``object`` (ELF, CPU), ``tile`` (Tile IR, CPU), ``ptx`` or ``cubin``. ``texts``:
    stages asked for by name (``llvm``, ``asm``, ``ptx``, ``sass``). ``diagnostics``: warnings of
    the tools. ``then``: the code of the launches that follow this one in each call. ``needs``: the
    instructions that a CPU must have, by LLVM's names, for it to run.
    """

    kind: str
    code: bytes
    entry: str
    plan: LaunchPlan
    options: TargetOptions
    resources: Resources = Resources()
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    diagnostics: tuple[Diagnostic, ...] = ()
    then: tuple[Artifact, ...] = ()
    needs: tuple[str, ...] = ()


LINES = "lines"
"""A stage without a text of its own: that of PTX says which place of the program code is of. Its
``.loc`` have the offset of the place, and 1, for a line."""


def join_texts(stage: str, texts: Sequence[str]) -> str:
    """The texts of several kernels at a stage as one that its tool reads."""
    return joined(texts) if stage == "ptx" else "\n".join(texts)


def one_call(launches: Sequence[Artifact]) -> Artifact:
    """The launches of a call, in order: the first, with the texts and warnings of all."""
    first, *then = launches
    if not then:
        return first
    texts = {stage: join_texts(stage, [a.texts[stage] for a in launches]) for stage in first.texts}
    said = dict.fromkeys(d for a in launches for d in a.diagnostics)
    return replace(first, then=tuple(then), texts=texts, diagnostics=tuple(said))


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device of a target, as ``tesserac devices`` shows it; -1 = not known."""

    target: str
    ordinal: int
    name: str
    arch: str
    memory_bytes: int = -1
    units: int = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of ``tesserac doctor``: what was looked for, what is there, what to do."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


class Surveyor(Protocol):
    """What a backend may offer beside ``Backend``: its devices and the state of its tools."""

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Devices that kernels can run on; empty where there are none. Never raises."""
        ...

    def diagnose(self) -> tuple[Finding, ...]:
        """What works and what does not, each failure with its remedy. Never raises."""
        ...


class Passing(Protocol):
    """What a backend may offer beside ``Backend``: passes of its own."""

    def passes(self, program: Program, options: TargetOptions) -> tuple[Pass, ...]:
        """Passes that ``program`` goes through before ``compile`` is given it. May not import
        LLVM."""
        ...


def passes_of(backend: Backend, program: Program, options: TargetOptions) -> tuple[Pass, ...]:
    """The passes of a backend, none where it has none."""
    given = getattr(backend, "passes", None)
    return cast("Passing", backend).passes(program, options) if given is not None else ()


class Backend(Protocol):
    """One target. ``compile`` may import LLVM; ``identity`` and ``available`` may not."""

    name: str

    def available(self) -> str:
        """Empty where kernels can run here, else the reason why not, in the user's words."""
        ...

    def default_arch(self) -> str:
        """The architecture to compile for where none is named."""
        ...

    def identity(self, options: TargetOptions) -> tuple[str, ...]:
        """Versions that take part in a cache key (llvmlite, ptxas, driver ...)."""
        ...

    def refusals(
        self, program: Program, plan: LaunchPlan, options: TargetOptions
    ) -> tuple[Diagnostic, ...]:
        """What the target does not take of a program: what ``compile`` refuses it for, found
        without making code. May not import LLVM."""
        ...

    def compile(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Artifact:
        """Code for the one kernel of ``program``; ``stages`` are texts to keep.

        Raises TesseraError with diagnostics for what the user can mend.
        """
        ...


@runtime_checkable
class BeginsCode(Protocol):
    """What a backend is too whose code another program, or thread, finishes."""

    def begin(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Callable[[], Artifact]:
        """As ``compile``, which gives what this waits for. Both raise as it does."""
        ...


def backend_names() -> tuple[str, ...]:
    """Names of the installed backends."""
    return tuple(sorted({e.name for e in entry_points("tessera.backends")}))


def backend_named(name: str) -> Backend:
    """The backend of that name. Raises KeyError where none is installed."""
    for entry in entry_points("tessera.backends"):
        if entry.name == name:
            backend: Backend = entry.load()
            return backend
    raise KeyError(name)
