"""Which names the statements of a body assign.

Owns the walk. Must not know values.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.syntax import ast


def targets(target: ast.Expr) -> Iterator[str]:
    """Names that an assignment target binds."""
    match target:
        case ast.Name():
            yield target.id
        case ast.TupleExpr() | ast.ListExpr():
            for item in target.items:
                yield from targets(item)
        case _:
            pass


def _own(statement: ast.Stmt) -> Iterator[str]:
    match statement:
        case ast.Assign() | ast.AnnotatedAssign() | ast.AugmentedAssign() | ast.For():
            yield from targets(statement.target)
        case ast.With(target=target) if target is not None:
            yield from targets(target)
        case ast.FunctionDef():
            yield statement.name
        case ast.Import():
            for item in statement.names:
                yield item.alias or item.name.split(".")[0]
        case ast.FromImport():
            for item in statement.names:
                yield item.alias or item.name
        case _:
            pass


def _inner(statement: ast.Stmt) -> tuple[tuple[ast.Stmt, ...], ...]:
    match statement:
        case ast.If():
            return (statement.body, statement.orelse)
        case ast.For() | ast.While() | ast.With():
            return (statement.body,)
        case _:
            return ()


def assigned(body: tuple[ast.Stmt, ...]) -> Iterator[str]:
    """Names bound anywhere in a body, functions inside it left out; once per binding."""
    pending = list(reversed(body))
    while pending:
        statement = pending.pop()
        yield from _own(statement)
        for inner in _inner(statement):
            pending.extend(reversed(inner))


def assignment_counts(body: tuple[ast.Stmt, ...]) -> dict[str, int]:
    """How often each name is bound in a body."""
    counts: dict[str, int] = {}
    for name in assigned(body):
        counts[name] = counts.get(name, 0) + 1
    return counts


def returns(body: tuple[ast.Stmt, ...]) -> bool:
    """Whether a body has a ``return``, functions inside it left out."""
    pending = list(body)
    while pending:
        statement = pending.pop()
        if isinstance(statement, ast.Return):
            return True
        for inner in _inner(statement):
            pending.extend(inner)
    return False
