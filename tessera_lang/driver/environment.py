"""What the meaning of a function depends on, as a value that can be compared.

Owns the key under which a checked function may be kept: its tree, and what every name in it
means, through the functions it calls. Must not know how anything is checked.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.sema.scope import ModuleScope
from tessera_lang.sema.typed import Builtin, Constant, FunctionSymbol, ModuleSymbol, Symbol
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


class Environment:
    """Makes keys; the names of a tree are collected once."""

    def __init__(self, scope_of: Callable[[str], ModuleScope]) -> None:
        self._scope_of = scope_of
        self._names: dict[ast.FunctionDef, tuple[str, ...]] = {}

    def key(self, function: ast.FunctionDef, scope: ModuleScope) -> Key:
        """What the names of ``function`` mean in ``scope``."""
        return self._key(function, scope, (function,))

    def keep_only(self, functions: set[ast.FunctionDef]) -> None:
        """Forget trees that are gone."""
        self._names = {f: names for f, names in self._names.items() if f in functions}

    def _key(
        self, function: ast.FunctionDef, scope: ModuleScope, active: tuple[object, ...]
    ) -> Key:
        names = self._names.get(function)
        if names is None:
            names = self._names[function] = names_in(function)
        return tuple(self._symbol(name, scope.names.get(name), scope, active) for name in names)

    def _symbol(
        self, name: str, symbol: Symbol | None, scope: ModuleScope, active: tuple[object, ...]
    ) -> object:
        match symbol:
            case FunctionSymbol():
                function = symbol.declaration
                if function in active:
                    return function
                inner = scope if symbol.module == scope.path else self._scope_of(symbol.module)
                return (function, self._key(function, inner, (*active, function)))
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
