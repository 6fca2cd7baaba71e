"""The local names of a function, by its tree alone, so that a function that does not check
has them too.

Must not know types: they are in the checker's tables, where the function checks.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.tree import names_written, targets


@dataclass(frozen=True, slots=True)
class Variable:
    """A local name, where it comes first, and its annotation if it is written with one."""

    name: str
    kind: Literal["parameter", "compile-time parameter", "size", "loop variable", "variable"]
    span: Span
    annotation: ast.TypeExpr | None = None


def variables_of(function: ast.FunctionDef) -> dict[str, Variable]:
    """Parameters, size names, loop variables and assigned names, in order of first sight."""
    found: dict[str, Variable] = {}

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
        for node, target in targets(statement):
            kind = "loop variable" if isinstance(node, ast.For) else "variable"
            t = node.annotation if isinstance(node, ast.AnnotatedAssign) else None
            for n in names_written(target, elements=False):
                found.setdefault(n.id, Variable(n.id, kind, n.span, t))
    return found
