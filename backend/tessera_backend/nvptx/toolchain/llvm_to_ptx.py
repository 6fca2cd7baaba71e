"""LLVM text to PTX with llvmlite.

Optimised for size of code and memory traffic alone: floating-point semantics are those of
the text, each operation rounded once (the PTX says ``mul.rn`` and ``add.rn``, which ptxas
may not fuse). Must not know Tile IR.
"""

from __future__ import annotations

import functools
from typing import Any

import llvmlite
import llvmlite.binding

from tessera_backend.llvm.fork_safety import forks_wait
from tessera_backend.nvptx.toolchain.ptxas_workarounds import mended
from tessera_lang.record import dataclass
from tessera_lang.target.arch import Architecture

TRIPLE = "nvptx64-nvidia-cuda"
# llvmlite is untyped.
llvm: Any = llvmlite.binding


@dataclass(frozen=True, slots=True)
class Translation:
    """PTX, and the LLVM IR it was made from after optimisation."""

    ptx: str
    llvm: str


def versions() -> tuple[str, ...]:
    """Versions of what decides the PTX of a text."""
    major, minor, patch = llvm.llvm_version_info
    return (f"llvmlite {llvmlite.__version__}", f"llvm {major}.{minor}.{patch}")


def translate(text: str, arch: Architecture, optimize: int = 3) -> Translation:
    """PTX of a module. Raises RuntimeError where LLVM refuses the text: a fault of ours."""
    machine = _machine(arch.name, f"+ptx{arch.ptx}", optimize)
    layout = str(machine.target_data)
    with (
        llvm.create_context() as context,
        llvm.parse_assembly(f'target datalayout = "{layout}"\n{text}', context) as module,
    ):
        module.name = "kernel"
        module.verify()
        _optimise(module, machine, optimize)
        return Translation(_tidy(machine.emit_assembly(module)), str(module))


def _optimise(module: Any, machine: Any, optimize: int) -> None:
    options = llvm.PipelineTuningOptions(speed_level=optimize)
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@functools.lru_cache(maxsize=16)
def _machine(cpu: str, features: str, optimize: int) -> Any:
    _initialise()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=cpu, features=features, opt=optimize)


@functools.lru_cache(maxsize=1)
def _initialise() -> None:
    """llvmlite offers all targets or the host's alone; all of them take milliseconds."""
    forks_wait()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _tidy(ptx: str) -> str:
    """Without LLVM's comment header, so that equal code is equal text; and without what the
    assembler gets wrong."""
    return mended(ptx[ptx.index(".version") :])
