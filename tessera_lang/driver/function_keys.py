"""What the meaning of a function depends on, as a value that can be compared.

Owns the key under which a checked function may be kept: its tree, and what every name in it
means, through the functions it calls. Must not know how anything is checked.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.sema.module_scope import ModuleScope
from tessera_lang.sema.side_tables import Builtin, Constant, FunctionSymbol, ModuleSymbol, Symbol
from tessera_lang.syntax import ast

Key = tuple[object, ...]
_AST = ast.__name__


def names_in(node: object) -> tuple[str, ...]:
    """Every name that occurs in a tree, sorted."""
    found: set[str] = set()
    pending: list[object] = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, tuple):
            pending.extend(item)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(item, ast.Name):
            found.add(item.id)
        elif type(item).__module__ == _AST:
            pending.extend(getattr(item, slot) for slot in type(item).__slots__)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]  # fmt: skip
    return tuple(sorted(found))


def _bound_in(function: ast.FunctionDef) -> frozenset[str]:
    """The names that a function gives a meaning itself: parameters, sizes, targets."""
    found: set[str] = set()
    pending: list[object] = [function]
    while pending:
        item = pending.pop()
        match item:
            case tuple():
                pending.extend(item)  # pyright: ignore[reportUnknownArgumentType]
                continue
            case ast.Parameter(name=name, annotation=annotation):
                found.add(name)
                found.update(names_in(annotation.shape if annotation is not None else ()))
            case (
                ast.Assign(target=target)
                | ast.AnnotatedAssign(target=target)
                | ast.For(target=target)
                | ast.With(target=target)
                | ast.Comprehension(target=target)
            ):
                found.update(names_in(target))
            case _:
                pass
        if type(item).__module__ == _AST:
            pending.extend(getattr(item, slot) for slot in type(item).__slots__)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]  # fmt: skip
    return frozenset(found)


class Environment:
    """Makes keys; the names of a tree are collected once."""

    def __init__(self, scope_of: Callable[[str], ModuleScope]) -> None:
        self._scope_of = scope_of
        self._names: dict[ast.FunctionDef, tuple[str, ...]] = {}
        self._bound: dict[ast.FunctionDef, frozenset[str]] = {}

    def key(self, function: ast.FunctionDef, scope: ModuleScope) -> Key:
        """What the names of ``function`` mean in ``scope``, and those of the functions that it
        calls: each of them once, however many ways lead to it."""
        found: list[object] = []
        seen = {function}
        pending = [(function, scope)]
        while pending:
            called, where = pending.pop()
            for name in self._names_of(called):
                symbol = where.names.get(name)
                found.append(self._meaning(name, symbol))
                if symbol is None and self._is_unknown(called, name, where):
                    found.append(frozenset(where.names))  # of which one may have been meant
                if isinstance(symbol, FunctionSymbol) and symbol.declaration not in seen:
                    seen.add(symbol.declaration)
                    own = symbol.module == where.path
                    inner = where if own else self._scope_of(symbol.module)
                    pending.append((symbol.declaration, inner))
        return tuple(found)

    def keep_only(self, functions: set[ast.FunctionDef]) -> None:
        """Forget trees that are gone."""
        self._names = {f: names for f, names in self._names.items() if f in functions}
        self._bound = {f: names for f, names in self._bound.items() if f in functions}

    def _is_unknown(self, function: ast.FunctionDef, name: str, scope: ModuleScope) -> bool:
        """Whether nothing gives a name a meaning."""
        bound = self._bound.get(function)
        if bound is None:
            bound = self._bound[function] = _bound_in(function)
        known = scope.lookup(name) or scope.bare_function(name)
        return name not in bound and known is None

    def _names_of(self, function: ast.FunctionDef) -> tuple[str, ...]:
        names = self._names.get(function)
        if names is None:
            names = self._names[function] = names_in(function)
        return names

    def _meaning(self, name: str, symbol: Symbol | None) -> object:
        match symbol:
            case FunctionSymbol():
                return symbol.declaration
            case Constant():
                return (name, type(symbol.value), symbol.value)
            case ModuleSymbol():
                at = symbol.path
                return (symbol.name, None if at is None else self._scope_of(at))
            case Builtin():
                return symbol
            case None:
                return None
            case _:
                return (name, type(symbol))
