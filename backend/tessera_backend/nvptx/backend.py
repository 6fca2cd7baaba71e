"""The CUDA backend: what the compiler and the command line call.

``compile`` is the only function that imports LLVM. Must not know the language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tessera_backend.device import driver
from tessera_backend.llvm.background import begin
from tessera_backend.nvptx.toolchain import doctor
from tessera_backend.nvptx.toolchain.ptxas import Assembly, assemble, find_ptxas
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.tile.shared_allocation import check_shared_budget
from tessera_lang.record import replace
from tessera_lang.target.arch import OLDEST, Architecture, architecture_named
from tessera_lang.target.backend import (
    LINES,
    Artifact,
    DeviceInfo,
    Finding,
    Resources,
    TargetOptions,
)
from tessera_lang.target.installed import version_of
from tessera_lang.target.launch_plan import LaunchPlan

if TYPE_CHECKING:
    from tessera_backend.nvptx.kernel import KernelText
    from tessera_backend.nvptx.toolchain.llvm_to_ptx import Translation

# Code is made for this where no device is there to ask.
FALLBACK_ARCH = OLDEST.name


class CudaBackend:
    """See ``tessera_lang.target.backend.Backend`` and ``Surveyor``."""

    name = "cuda"

    def available(self) -> str:
        try:
            self.arch_of_device(0)
        except TesseraError as error:
            return "; ".join(d.message for d in error.diagnostics)
        return ""

    def default_arch(self) -> str:
        """That of the first device; code for another device is asked for by its own."""
        try:
            return self.arch_of_device(0)
        except TesseraError:
            return FALLBACK_ARCH

    def arch_of_device(self, ordinal: int) -> str:
        """What to compile for where a launch is on that device: its architecture, or the model of
        it that the device is."""
        return doctor.arch_of(driver.device(ordinal))

    def identity(self, options: TargetOptions) -> tuple[str, ...]:
        tool = find_ptxas()
        if tool is not None:
            return (*_llvm_identity(), f"ptxas {tool.version}")
        return (*_llvm_identity(), f"driver {_driver_version()}")

    def refusals(
        self, program: Program, plan: LaunchPlan, options: TargetOptions
    ) -> tuple[Diagnostic, ...]:
        """Shared memory that the architecture does not have."""
        from tessera_backend.nvptx.hopper import rules

        operation = _kernel_of(program)
        arch = rules.architecture_for(operation, self._architecture(options))
        return check_shared_budget(operation, arch.shared_limit, arch.name)

    def compile(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Artifact:
        return self.begin(program, plan, options, stages)()

    def begin(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Callable[[], Artifact]:
        """See ``tessera_lang.target.backend.BeginsCode``: ptxas runs meanwhile."""
        from tessera_backend.llvm.emitter import NotLowered
        from tessera_backend.llvm.fault_reports import reporting_plan
        from tessera_backend.nvptx.hopper import rules
        from tessera_backend.nvptx.kernel import emit_kernel
        from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate

        operation = _kernel_of(program)
        arch = rules.architecture_for(operation, self._architecture(options))
        options = replace(options, arch=arch.name)
        refused = self.refusals(program, plan, options)
        if refused:
            raise TesseraError(refused)
        plan = reporting_plan(plan, operation)
        try:
            kernel = emit_kernel(operation, plan, arch, lines=LINES in stages)
        except NotLowered as missing:
            raise _not_lowered(missing.operation, missing.dtype, operation) from missing
        first = translate(kernel.text, arch, options.optimize)
        lines = LINES in stages
        waiting = begin(lambda: _assemble(first.ptx, arch, options.optimize, lines))
        return lambda: self._finished(operation, plan, options, stages, kernel, first, waiting())

    def _finished(
        self, operation: Operation, plan: LaunchPlan, options: TargetOptions,
        stages: tuple[str, ...], kernel: KernelText, translation: Translation, assembly: Assembly,
    ) -> Artifact:  # fmt: skip
        from tessera_backend.nvptx.hopper import rules
        from tessera_backend.nvptx.kernel import emit_kernel
        from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate

        arch = rules.architecture_for(operation, self._architecture(options))
        if kernel.turns and assembly.resources.spill_bytes > 0:
            short = emit_kernel(operation, plan, arch, short_turns=True, lines=LINES in stages)
            other = translate(short.text, arch, options.optimize)
            made = _assemble(other.ptx, arch, options.optimize, LINES in stages)
            if made.resources.spill_bytes < assembly.resources.spill_bytes:
                translation, assembly = other, made
        kind = "cubin" if assembly.cubin else "ptx"
        resources = _with_shared(assembly.resources, kernel.shared_bytes)
        ptx = assembly.ptx or translation.ptx
        texts = {"ptx": ptx}
        if "llvm" in stages:
            texts["llvm"] = translation.llvm
        if "sass" in stages:
            texts["sass"] = _sass(assembly.cubin, LINES in stages)
        return Artifact(
            kind, assembly.cubin or ptx.encode("ascii"), kernel.entry, plan, options,
            resources, _ordered(texts), assembly.diagnostics,
        )  # fmt: skip

    def devices(self) -> tuple[DeviceInfo, ...]:
        return doctor.describe_devices()

    def diagnose(self) -> tuple[Finding, ...]:
        return doctor.diagnose()

    def _architecture(self, options: TargetOptions) -> Architecture:
        name = self.default_arch() if options.arch == "native" else options.arch
        return architecture_named(name)


def _kernel_of(program: Program) -> Operation:
    kernels = [op for op in program.operations if op.name == "tile.kernel"]
    if len(kernels) != 1:
        raise ValueError(f"a program of {len(kernels)} kernels was given to a backend")
    return kernels[0]


def _assemble(ptx: str, arch: Architecture, optimize: int, lines: bool) -> Assembly:
    tool = find_ptxas()
    if tool is None:
        return Assembly(b"", Resources())
    return assemble(tool, ptx, arch.name, optimize, lines)


def _with_shared(resources: Resources, shared: int) -> Resources:
    """Dynamic shared memory is not in ptxas' report: what we laid out counts."""
    return Resources(
        resources.registers, resources.spill_bytes, max(shared, resources.shared_bytes),
        resources.local_bytes,
    )  # fmt: skip


def _ordered(texts: dict[str, str]) -> Mapping[str, str]:
    return {name: texts[name] for name in sorted(texts)}


def _sass(cubin: bytes, lines: bool) -> str:
    from tessera_backend.nvptx.toolchain.disassembly import disassemble, no_machine_code

    if not cubin:
        raise no_machine_code()
    return disassemble(cubin, lines)


def _not_lowered(what: str, dtype: str, kernel: Operation) -> TesseraError:
    return TesseraError(
        (
            Diagnostic(
                "T0882",
                f"the CUDA target has no `{what}` on {dtype}",
                span=kernel.span,
                helps=("use another type, or run with `--target cpu`",),
            ),
        )
    )


def _llvm_identity() -> tuple[str, ...]:
    return (f"llvmlite {version_of('llvmlite') or '-'}",)


def _driver_version() -> str:
    try:
        return str(driver.driver().version)
    except TesseraError:
        return "-"


BACKEND = CudaBackend()
