"""What the names of one module mean.

Owns ``ModuleScope`` and the lookup of a name or dotted name outside functions. Must not
know statements, types of values or how a module is found (``load`` is given).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.evaluate.builtin_names import MATH_NUMBERS
from tessera_lang.record import dataclass, field
from tessera_lang.sema import builtins
from tessera_lang.sema.side_tables import Builtin, Constant, FunctionSymbol, ModuleSymbol, Symbol
from tessera_lang.source import Span
from tessera_lang.syntax import ast

MAX_CANDIDATES = 1000  # among more names, each look for a near one would take long

ImportNode = ast.Module | ast.Import | ast.FromImport | ast.ImportedName | ast.Attribute


class Importer(Protocol):
    """Finds a module by dotted name; ``node`` is what asks for it."""

    def __call__(self, name: str, node: ImportNode, /) -> ModuleScope | Diagnostic: ...


@dataclass(slots=True, eq=False)
class ModuleScope:
    """Top-level names of one file.

    ``names``: their meaning. ``definitions``: where each was defined. ``modules``: imported
    files by dotted name as written (``std.reduce``). ``diagnostics``: what was wrong with
    the definitions themselves. ``structure``: the generic check of each function, made once.
    ``symbols``: meanings of names in top-level statements and imports.
    """

    path: str
    module: ast.Module
    load: Importer
    names: dict[str, Symbol] = field(default_factory=dict[str, Symbol])
    definitions: dict[str, Span] = field(default_factory=dict[str, Span])
    modules: dict[str, ModuleScope] = field(default_factory=lambda: dict[str, ModuleScope]())
    diagnostics: tuple[Diagnostic, ...] = ()
    structure: dict[ast.FunctionDef, tuple[Diagnostic, ...]] = field(
        default_factory=dict[ast.FunctionDef, tuple[Diagnostic, ...]]
    )
    symbols: dict[ast.Expr, Symbol] = field(default_factory=dict[ast.Expr, Symbol])

    def lookup(self, name: str) -> Symbol | None:
        """A name of this module or of the language."""
        found = self.names.get(name)
        if found is not None:
            return found
        if name in builtins.GROUP_OPERATIONS:
            group = self.scope_named("std.group")
            return None if group is None else group.names.get(name)
        return builtin(name)

    def bare_function(self, name: str) -> Symbol | None:
        """``exp`` in a tile kernel and what it calls is ``op.exp``, where nothing else has the
        name."""
        return Builtin(f"op.{name}") if name in builtins.BARE else None

    def scope_named(self, dotted: str) -> ModuleScope | None:
        """An imported file; ``std.math`` and its like are loaded on first use."""
        if dotted in self.modules:
            return self.modules[dotted]
        if not dotted.startswith("std."):
            return None
        found = self.load(dotted, self.module)
        if isinstance(found, Diagnostic):
            return None
        self.modules[dotted] = found
        return found

    def member(self, module: ModuleSymbol, name: str) -> Symbol | None:
        """``module.name``: a name of an imported file, or of a builtin namespace."""
        dotted = f"{module.name}.{name}"
        if module.path is not None:
            scope = self.scope_named(module.name)
            found = None if scope is None else scope.names.get(name)
            return found or self._imported_below(dotted)
        if module.name == "std" or module.name.startswith("std."):
            scope = self.scope_named(dotted)
            if scope is not None:
                return ModuleSymbol(dotted, scope.path)
            return None
        if module.name in ("math", "op") and name in MATH_NUMBERS:
            return Constant(dotted, MATH_NUMBERS[name], None)
        if name in builtins.MEMBERS.get(module.name, ()):
            return Builtin(dotted)
        if module.name in _IN_LIBRARY:
            scope = self.scope_named(f"std.{module.name}")
            return None if scope is None else scope.names.get(name)
        if module.name in builtins.NAMESPACES_LATER:
            return Builtin(dotted)
        return self._imported_below(dotted)

    def _imported_below(self, dotted: str) -> ModuleSymbol | None:
        """``a.b`` where `import a.b` or `import a.b.c` has named it."""
        if dotted in self.modules:
            return ModuleSymbol(dotted, self.modules[dotted].path)
        below = any(name.startswith(f"{dotted}.") for name in self.modules)
        return ModuleSymbol(dotted, None) if below else None

    def members(self, module: ModuleSymbol) -> tuple[str, ...]:
        """Names that ``module.`` could be followed by."""
        if module.path is not None:
            scope = self.scope_named(module.name)
            return () if scope is None else tuple(scope.names)
        known = builtins.MEMBERS.get(module.name, ())
        known = (*known, *MATH_NUMBERS) if module.name in ("math", "op") else known
        if module.name in _IN_LIBRARY and (scope := self.scope_named(f"std.{module.name}")):
            named = (n for n, s in scope.names.items() if is_public(s) and n[0] != "_")
            return (*known, *named)
        within = f"{module.name}."
        below = [m[len(within) :].partition(".")[0] for m in self.modules if m.startswith(within)]
        return (*known, *dict.fromkeys(below))

    def candidates(self) -> tuple[str, ...]:
        """Names in sight, for suggestions; those of the language only where there are very many."""
        own = self.names if len(self.names) <= MAX_CANDIDATES else ()
        return (*own, *builtins.TOP_LEVEL, *builtins.GROUP_OPERATIONS)


_IN_LIBRARY = ("math", "fast")
"""Namespaces of the language whose functions are written in the language."""


def is_public(symbol: Symbol) -> bool:
    return isinstance(symbol, (FunctionSymbol, Constant))


@cache
def builtin(name: str) -> Symbol | None:
    """A name of the language that needs no import."""
    if name in builtins.NAMESPACES:
        return ModuleSymbol(name, None)
    return Builtin(name) if name in builtins.TOP_LEVEL else None


Scopes = Callable[[str], ModuleScope]
