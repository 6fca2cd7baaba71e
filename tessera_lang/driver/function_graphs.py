"""The graphs of the plain functions of a file, for commands that show them.

Owns which functions those are, and what a signature says of one. Must not know what is in a graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.graph_verification import prepared
from tessera_lang.evaluate.fault import HostFault, fault
from tessera_lang.evaluate.host import Host
from tessera_lang.evaluate.modules import decorator_name
from tessera_lang.evaluate.value import HostFunction
from tessera_lang.ir.core import Program
from tessera_lang.ir.printer import print_program
from tessera_lang.lower.ast_to_graph.function_graph import function_graph
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tessera_lang.lower.graph_to_kernels.report import fusion_text, memory_text, plan_text
from tessera_lang.opt.graph.decompose import decompose
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_module
from tessera_lang.target.machine import Machine

if TYPE_CHECKING:
    from tessera_lang.driver.session import Session


def plain_functions(session: Session, path: str) -> tuple[ast.FunctionDef, ...]:
    """The functions of a file that are neither kernels nor tests."""
    return tuple(
        f for f in session.parsed(path).module.functions
        if not any(decorator_name(d) in ("kernel", "op.kernel", "test") for d in f.decorators)
    )  # fmt: skip


def graph_program(
    session: Session, path: str, function: ast.FunctionDef, signature: str = ""
) -> Program:
    """The graph of a plain function, by its annotations and those of the signature; prepared and
    verified. Raises TesseraError."""
    host = Host(GraphWorld(), session, session.files.spelling(path))
    try:
        found = host.modules.scope(host.path).values[function.name]
        assert isinstance(found, HostFunction)
        program = function_graph(host, found, _annotations(signature, function))
    except HostFault as error:
        raise session.error(error.diagnostics) from None
    return prepared(session.runner, program)


def graph_text(
    session: Session, path: str, function: ast.FunctionDef, signature: str, stage: str,
    machine: Machine | None = None,
) -> str:  # fmt: skip
    """The graph of a plain function as text, or the kernels that it becomes, for sizes that are
    numbers: at stage ``fused`` as text; ``fusion`` and ``memory`` say what became of its operators,
    and what is in memory. ``machine``: what loops are judged for. Raises TesseraError."""
    program = graph_program(session, path, function, signature)
    if stage == "graph":
        return print_program(program)
    (made,) = program.operations
    values = (v for o in program.walk() for v in (*o.operands, *o.results))
    names = {str(n) for v in values for n in v.tensor_type.shape if not isinstance(n, int)}
    if names:
        message = (
            f"`{function.name}` is fused for sizes that are numbers, and here there is"
            f" {', '.join(sorted(names))}"
        )
        raise session.error((Diagnostic(
            "T0815", message, function.name_span,
            helps=("say them in the signature: `--signature 'x: f32[4096, 64]'`",),
        ),))  # fmt: skip
    (made,) = prepared(session.runner, Program("graph", (decompose(made),))).operations
    say = {"fused": plan_text, "fusion": fusion_text, "memory": memory_text}[stage]
    try:
        plan = plan_of(made, (), machine=machine, budget=session.memory_budget)
    except HostFault as error:
        raise session.error(error.diagnostics) from None
    return say(made, plan)


def _annotations(signature: str, function: ast.FunctionDef) -> dict[str, ast.TypeExpr]:
    """The types that a signature says of the parameters of a function. Raises HostFault."""
    if not signature:
        return {}
    parsed = parse_module(SourceFile("<signature>", f"def signature({signature}):\n    pass\n"))
    functions = parsed.module.functions
    if parsed.diagnostics or len(functions) != 1:
        raise fault("T0815", f"the signature `{signature}` cannot be read", function.name_span,
                    helps=("write it as parameters: `x: f32[n], w: f32[n, k]`",))  # fmt: skip
    own = {p.name for p in function.parameters}
    for p in functions[0].parameters:
        if p.name not in own or p.annotation is None:
            message = f"`{function.name}` has no parameter `{p.name}`"
            raise fault("T0815", message, function.name_span)
    return {p.name: p.annotation for p in functions[0].parameters if p.annotation is not None}
