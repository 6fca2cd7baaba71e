"""Which open file depends on which, and where a file imports another."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.source import Span
from tessera_lang.syntax import ast


def imports(session: Session, path: str, others: AbstractSet[str]) -> bool:
    """Whether ``path`` imports one of ``others``, directly or not; True where that cannot be
    told."""
    wanted = others - {path}
    if not wanted:
        return False
    try:
        return not wanted.isdisjoint(session.closure(path)) or misses_some(session, path)
    except (TesseraError, RecursionError):
        return True


def misses_some(session: Session, path: str) -> bool:
    """Whether an import finds no file: the other file may be the one that was missing."""
    names = (n for n, _ in _imported(session.parsed(path).module))
    return any(session.imported(path, name) is None for name in names)


def import_of(session: Session, path: str, other: str) -> Span | None:
    """The import in ``path`` that brings ``other`` in, directly or not."""
    try:
        found = [
            (span, target)
            for name, span in _imported(session.parsed(path).module)
            if (target := session.imported(path, name)) is not None
        ]
        for span, target in found:
            if target == other:
                return span
        for span, target in found:
            if other in session.closure(target):
                return span
    except (TesseraError, RecursionError):
        return None
    return None


def _imported(module: ast.Module) -> list[tuple[str, Span]]:
    """The modules that a file names in imports, and where."""
    found: list[tuple[str, Span]] = []
    for statement in module.body:
        if isinstance(statement, ast.FromImport):
            found.append((statement.module, statement.module_span))
        elif isinstance(statement, ast.Import):
            found.extend((n.name, n.span) for n in statement.names)
    return found
