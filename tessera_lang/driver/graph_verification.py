"""Graphs of plain functions: who verifies them.

Owns that every graph goes through the runner of passes. Must not know what is in one.
"""

from __future__ import annotations

from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.pipeline import GRAPH
from tessera_lang.ir.core import Program
from tessera_lang.lower.ast_to_graph.derivative import Graphs
from tessera_lang.target.arch import architecture_named, specific_to
from tessera_lang.target.backend import backend_named
from tessera_lang.target.machine import Machine, machine_of


def graphs_of(runner: PassRunner, budget: int) -> Graphs:
    """What a session makes of graphs, by its runner. ``budget``: see ``Graphs``."""
    return Graphs(lambda program: prepared(runner, program), planned_for, budget=budget)


def planned_for(target: str, arch: str = "") -> Machine | None:
    """The machine by which fused loops are judged: that of a GPU. Raises TesseraError where no such
    architecture is known."""
    if target != "cuda":
        return None
    arch = arch if arch not in ("", "native") else backend_named(target).default_arch()
    return machine_of(specific_to(architecture_named(arch)), arch)


def prepared(runner: PassRunner, program: Program) -> Program:
    """A graph after its passes, verified after each. A program may make any number of graphs, of
    which nothing is kept but what is to be shown."""
    own = PassRunner(runner.verify_each, tuple(runner.print_after))
    made = own.run(program, GRAPH)
    runner.printed += own.printed
    return made
