"""Top-level names of a file: functions, imports, constants, variables.

Owns what a module defines. Must not know how a module is found (``Importer``) or what is
inside functions.
"""

from __future__ import annotations

from collections import Counter

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.constant import (
    NotConstant,
    assigned_parts,
    evaluate_constant,
    math_function,
)
from tessera_lang.sema import builtins
from tessera_lang.sema.bound_names import statement_expressions, statements, targets
from tessera_lang.sema.module_scope import Importer, ModuleScope, builtin
from tessera_lang.sema.names import NameChecker
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    FunctionSymbol,
    ModuleSymbol,
    ModuleVariable,
    Symbol,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES, DType


def resolve_module(module: ast.Module, imports: Importer) -> ModuleScope:
    """The scope of a parsed file; faults of its definitions stand in ``diagnostics``."""
    scope = ModuleScope(module.path, module, imports)
    resolver = _Resolver(scope)
    for s in module.body:
        resolver.statement(s)
    scope.diagnostics = tuple(resolver.problems)
    names = NameChecker(scope, "any")  # for the editor: what top-level names mean
    for s in statements(module.body):
        for e in statement_expressions(s):
            names.check(e)
    return scope


class _Resolver:
    def __init__(self, scope: ModuleScope) -> None:
        self._scope = scope
        self.problems: list[Diagnostic] = []
        self._assignments = Counter(
            t.id
            for s in statements(scope.module.body)
            for t in targets(s)
            if isinstance(t, ast.Name)
        )

    def statement(self, s: ast.Stmt) -> None:
        match s:
            case ast.FunctionDef():
                self._define(s.name, FunctionSymbol(s, self._scope.path), s.name_span)
                self._inside(s)
            case ast.Import():
                for imported in s.names:
                    self._import(imported)
            case ast.FromImport():
                self._from_import(s)
            case ast.Assign() | ast.AnnotatedAssign():
                self._assignment(s)
            case ast.ErrorStmt():
                for name in s.names:
                    self._scope.names.setdefault(
                        name.id, ModuleVariable(name.id, name.span, lost=True)
                    )
            case ast.AugmentedAssign():
                pass
            case ast.If() | ast.For() | ast.While() | ast.With():
                for inner in statements((s,)):
                    self._variables(inner)
            case _:
                pass

    def _inside(self, f: ast.FunctionDef) -> None:
        """Imports in a function bind when it runs, and have to be there before."""
        if f.decorators:
            return
        for s in statements(f.body):
            if isinstance(s, ast.FromImport) and s.module not in ("std", "tessera"):
                if s.module not in builtins.NAMESPACES and not s.module.startswith("."):
                    self._load(s.module, s, s.module_span)
            elif isinstance(s, ast.Import):
                for n in s.names:
                    if n.name not in builtins.NAMESPACES:
                        self._load(n.name, n, n.span)

    def _variables(self, s: ast.Stmt) -> None:
        if isinstance(s, ast.FunctionDef):
            self._define(s.name, FunctionSymbol(s, self._scope.path), s.name_span)
        elif isinstance(s, (ast.Import, ast.FromImport)):
            self.statement(s)
        for t in targets(s):
            if isinstance(t, ast.Name):
                self._variable(t)

    def _define(self, name: str, symbol: Symbol, span: Span) -> None:
        first = self._scope.definitions.get(name)
        old = self._scope.names.get(name)
        if first is not None and not (
            isinstance(old, ModuleVariable) and isinstance(symbol, ModuleVariable)
        ):
            self.problems.append(Diagnostic(
                "T0102", f"`{name}` is defined twice", span,
                labels=(Label(first, "first defined here"),), helps=("rename one of them",),
            ))  # fmt: skip
            return
        self._scope.names[name] = symbol
        self._scope.definitions[name] = span

    # --- constants and variables -------------------------------------------------------

    def _assignment(self, s: ast.Assign | ast.AnnotatedAssign) -> None:
        constants: set[str] = set()
        if s.value is not None:
            for target, value in assigned_parts(s.target, s.value):
                if self._constant(target, value):
                    constants.add(target.id)
        for t in targets(s):
            if isinstance(t, ast.Name) and t.id not in constants:
                self._variable(t)

    def _constant(self, target: ast.Name, e: ast.Expr) -> bool:
        """Whether a name that is assigned once has a value known at compile time, which it gets."""
        name = target.id
        if self._assignments[name] != 1 or name in self._scope.definitions:
            return False
        try:
            value = evaluate_constant(e, self._name, self._attribute)
        except NotConstant:
            return False
        if _may_be_constant(value):
            self._define(name, Constant(name, value, target.span), target.span)
        return _may_be_constant(value)

    def _variable(self, target: ast.Name) -> None:
        self._define(target.id, ModuleVariable(target.id, target.span), target.span)

    def _name(self, e: ast.Name) -> object:
        symbol = self._scope.lookup(e.id)
        if isinstance(symbol, Constant):
            return symbol.value
        if isinstance(symbol, Builtin):
            if symbol.name in DTYPES:
                return DTYPES[symbol.name]
            raise LookupError(e.id)
        raise NotConstant(e, f"`{e.id}` is not known at compile time")

    def _attribute(self, e: ast.Attribute) -> object:
        module = self._module_of(e.value)
        if module is not None:
            symbol = self._scope.member(module, e.name)
            if isinstance(symbol, Constant):
                return symbol.value
            if module.name == "math" and (function := math_function(e.name)) is not None:
                return function
        raise LookupError(e.name)

    def _module_of(self, e: ast.Expr) -> ModuleSymbol | None:
        symbol: Symbol | None = None
        if isinstance(e, ast.Name):
            symbol = self._scope.lookup(e.id)
        elif isinstance(e, ast.Attribute) and (outer := self._module_of(e.value)) is not None:
            symbol = self._scope.member(outer, e.name)
        return symbol if isinstance(symbol, ModuleSymbol) else None

    # --- imports -----------------------------------------------------------------------

    def _load(self, name: str, node: ast.Import | ast.FromImport | ast.ImportedName,
              span: Span) -> ModuleScope | None:  # fmt: skip
        found = self._scope.load(name, node)
        if isinstance(found, Diagnostic):
            self.problems.append(found if found.span is not None else _at(found, span))
            return None
        self._scope.modules[name] = found
        return found

    def _import(self, imported: ast.ImportedName) -> None:
        name, bound = imported.name, imported.alias or imported.name.partition(".")[0]
        if name in builtins.NAMESPACES:
            self._define(bound, ModuleSymbol(name, None), imported.span)
            return
        scope = self._load(name, imported, imported.span)
        if scope is None:
            self._scope.names.setdefault(bound, ModuleVariable(bound, imported.span, lost=True))
        elif imported.alias is not None or "." not in name:
            self._define(bound, ModuleSymbol(name, scope.path), imported.span)
        elif bound not in builtins.NAMESPACES and bound not in self._scope.definitions:
            # `import a.b` binds `a`, whose member `b` is the file.
            self._define(bound, ModuleSymbol(bound, None), imported.span)

    def _from_import(self, s: ast.FromImport) -> None:
        if s.module == "tessera":
            for n in s.names:
                self._from_language(n)
            return
        if s.module in builtins.NAMESPACES and s.module not in ("std", "math"):
            for n in s.names:
                self._member(s, n, ModuleSymbol(s.module, None))
            return
        if s.module == "std":
            for n in s.names:
                scope = self._load(f"std.{n.name}", n, n.span)
                if scope is not None:
                    symbol = ModuleSymbol(f"std.{n.name}", scope.path)
                    self._define(n.alias or n.name, symbol, n.span)
                else:
                    self._lost(n)
            return
        if s.module == "math":
            for n in s.names:
                self._member(s, n, ModuleSymbol("math", None))
            return
        if s.module.startswith("."):  # refused where it was parsed
            for n in s.names:
                self._lost(n)
            return
        self._from_file(s)

    def _from_file(self, s: ast.FromImport) -> None:
        """Names of a file, or files of a folder: ``from a import b`` finds ``a.b`` too."""
        found = self._scope.load(s.module, s)
        missing: Diagnostic | None = None
        if isinstance(found, ModuleScope):
            self._scope.modules[s.module] = found
        for n in s.names:
            if isinstance(found, ModuleScope) and n.name in found.names:
                self._member(s, n, ModuleSymbol(s.module, found.path))
                continue
            name = f"{s.module}.{n.name}"
            inner = self._scope.load(name, n)
            if isinstance(inner, ModuleScope):
                self._scope.modules[name] = inner
                self._define(n.alias or n.name, ModuleSymbol(name, inner.path), n.span)
            elif inner.code != "T0130":
                self.problems.append(inner)
                self._lost(n)
            elif isinstance(found, ModuleScope):
                self._member(s, n, ModuleSymbol(s.module, found.path))
            else:
                missing = found
                self._lost(n)
        if missing is not None:
            self.problems.append(missing if missing.span else _at(missing, s.module_span))

    def _lost(self, n: ast.ImportedName) -> None:
        bound = n.alias or n.name
        self._scope.names.setdefault(bound, ModuleVariable(bound, n.span, lost=True))

    def _from_language(self, n: ast.ImportedName) -> None:
        symbol = builtin(n.name)
        if symbol is None:
            close = nearest(n.name, builtins.TOP_LEVEL)
            self.problems.append(Diagnostic(
                "T0104", f"the language has no `{n.name}`", n.span,
                helps=(f"did you mean `{close}`?",) if close else (),
            ))  # fmt: skip
            self._lost(n)
            return
        self._define(n.alias or n.name, symbol, n.span)

    def _member(self, s: ast.FromImport, n: ast.ImportedName, module: ModuleSymbol) -> None:
        symbol = self._scope.member(module, n.name)
        if symbol is None:
            close = nearest(n.name, self._scope.members(module))
            self.problems.append(Diagnostic(
                "T0104", f"`{s.module}` has no `{n.name}`", n.span,
                helps=(f"did you mean `{close}`?",) if close else (),
            ))  # fmt: skip
            self._lost(n)
            return
        self._define(n.alias or n.name, symbol, n.span)


def _may_be_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_may_be_constant(v) for v in value)  # type: ignore[misc]
    return isinstance(value, (int, float, bool, str, DType))


def _at(d: Diagnostic, span: Span) -> Diagnostic:
    return Diagnostic(d.code, d.message, span, d.label, d.severity, d.labels, d.notes, d.helps)
