"""The CPU backend: what the compiler and the command line call.

``compile`` is the only function that imports LLVM. Must not know the language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.host_cpu import cpu_identity, host_machine
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.pass_type import Pass
from tessera_lang.target.backend import Artifact, Resources, TargetOptions
from tessera_lang.target.installed import version_of
from tessera_lang.target.launch_plan import LaunchPlan

if TYPE_CHECKING:
    from tessera_backend.cpu.entry import CpuModule

# What code can be made for by name, by machine. Before x86-64-v3 nothing fuses a multiply-add.
PROCESSORS: dict[str, tuple[str, ...]] = {
    "x86_64": (
        "x86-64-v2", "x86-64-v3", "x86-64-v4", "haswell", "skylake", "skylake-avx512",
        "cascadelake", "icelake-server", "sapphirerapids", "znver1", "znver2", "znver3",
        "znver4", "znver5",
    ),
    "aarch64": (
        "generic", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-n2", "neoverse-v1",
        "neoverse-v2", "apple-m1", "apple-m2", "apple-m3",
    ),
}  # fmt: skip


class CpuBackend:
    """See ``tessera_lang.target.backend.Backend``."""

    name = "cpu"

    def available(self) -> str:
        if host_machine() not in PROCESSORS:
            return f"there is no CPU target for {host_machine()}"
        return ""

    def default_arch(self) -> str:
        return "native"

    def identity(self, options: TargetOptions) -> tuple[str, ...]:
        llvm = f"llvmlite {version_of('llvmlite') or '-'}"
        cpu = cpu_identity() if options.arch == "native" else f"{host_machine()} {options.arch}"
        return (llvm, cpu)

    def refusals(
        self, program: Program, plan: LaunchPlan, options: TargetOptions
    ) -> tuple[Diagnostic, ...]:
        """None of a program: memory of the host is what there is."""
        _check_arch(options.arch)
        return ()

    def passes(self, program: Program, options: TargetOptions) -> tuple[Pass, ...]:
        from tessera_backend.cpu.early_returns import NEST_RETURNS
        from tessera_backend.cpu.group_versions import SPLIT_LANES, WRAP_REMAINDERS
        from tessera_backend.cpu.lane_axis_order import ORDER_LANES

        if options.arch_as:
            from tessera_backend.cpu.interpreter.serialized_kernel import has_tiles

            if has_tiles(program):
                return ()
        if options.checked:  # lanes are a row there, in several orders
            return (WRAP_REMAINDERS, NEST_RETURNS)
        return (SPLIT_LANES, ORDER_LANES, WRAP_REMAINDERS, NEST_RETURNS)

    def compile(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Artifact:
        return self.begin(program, plan, options, stages)()

    def begin(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Callable[[], Artifact]:
        """See ``tessera_lang.target.backend.BeginsCode``: LLVM works meanwhile."""
        from tessera_backend.cpu.entry import emit_kernel
        from tessera_backend.cpu.group_plan import Divergent
        from tessera_backend.cpu.llvm_codegen import code_target
        from tessera_backend.llvm.emitter import NotLowered
        from tessera_backend.llvm.fault_reports import reporting_plan

        _check_arch(options.arch)
        if options.arch_as:
            from tessera_backend.cpu.interpreter.serialized_kernel import KIND, encode, has_tiles

            if has_tiles(program):
                kept = dict.fromkeys(stages, "")
                code = encode(program)
                made = Artifact(KIND, code, plan.entry, plan, options, Resources(), kept)
                return lambda: made
        kernel = _kernel_of(program)
        plan = reporting_plan(plan, kernel)
        target = code_target(options.arch)
        form = roots = None
        if options.checked:
            from tessera_backend.cpu.checked.emit import CheckedForm
            from tessera_backend.cpu.checked.shadow_elision import roots_of

            roots = roots_of(kernel, plan)
            form = CheckedForm(kernel, plan, roots)
        try:
            module = emit_kernel(kernel, plan, target, form)
        except NotLowered as missing:
            raise _not_lowered(missing, kernel) from missing
        except Divergent as fault:
            raise _divergent(fault.operation) from fault
        code, texts = _code(module, plan.entry, target, options.optimize, stages)
        needs = target.needs
        resources = Resources(shared_bytes=module.shared_bytes, local_bytes=module.scratch_bytes)
        if form is not None and roots is not None:
            from tessera_backend.cpu.checked.code import KIND, encode, facts_of

            whole = encode(facts_of(kernel, form, roots), code())
            made = Artifact(KIND, whole, plan.entry, plan, options, resources, texts, needs=needs)
            return lambda: made
        return lambda: Artifact(
            "object", code(), plan.entry, plan, options, resources, texts, needs=needs
        )


def _code(
    module: CpuModule, entry: str, target: CodeTarget, level: int, stages: tuple[str, ...]
) -> tuple[Callable[[], bytes], dict[str, str]]:
    """What waits for the object of a module, and the texts of it that are asked for."""
    from tessera_backend.cpu.code_deduplication import compiled_once
    from tessera_backend.cpu.llvm_codegen import compile_text

    if "asm" not in stages and "llvm" not in stages:
        return compiled_once(module, entry, target, level), {}
    made = compile_text(module.text, target, level, stages)
    texts = {"asm": made.assembly, "llvm": made.llvm}
    return lambda: made.code, {name: texts[name] for name in texts if name in stages}


def _kernel_of(program: Program) -> Operation:
    kernels = [op for op in program.operations if op.name == "tile.kernel"]
    if len(kernels) != 1:
        raise ValueError(f"a program of {len(kernels)} kernels was given to a backend")
    return kernels[0]


def _check_arch(arch: str) -> None:
    names = PROCESSORS.get(host_machine(), ())
    if arch == "native" and names:
        return
    if arch in names:
        return
    what = f"`{arch}` is no CPU that code can be made for here"
    listed = ", ".join(names)
    helps = (f"use native, or one of: {listed}",) if listed else ()
    raise TesseraError((Diagnostic("T0891", what, helps=helps),))


def _not_lowered(missing: Exception, kernel: Operation) -> TesseraError:
    operation = getattr(missing, "operation", "an operation")
    dtype = getattr(missing, "dtype", "")
    return TesseraError((
        Diagnostic(
            "T0890", f"this CPU has no `{operation}` on {dtype}", span=kernel.span,
            helps=("run on another processor, or with `--target cuda`",),
        ),
    ))  # fmt: skip


def _divergent(operation: Operation) -> TesseraError:
    return TesseraError((
        Diagnostic(
            "T0893", "not every lane of the group gets to a barrier", span=operation.span,
            helps=("move the barrier out of what differs between lanes",),
        ),
    ))  # fmt: skip


BACKEND = CpuBackend()
