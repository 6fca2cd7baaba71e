"""Graphs of plain functions: who verifies them, and what a command shows of them.

Owns that every graph goes through the runner of passes. Must not know what is in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.pipeline import GRAPH
from tessera_lang.ir.core import Program
from tessera_lang.lower.ast_to_graph.derivative import differentiated as by_graph

if TYPE_CHECKING:
    from tessera_lang.evaluate.host import Host
    from tessera_lang.evaluate.value import Derivative
    from tessera_lang.syntax import ast


def differentiated(
    runner: PassRunner, host: Host, derivative: Derivative, values: dict[str, object],
    call: ast.Call, cotangent: object,
) -> object:  # fmt: skip
    """What ``grad(f)`` gives for the parameters of ``f``. Raises HostFault."""
    return by_graph(host, derivative, values, call, cotangent, lambda p: prepared(runner, p))


def prepared(runner: PassRunner, program: Program) -> Program:
    """A graph after its passes, verified after each. A program may make any number of graphs, of
    which nothing is kept but what is to be shown."""
    own = PassRunner(runner.verify_each, tuple(runner.print_after))
    made = own.run(program, GRAPH)
    runner.printed += own.printed
    return made
