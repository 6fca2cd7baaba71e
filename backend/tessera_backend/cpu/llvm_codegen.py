"""LLVM for the CPU: text to optimized code to an object. The user of llvmlite here.

Objects are ELF on every system: the project's own loader maps them. Must not know Tile IR.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.features import enabled, known_features
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.llvm.fork_safety import forks_wait
from tessera_lang.record import dataclass

SOME_LOOPS, MANY_LOOPS, TOO_MANY_LOOPS = 40, 150, 600
"""Innermost loops of a module from which on LLVM makes fewer copies of them (a scan of 84 compiles
in half the time and takes a tenth longer), unrolls none, and vectorizes none: its time grows
faster than their number. A module of 485 loops of all kinds took 4.6 s, and takes 2."""
_LABELS = re.compile(r"^(define)|^([\w.$-]+):|label %([\w.$-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Compiled:
    code: bytes
    llvm: str
    assembly: str


class MachineError(Exception):
    """LLVM refused: a fault of ours, or a CPU it does not know."""


@lru_cache(maxsize=1)
def _binding() -> Any:
    import llvmlite.binding as binding

    forks_wait()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    return binding


@lru_cache(maxsize=8)
def code_target(arch: str) -> CodeTarget:
    """The CPU to make code for: ``native`` or an LLVM name. Raises MachineError."""
    binding, machine = _binding(), host_machine()
    triple = f"{machine}-unknown-none-elf"
    if arch == "native":
        cpu = str(binding.get_host_cpu_name())
        features = str(binding.get_host_cpu_features().flatten())
    else:
        cpu, features = arch, ""
    if machine == "aarch64" and sys.platform in ("darwin", "win32"):
        features = ",".join(x for x in (features, "+reserve-x18") if x)
    windows = sys.platform == "win32" and machine == "x86_64"
    needs = enabled(machine, features) if arch == "native" else _features_of(triple, cpu, features)
    has_fma = machine == "aarch64" or "fma" in needs
    convention = "win64cc" if windows else ""
    return CodeTarget(triple, cpu, features, has_fma, convention, not windows, needs)


def _features_of(triple: str, cpu: str, features: str) -> tuple[str, ...]:
    """What LLVM takes a processor of that name to have. LLVM has a table of it and lends it to
    nobody, but a function is put into another only where that one has its features: so each
    feature gets a function, and those that are still called afterwards are lacking."""
    binding, machine = _binding(), host_machine()
    names = known_features(machine)
    base = "x86-64" if machine == "x86_64" else "generic"
    asked = [f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}']
    for at, name in enumerate(names, 1):
        asked += (
            f"define internal i32 @f{at}(i32 %x) #{at} {{\n %y = mul i32 %x, {at}\n ret i32 %y\n}}",
            f"define i32 @g{at}(i32 %x) #0 {{\n  %y = call i32 @f{at}(i32 %x)\n  ret i32 %y\n}}",
            f'attributes #{at} = {{ "target-cpu"="{base}" "target-features"="+{name}" }}',
        )  # fmt: skip
    module = binding.parse_assembly("\n".join(asked), binding.create_context())
    made = binding.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2
    )  # fmt: skip
    _optimize(binding, module, made, 2, 0)
    text = str(module)
    return tuple(name for at, name in enumerate(names, 1) if f"@f{at}(" not in text)


@lru_cache(maxsize=8)
def _target_machine(target: CodeTarget, level: int) -> Any:
    binding = _binding()
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=0 if level < 2 else 2, reloc="pic",
        codemodel="small",
    )  # fmt: skip


def compile_text(text: str, target: CodeTarget, level: int, stages: tuple[str, ...]) -> Compiled:
    """The object of a module, and the texts asked for; from level 2 on with vectors. Raises
    MachineError."""
    binding = _binding()
    try:
        module = binding.parse_assembly(text, binding.create_context())
        module.verify()
    except RuntimeError as error:
        raise MachineError(str(error)) from error
    machine = _target_machine(target, level)
    module.data_layout = str(machine.target_data)
    _optimize(binding, module, machine, level, count_loops(text) if level > 1 else 0)
    llvm = str(module) if "llvm" in stages else ""
    assembly = str(machine.emit_assembly(module)) if "asm" in stages else ""
    return Compiled(bytes(machine.emit_object(module)), llvm, assembly)


def count_loops(text: str) -> int:
    """How many branches of a module lead back over no other such branch: its innermost loops."""
    count, number, last = 0, 0, -1
    behind: dict[str, int] = {}
    for begin, label, target in _LABELS.findall(text):
        if begin:
            behind.clear()
        elif label:
            number += 1
            behind[label] = number
        elif behind.get(target, -1) > last:
            count, last = count + 1, number
    return count


def _optimize(binding: Any, module: Any, machine: Any, level: int, loops: int) -> None:
    most = 3 if loops < SOME_LOOPS else 2
    options = binding.create_pipeline_tuning_options(speed_level=min(level, most))
    options.loop_vectorization = level > 1 and loops < TOO_MANY_LOOPS
    options.slp_vectorization = level > 1
    options.loop_unrolling = level > 1 and loops < MANY_LOOPS
    options.loop_interleaving = level > 1 and loops < MANY_LOOPS
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
