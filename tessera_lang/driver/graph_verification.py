"""Graphs of plain functions: who verifies them.

Owns that every graph goes through the runner of passes. Must not know what is in one.
"""

from __future__ import annotations

from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.pipeline import GRAPH
from tessera_lang.ir.core import Program
from tessera_lang.lower.ast_to_graph.derivative import Graphs


def graphs_of(runner: PassRunner) -> Graphs:
    """What a session makes of graphs, by its runner."""
    return Graphs(lambda program: prepared(runner, program))


def prepared(runner: PassRunner, program: Program) -> Program:
    """A graph after its passes, verified after each. A program may make any number of graphs, of
    which nothing is kept but what is to be shown."""
    own = PassRunner(runner.verify_each, tuple(runner.print_after))
    made = own.run(program, GRAPH)
    runner.printed += own.printed
    return made
