"""Folders that ``tesserac build`` made: reading the manifest and running what it lists.

Imports neither the compiler's front end nor LLVM. Must not know how a folder is written
beyond the manifest's form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.c_interface.choice import specialty
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.kernel import Launcher, new_kernel
from tessera_backend.runtime.missing_variant_help import NothingFits, helps_for
from tessera_backend.runtime.module_interface import KernelInterface, ModuleInterface
from tessera_backend.runtime.signature import Asked, Signature, text
from tessera_backend.runtime.variant_match import not_for, unmet
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import dataclass, replace
from tessera_lang.target.backend import Artifact, Resources, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan

MANIFEST = "manifest.json"
SCHEMA = 7
"""Of the manifest with the plans in it: raised with each change of their fields."""

_SUFFIXES = {"object": ".o", "ptx": ".ptx", "cubin": ".cubin"}


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """One kernel and signature of a folder; ``file`` is a plain name in it.

    ``machine`` is the kind of processor that native code is for, ``host`` the very one where nobody
    says what a processor has, ``then`` are the launches behind the first.
    """

    artifact: Artifact
    file: str
    digest: str
    machine: str = ""
    host: str = ""
    then: tuple[BuiltKernel, ...] = ()


def suffix_of(kind: str) -> str:
    return _SUFFIXES[kind]


def _damaged(directory: Path, what: str) -> TesseraError:
    return error(diagnostic(
        "T0849", f"{directory} cannot be used: {what}",
        helps=("build it again: tesserac build",),
    ))  # fmt: skip


def _of_another_version(directory: Path, value: Any) -> TesseraError:
    """A folder that another Tessera built, and says so."""
    older = int(value["schema"]) < SCHEMA
    by = f", by tessera {value['tessera']}" if isinstance(value.get("tessera"), str) else ""
    return error(diagnostic(
        "T0849",
        f"{directory} was built for {'an older' if older else 'a newer'} runtime{by}: its manifest "
        f"is of version {value['schema']}, and this runtime reads version {SCHEMA}",
        helps=("build it again: tesserac build" if older
               else "update tessera-lang, or build it again: tesserac build",),
    ))  # fmt: skip


def digest_of(kernels: object) -> str:
    """The digest of a manifest's list: a plan that was edited would not fit its code."""
    return hashlib.sha256(json.dumps(kernels, sort_keys=True).encode()).hexdigest()


def read_manifest(directory: Path) -> list[BuiltKernel]:
    """The kernels of a folder, their code not read yet. Raises TesseraError."""
    path = directory / MANIFEST
    try:
        value = json.loads(path.read_bytes())
        if value["schema"] != SCHEMA:
            raise _of_another_version(directory, value)
        if digest_of(value["kernels"]) != value["sha256"]:
            raise _damaged(directory, f"{MANIFEST} is not what was written")
        return [_kernel(item) for item in value["kernels"]]
    except OSError as fault:
        raise _damaged(directory, f"{MANIFEST}: {fault.strerror or fault}") from fault
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise _damaged(directory, f"{MANIFEST} is damaged") from fault


def _kernel(item: Any) -> BuiltKernel:
    options = item["options"]
    made_with = TargetOptions(
        str(options["target"]), str(options["arch"]), str(options["bounds"]),
        int(options["optimize"]),
    )  # fmt: skip
    needs = tuple(str(name) for name in item["needs"])
    first, *then = (_launch(one, made_with, needs) for one in (item, *item["then"]))
    return replace(first, machine=str(item["machine"]), host=str(item["host"]), then=tuple(then))


def _launch(item: Any, options: TargetOptions, needs: tuple[str, ...]) -> BuiltKernel:
    file = str(item["file"])
    if Path(file).name != file or not file.endswith(suffix_of(item["kind"])):
        raise ValueError("a file of a manifest lies in its folder")
    artifact = Artifact(
        str(item["kind"]), b"", str(item["entry"]), LaunchPlan.from_json(item["plan"]), options,
        Resources(*(int(n) for n in item["resources"])), needs=needs,
    )  # fmt: skip
    return BuiltKernel(artifact, file, str(item["sha256"]))


class BuiltProvider:
    """Gives a folder's artifacts to the launcher; the most special one that fits a call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kernels = read_manifest(directory)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted({k.artifact.plan.kernel for k in self.kernels}))

    def kernel(self, name: str, target: str) -> Launcher:
        """The launcher of a kernel."""
        return new_kernel(name, self, target)

    def module(self) -> ModuleInterface:
        """A folder has kernels only: functions need the compiler."""
        return ModuleInterface({name: self.interface(name) for name in self.names()}, {}, {})

    def interface(self, name: str) -> KernelInterface:
        found = [k.artifact.plan for k in self.kernels if k.artifact.plan.kernel == name]
        level = _level(found[0].parameters)
        says = found[0].grid is not None
        open_ = self._open(name)
        every = [
            KernelInterface.of_plan(
                name, plan.parameters, level, says,
                tuple(p for p in plan.brackets if p.name in open_),
            )
            for plan in found
        ]  # fmt: skip
        interface = every[0]
        for other in every[1:]:
            interface = interface.common(other)
        return interface

    def _open(self, name: str) -> tuple[str, ...]:
        """The parameters in brackets that a call says: those but types that its arrays say."""
        plans = [k.artifact.plan for k in self.kernels if k.artifact.plan.kernel == name]
        said: list[str] = []
        for at, bracket in enumerate(plans[0].brackets):
            values = {tuple((p.dtype, p.rank) for p in x.parameters): x.brackets[at].value
                      for x in plans}  # fmt: skip
            decided = all(
                values[tuple((p.dtype, p.rank) for p in x.parameters)] == x.brackets[at].value
                for x in plans
            )
            if bracket.dtype != "dtype" or len(set(values.values())) < 2 or not decided:
                said.append(bracket.name)
        return tuple(said)

    def asked(self, name: str, wanted: Signature) -> Asked:
        """The sizes that the code of a folder was made for."""
        plans = [k.artifact.plan for k in self.kernels if k.artifact.plan.kernel == name]
        needed, whole = (
            tuple(dict.fromkeys(
                (p.name, axis)
                for plan in plans for p in plan.parameters
                for axis, n in enumerate(p.sizes if kind == "sizes" else p.buckets)
                if n is not None
            ))
            for kind in ("sizes", "buckets")
        )  # fmt: skip
        return Asked(needed, whole)

    def settled(self, name: str, wanted: Signature) -> Signature:
        """What a folder holds is found by what is true of a call."""
        return wanted

    def artifact(self, name: str, wanted: Signature, device: int, grid_rank: int = 0) -> Artifact:
        own = [k for k in self.kernels if k.artifact.plan.kernel == name]
        open_ = self._open(name)
        reasons = [(k, _reasons(k, wanted, open_, device, grid_rank)) for k in own]
        fitting = [k for k, why in reasons if not why]
        if not fitting:
            raise self._nothing_fits(name, wanted, open_, device, grid_rank, reasons)
        return self._read(max(fitting, key=lambda k: specialty(k.artifact)))

    def _read(self, kernel: BuiltKernel) -> Artifact:
        try:
            code = (self.directory / kernel.file).read_bytes()
        except OSError as fault:
            raise _damaged(self.directory, f"{kernel.file}: {fault.strerror}") from fault
        if hashlib.sha256(code).hexdigest() != kernel.digest:
            raise _damaged(self.directory, f"{kernel.file} is not what the manifest says")
        a = kernel.artifact
        if a.kind == "object":
            self._look_at(kernel, code)
        then = tuple(self._read(launch) for launch in kernel.then)
        return replace(a, code=code, then=then)

    def _look_at(self, kernel: BuiltKernel, code: bytes) -> None:
        """Whether an object can be loaded, before that is tried: a folder is built again, where
        the cache would be cleared."""
        from tessera_backend.cpu.elf import ElfError, ElfObject
        from tessera_backend.cpu.host_cpu import host_machine

        try:
            entries = ElfObject(code, host_machine()).image().entries
        except ElfError as fault:
            raise _damaged(self.directory, f"{kernel.file}: {fault}") from fault
        if kernel.artifact.entry not in entries:
            raise _damaged(self.directory, f"{kernel.file} has no function {kernel.artifact.entry}")

    def _nothing_fits(
        self, name: str, wanted: Signature, brackets: tuple[str, ...], device: int, grid_rank: int,
        reasons: Sequence[tuple[BuiltKernel, Reasons]],
    ) -> TesseraError:  # fmt: skip
        where = "the CPU" if device == HOST else f"CUDA device {device}"
        grid = f" and a grid of {_axes(grid_rank)}" if grid_rank else ""
        notes = [f"{k.file}: {'; '.join(words for _, words in why)}" for k, why in reasons]
        # What the nearest of them lacks is what to build for.
        nearest, why = min(reasons, key=lambda reason: len(reason[1]))
        plan, options = nearest.artifact.plan, tuple(dict.fromkeys(option for option, _ in why))
        return NothingFits(
            f"{self.directory} has no code of `{name}` for ({text(wanted)}){grid} on {where}",
            notes,
            lambda values: helps_for(options, plan, wanted, brackets, device, grid_rank, values),
        )


Reasons = tuple[tuple[str, str], ...]
"""Why code is not taken: the option of `tesserac build` that it is about, and the words."""


def _reasons(
    k: BuiltKernel, wanted: Signature, brackets: tuple[str, ...], device: int, grid_rank: int
) -> Reasons:
    artifact = k.artifact
    found: list[tuple[str, str]] = []
    where = not_for(artifact.options, artifact.kind, device)
    if where:
        found.append(("--target" if device == HOST else "--arch", where))
    elif device == HOST:
        found += [("--arch", why) for why in _not_for_this_host(k)]
    lacking = unmet(artifact.plan, wanted, brackets)
    found += [("--signature", f"it is for calls in which {x}") for x in lacking]
    axes = artifact.plan.grid_axes
    if grid_rank not in (0, axes):
        found.append(("--grid-axes", f"it is for a grid of {_axes(axes)}"))
    return tuple(found)


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _level(parameters: tuple[ParameterPlan, ...]) -> Literal["lane", "tile"]:
    """Only a tile kernel is told what divides a size."""
    return "tile" if any(p.divisors for p in parameters) else "lane"


def this_host() -> str:
    """A name for this machine's processor and its features."""
    from tessera_backend.cpu.host_cpu import cpu_identity, host_machine

    return f"{host_machine()} {hashlib.sha256(cpu_identity().encode()).hexdigest()[:12]}"


def _not_for_this_host(kernel: BuiltKernel) -> list[str]:
    """Why native code does not run on this processor; nothing where it does."""
    from tessera_backend.cpu.features import missing

    lacking = missing(kernel.machine, kernel.artifact.needs)
    if lacking:
        return [f"it needs {', '.join(lacking)}, which this processor lacks"]
    return [] if kernel.host in ("", this_host()) else ["it is for another processor"]
