"""Folders that ``tesserac build`` made: reading the manifest and running what it lists.

Imports neither the compiler's front end nor LLVM. Must not know how a folder is written
beyond the manifest's form.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.interface import KernelInterface, ModuleInterface
from tessera_backend.runtime.kernel import Launcher, new_kernel
from tessera_backend.runtime.report import diagnostic, error
from tessera_backend.runtime.signature import Asked, Signature, text
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch import capability_of, runs_on
from tessera_lang.target.backend import Artifact, Resources, TargetOptions
from tessera_lang.target.plan import LaunchPlan, ParameterPlan

MANIFEST = "manifest.json"
SCHEMA = 5
"""Of the manifest with the plans in it: raised with each change of their fields."""

_SUFFIXES = {"object": ".o", "ptx": ".ptx", "cubin": ".cubin"}


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """One kernel and signature of a folder; ``file`` is a plain name in it.

    ``host`` is the processor that native code is for, ``then`` the launches behind the first.
    """

    artifact: Artifact
    file: str
    digest: str
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
    file = str(item["file"])
    if Path(file).name != file or not file.endswith(suffix_of(item["kind"])):
        raise ValueError("a file of a manifest lies in its folder")
    artifact = Artifact(
        str(item["kind"]), b"", str(item["entry"]), LaunchPlan.from_json(item["plan"]),
        TargetOptions(str(options["target"]), str(options["arch"]), str(options["bounds"]),
                      int(options["optimize"])),
        Resources(*(int(n) for n in item["resources"])),
    )  # fmt: skip
    then = tuple(_kernel(launch) for launch in item["then"])
    return BuiltKernel(artifact, file, str(item["sha256"]), str(item["host"]), then)


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
        interface = KernelInterface.of_plan(name, found[0].parameters, level, says)
        for plan in found[1:]:
            interface = interface.common(KernelInterface.of_plan(name, plan.parameters, level))
        return interface

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
        fitting = [
            k for k in self.kernels
            if k.artifact.plan.kernel == name and _runs_on(k, device)
            and _fits(k.artifact.plan.parameters, wanted)
            and grid_rank in (0, k.artifact.plan.grid_axes)
        ]  # fmt: skip
        if not fitting:
            raise self._nothing_fits(name, wanted, device, grid_rank)
        return self._read(max(fitting, key=lambda k: _facts(k.artifact)))

    def _read(self, kernel: BuiltKernel) -> Artifact:
        try:
            code = (self.directory / kernel.file).read_bytes()
        except OSError as fault:
            raise _damaged(self.directory, f"{kernel.file}: {fault.strerror}") from fault
        if hashlib.sha256(code).hexdigest() != kernel.digest:
            raise _damaged(self.directory, f"{kernel.file} is not what the manifest says")
        a = kernel.artifact
        then = tuple(self._read(launch) for launch in kernel.then)
        return replace(a, code=code, then=then)

    def _nothing_fits(
        self, name: str, wanted: Signature, device: int, grid_rank: int
    ) -> TesseraError:
        there = [
            f"{k.artifact.options.target} {k.host or k.artifact.options.arch}"
            f"{'' if _is_for_this_host(k) else ' (another processor)'}: "
            + ", ".join(_shown(p) for p in k.artifact.plan.parameters)
            + (f", a grid of {_axes(k.artifact.plan.grid_axes)}" if grid_rank else "")
            for k in self.kernels if k.artifact.plan.kernel == name
        ]  # fmt: skip
        where = "the CPU" if device == HOST else f"CUDA device {device}"
        return error(diagnostic(
            "T0849", f"{self.directory} has no code of `{name}` for ({text(wanted)})"
            f"{f' and a grid of {_axes(grid_rank)}' if grid_rank else ''} on {where}",
            notes=("it has " + "; ".join(there),),
            helps=("build it for this call too: tesserac build --signature",
                   *(("--grid-axes says for how many axes of a grid",) if grid_rank else ())),
        ))  # fmt: skip


def _axes(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"


def _shown(p: ParameterPlan) -> str:
    if p.kind != "tensor":
        return p.dtype
    facts = ("" if p.contiguous else " strided") + (" aligned" if p.aligned else "")
    facts += " small" if p.small else ""
    if not p.divisors:
        return f"{p.dtype}[{p.rank}]{facts}"
    sizes = [
        f"{n}" if n is not None else f"{d}k" if d > 1 else "?"
        for n, d in zip(p.sizes, p.divisors, strict=True)
    ]
    return f"{p.dtype}[{', '.join(sizes)}]{facts}"


def _level(parameters: tuple[ParameterPlan, ...]) -> Literal["lane", "tile"]:
    """Only a tile kernel is told what divides a size."""
    return "tile" if any(p.divisors for p in parameters) else "lane"


def _facts(artifact: Artifact) -> tuple[int, tuple[int, int]]:
    """How special the code is: facts it builds on, then the newer architecture."""
    facts = sum(
        p.contiguous + p.aligned + p.small + p.pitches
        + sum(n is not None for n in (*p.sizes, *p.buckets))
        + sum(d.bit_length() for d in p.divisors)
        for p in artifact.plan.parameters
    )  # fmt: skip
    return facts, capability_of(artifact.options.arch)


def _runs_on(kernel: BuiltKernel, device: int) -> bool:
    artifact = kernel.artifact
    if device == HOST:
        return artifact.options.target == "cpu" and _is_for_this_host(kernel)
    if artifact.options.target != "cuda":
        return False
    from tessera_backend.device.driver import device as cuda_device

    capability = cuda_device(device).capability
    return runs_on(artifact.options.arch, capability, artifact.kind == "cubin")


def this_host() -> str:
    """A name for this machine's processor and its features."""
    from tessera_backend.cpu.host_cpu import cpu_identity, host_machine

    return f"{host_machine()} {hashlib.sha256(cpu_identity().encode()).hexdigest()[:12]}"


def _is_for_this_host(kernel: BuiltKernel) -> bool:
    return kernel.host in ("", this_host())


def _fits(parameters: tuple[ParameterPlan, ...], wanted: Signature) -> bool:
    if len(parameters) != len(wanted):
        return False
    return all(_entry_fits(p, e) for p, e in zip(parameters, wanted, strict=True))


def _entry_fits(p: ParameterPlan, entry: tuple[Any, ...]) -> bool:
    match entry:
        case ("t", dtype, rank, contiguous, aligned, small, *facts):
            return (
                p.kind == "tensor" and p.dtype == dtype and p.rank == rank
                and contiguous >= p.contiguous and aligned >= p.aligned and small >= p.small
                and all(_facts_hold(p, f) for f in facts)
            )  # fmt: skip
        case ("s", dtype):
            return p.kind == "scalar" and p.dtype == dtype
        case _:
            return p.kind == "constant" and p.value in (None, entry[2])


def _facts_hold(p: ParameterPlan, facts: tuple[Any, ...]) -> bool:
    """Whether what the code relies on is so in a call; code may rely on none."""
    sizes, _, divisors, unit, pitches, buckets = facts
    return (
        all(a in (None, b) for a, b in zip(p.sizes, sizes, strict=False))
        and all(a in (None, b) for a, b in zip(p.buckets, buckets, strict=False))
        and all(b % a == 0 for a, b in zip(p.divisors, divisors, strict=False))
        # Where no stride is 1 the pitches are those of all axes.
        and (p.unit == unit or p.unit == -1 and not p.pitches) and pitches >= p.pitches
    )  # fmt: skip
