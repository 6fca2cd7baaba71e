"""Kernels behind the passes that decide for a machine: what all tests of decisions begin with."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver import pipeline, tile_compilation
from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.pass_type import Pass
from tessera_lang.ir.verify import verify
from tessera_lang.opt.schedule.query.decision_context import Context
from tessera_lang.opt.schedule.query.kernel_facts import kernel_of
from tessera_lang.target.machine import Machine, machine_named
from tests.unit.opt.schedule.programs import Kernel

HOPPER = machine_named("cuda", "sm_90a")


def decide(
    machine: Machine, remarks: list[Diagnostic] | None = None, relief: int = 0
) -> tuple[Pass, ...]:
    """The passes for a machine, what they say in ``remarks``."""
    return pipeline.for_machine(Context(machine, [] if remarks is None else remarks, relief))


class Decided(NamedTuple):
    kernel: Operation
    remarks: list[Diagnostic]


def machine_of(arch: str) -> Machine:
    """Of a GPU where the name is one's, else of the processor."""
    return machine_named("cuda" if arch.startswith("sm_") else "cpu", arch)


def decided(made: Kernel, arch: str = "sm_90a") -> Decided:
    """A built kernel behind the passes alone, verified after each."""
    remarks: list[Diagnostic] = []
    program: Program = made.program
    for one in decide(machine_of(arch), remarks):
        program = verify(one.run(program))
    return Decided(kernel_of(program), remarks)


def pipelined(made: Kernel, machine: Machine = HOPPER) -> ForMachine:
    """A built kernel through the whole pipeline, lowered for the machine."""
    program, _ = tile_compilation.schedule(made.program)
    return tile_compilation.for_machine(program, made.plan, machine)


def from_source(
    text: str, shapes: str | None = None, arch: str = "sm_90a", name: str = "kernel"
) -> ForMachine:
    """A kernel of a text through the whole pipeline, for arguments of such shapes."""
    path = "kernel.tessera"
    session = Session(overlay={path: text})
    wanted = session.signature(path, name, *([] if shapes is None else [shapes]))
    return session.for_machine(path, name, wanted, machine_of(arch))


def around(
    program: Program, name: str, remarks: list[Diagnostic] | None = None, relief: int = 0,
    without: Collection[str] = (),
) -> tuple[Program, Program]:  # fmt: skip
    """A program for Hopper before the pass of that name, and right behind it. ``without``: passes
    that are left out."""
    every = decide(HOPPER, [] if remarks is None else remarks, relief)
    at = next(i for i, p in enumerate(every) if p.name == name)
    scheduled, _ = tile_compilation.schedule(program)
    before = run_passes(scheduled, [p for p in every[:at] if p.name not in without])
    return before, run_passes(before, every[at : at + 1])
