"""One file as the features see it: text, tree, meanings and types, found by offset.

Owns the lookup of what stands at an offset. Must not know LSP. Every answer is best effort:
a damaged file has a tree with holes, and a function that does not check has no types.
"""

from __future__ import annotations

from functools import cached_property
from typing import cast

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.driver.session import Session
from tessera_lang.driver.signatures import BadSignature
from tessera_lang.record import dataclass, field
from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import ModuleSymbol, Symbol, TypedFunction
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast
from tessera_lang.types.type import Type
from tessera_lsp.ide.tree import Node, descend, dotted_name
from tessera_lsp.ide.variables import Variable, variables_of


@dataclass(slots=True)
class Memory:
    """What features keep about the functions of one file from request to request. An edit
    leaves the trees of all functions but one as they were."""

    variables: dict[ast.FunctionDef, dict[str, Variable]] = field(
        default_factory=dict[ast.FunctionDef, dict[str, Variable]]
    )
    tokens: dict[ast.Stmt, object] = field(default_factory=dict[ast.Stmt, object])

    def keep_only(self, module: ast.Module) -> None:
        """Forget trees that are gone."""
        now = set(module.body)
        self.variables = {f: v for f, v in self.variables.items() if f in now}
        self.tokens = {f: v for f, v in self.tokens.items() if f in now}


class Document:
    """A file of a session as it is now; made anew for every request."""

    def __init__(self, session: Session, path: str, memory: Memory | None = None) -> None:
        self.session = session
        self.path = path
        self.memory = memory or Memory()
        self._symbols: dict[tuple[str, ...], Symbol | None] = {}

    @cached_property
    def file(self) -> SourceFile:
        return self.session.source(self.path)

    @cached_property
    def module(self) -> ast.Module:
        return self.session.parsed(self.path).module

    @cached_property
    def scope(self) -> ModuleScope:
        return self.session.scope(self.path)

    @cached_property
    def instances(self) -> dict[ast.FunctionDef, list[TypedFunction]]:
        """Checked instances by function. A file too damaged to check has none."""
        found: dict[ast.FunctionDef, list[TypedFunction]] = {}
        try:
            for typed in self.session.typed(self.path):
                found.setdefault(typed.declaration, []).append(typed)
        except (TesseraError, BadSignature, InternalFault, RecursionError):
            return {}
        return found

    def instances_of(self, function: ast.FunctionDef | None) -> list[TypedFunction]:
        return self.instances.get(function, []) if function is not None else []

    def function_at(self, offset: int) -> ast.FunctionDef | None:
        """The function around an offset; an indented line behind a function still is in it."""
        for node in descend(self.module, offset):
            if isinstance(node, ast.FunctionDef):
                return node
        line, column = self.file.position(offset)
        if not self.file.line_text(line)[:column].startswith((" ", "\t")):
            return None
        before = [f for f in self.module.functions if f.span.lo < offset]
        return before[-1] if before else None

    def variables(self, function: ast.FunctionDef | None) -> dict[str, Variable]:
        """The local names of a function."""
        if function is None:
            return {}
        found = self.memory.variables.get(function)
        if found is None:
            self.memory.keep_only(self.module)
            found = self.memory.variables[function] = variables_of(function)
        return found

    def variable(self, node: Node, function: ast.FunctionDef | None) -> Variable | None:
        return self.variables(function).get(node.id) if isinstance(node, ast.Name) else None

    def symbol(self, node: Node, function: ast.FunctionDef | None) -> Symbol | None:
        """What a name or dotted name means outside of its function's locals."""
        names = dotted_name(node)
        if names is None or names[0] in self.variables(function):
            return None
        return self.resolve(names)

    def resolve(self, names: tuple[str, ...]) -> Symbol | None:
        """What a dotted name means outside of functions."""
        if names not in self._symbols:
            symbol = self.scope.lookup(names[0])
            for name in names[1:]:
                symbol = (
                    self.scope.member(symbol, name) if isinstance(symbol, ModuleSymbol) else None
                )
            self._symbols[names] = symbol
        return self._symbols[names]

    def module_scope(self, dotted: str) -> ModuleScope | None:
        """The names of a module, imported or not yet."""
        found = self.scope.scope_named(dotted)
        if found is None:
            path = self.session.imported(self.path, dotted)
            try:
                found = self.session.scope(path) if path is not None else None
            except (TesseraError, RecursionError):
                return None
        return found

    def type_of(self, node: Node, function: ast.FunctionDef | None) -> Type | None:
        """The type of an expression in the first instance that has one."""
        for instance in self.instances_of(function):
            found = instance.types.get(cast("ast.Expr", node))
            if found is not None:
                return found
        return None

    def type_of_variable(self, name: str, function: ast.FunctionDef | None) -> Type | None:
        """The type of a local in the first instance that has one."""
        for instance in self.instances_of(function):
            for local, t in (
                *zip(instance.parameters, instance.parameter_types, strict=False),
                *instance.variables.items(),
            ):
                if local.name == name:
                    return t
        return None
