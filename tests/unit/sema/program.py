"""Checks small programs given as text, for the tests of sema."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from tessera_lang import sema
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.sema.module_scope import ImportNode, ModuleScope
from tessera_lang.sema.side_tables import FunctionSymbol, Signature, TypedFunction
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_module


@dataclass
class Program:
    """A checked file: its scope, all diagnostics, and the instances that could be made."""

    file: SourceFile
    scope: ModuleScope
    diagnostics: tuple[Diagnostic, ...]
    instances: dict[str, TypedFunction]
    scopes: dict[str, ModuleScope]

    @property
    def codes(self) -> list[str]:
        return sorted(d.code for d in self.diagnostics)

    def text(self, e: ast.Expr) -> str:
        return self.file.text[e.span.lo : e.span.hi]

    def lines(self, code: str) -> list[int]:
        """1-based lines of the diagnostics with this code."""
        spans = [d.span for d in self.diagnostics if d.code == code]
        return [self.file.position(s.lo)[0] + 1 for s in spans if s is not None]

    def types(self, name: str, text: str) -> list[str]:
        """Types of all expressions of an instance that are written so."""
        table = self.instances[name].types
        return [str(t) for e, t in table.items() if self.text(e) == text]

    def variable(self, function: str, name: str) -> str:
        table = self.instances[function].variables
        return next(str(t) for local, t in table.items() if local.name == name)

    def coerced(self, function: str) -> dict[str, str]:
        return {self.text(e): str(t) for e, t in self.instances[function].coercions.items()}


def check(
    text: str,
    signatures: dict[str, Signature] | None = None,
    modules: dict[str, str] | None = None,
) -> Program:
    """Check a program; functions with full annotations and those with a signature are typed."""
    scopes: dict[str, ModuleScope] = {}

    def load(name: str, node: ImportNode, /) -> ModuleScope | Diagnostic:
        del node
        if name in scopes:
            return scopes[name]
        if modules is None or name not in modules:
            return Diagnostic("T0130", f"there is no module `{name}`")
        scopes[name] = resolve(name, modules[name])[1]
        return scopes[name]

    def resolve(path: str, source: str) -> tuple[SourceFile, ModuleScope]:
        file = SourceFile(path, textwrap.dedent(source).lstrip("\n"))
        parsed = parse_module(file)
        assert parsed.diagnostics == (), parsed.diagnostics
        return file, sema.resolve_module(parsed.module, load)

    file, scope = resolve("main", text)
    scopes["main"] = scope
    found = [*scope.diagnostics, *sema.check_structure(scope)]
    instances: dict[str, TypedFunction] = {}
    for function in scope.module.functions:
        symbol = scope.names.get(function.name)
        if not isinstance(symbol, FunctionSymbol) or symbol.declaration is not function:
            continue
        signature = (signatures or {}).get(function.name)
        if signature is None and any(_is_kernel(d) for d in function.decorators):
            signature = sema.signature_of_annotations(function, scope)
        if signature is None:
            continue
        typed, reports = sema.check_function(symbol, signature, lambda path: scopes[path])
        found.extend(reports)
        if typed is not None:
            instances[function.name] = typed
    return Program(file, scope, sema.unique(tuple(found)), instances, scopes)


def _is_kernel(d: ast.Decorator) -> bool:
    return isinstance(d.value, ast.Name) and d.value.id == "kernel"


def kernel(body: str, parameters: str = "x: f32[n], out: mut f32[n]", clauses: str = "") -> str:
    """A kernel with this body and the lane's place in ``i``."""
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return (
        f"@kernel tile[(128,)] {clauses}\n"
        f"def k({parameters}):\n"
        "    i = group_linear_id() * group_tile_count() + tile_linear_id()\n"
        f"{lines}\n"
    )
