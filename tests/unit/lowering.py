"""For tests: source text to Tile IR of its last kernel, for its annotated signature."""

from __future__ import annotations

from typing import TypeAlias

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.pipeline import TILE
from tessera_lang.ir.core import Program
from tessera_lang.ir.verify import verify
from tessera_lang.lower import lower_kernel
from tessera_lang.sema import check_function, resolve_module, signature_of_annotations
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import FunctionSymbol, Signature
from tessera_lang.source import SourceFile
from tessera_lang.syntax import parse_module
from tessera_lang.target.launch_plan import LaunchPlan

Lowered: TypeAlias = tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]


def lower_source(text: str, signature: Signature | None = None) -> Lowered:
    """The last function of ``text``, lowered and verified."""
    source = SourceFile("case.tessera", text)
    parsed = parse_module(source)
    assert not parsed.diagnostics, parsed.diagnostics

    def no_imports(name: str, node: object) -> ModuleScope | Diagnostic:
        return Diagnostic("T0101", f"no module {name}")

    scope = resolve_module(parsed.module, no_imports)
    declaration = parsed.module.functions[-1]
    if signature is None:
        signature = signature_of_annotations(declaration, scope)
    assert signature is not None
    symbol = FunctionSymbol(declaration, source.path)
    typed, reports = check_function(symbol, signature, lambda path: scope)
    assert typed is not None, reports
    program, plan, diagnostics = lower_kernel(typed, {source.path: source})
    if not any(d.severity == "error" for d in diagnostics):
        verify(program)
    return program, plan, diagnostics


def optimized(text: str, signature: Signature | None = None) -> Program:
    """The same after all Tile passes, verified after each."""
    program, _, diagnostics = lower_source(text, signature)
    assert not any(d.severity == "error" for d in diagnostics), diagnostics
    for step in TILE:
        program = verify(step.run(program))
    return program
