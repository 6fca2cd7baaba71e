"""The local names of a function, by its tree alone, so that a function that does not check
has them too.

Must not know types: they are in the checker's tables, where the function checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast


@dataclass(frozen=True, slots=True)
class Variable:
    """A local name, where it comes first, and its annotation if it is written with one."""

    name: str
    kind: Literal["parameter", "compile-time parameter", "size", "loop variable", "variable"]
    span: Span
    annotation: ast.TypeExpr | None = None


def variables_of(
    function: ast.FunctionDef, walk: Callable[[object], Iterable[object]]
) -> dict[str, Variable]:
    """Parameters, size names, loop variables and assigned names, in order of first sight."""
    found: dict[str, Variable] = {}

    def target(
        e: ast.Expr, kind: Literal["loop variable", "variable"], t: ast.TypeExpr | None = None
    ) -> None:
        for node in (e, *walk(e)) if isinstance(e, ast.TupleExpr) else (e,):
            if isinstance(node, ast.Name):
                found.setdefault(node.id, Variable(node.id, kind, node.span, t))

    for p in function.brackets:
        name = Variable(p.name, "compile-time parameter", p.name_span, p.annotation)
        found.setdefault(p.name, name)
    for p in function.parameters:
        found.setdefault(p.name, Variable(p.name, "parameter", p.name_span, p.annotation))
    for p in function.parameters:
        for size in (p.annotation.shape or ()) if p.annotation is not None else ():
            if isinstance(size, ast.Name):
                found.setdefault(size.id, Variable(size.id, "size", size.span))
    for statement in function.body:
        for node in (statement, *walk(statement)):
            match node:
                case ast.Assign(target=e) | ast.AugmentedAssign(target=e):
                    target(e, "variable")
                case ast.AnnotatedAssign(target=e, annotation=t):
                    target(e, "variable", t)
                case ast.For(target=e):
                    target(e, "loop variable")
                case ast.With(target=e) if e is not None:
                    target(e, "variable")
                case _:
                    continue
    return found
