"""Loops that never end once they are entered.

Owns what is plain from the text: a condition in which nothing changes. Must not know types.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.sema.bound_names import expressions, statements, targets
from tessera_lang.syntax import ast

_STILL = (
    ast.Name, ast.IntLit, ast.FloatLit, ast.BoolLit, ast.Unary, ast.Binary, ast.BoolOp, ast.Compare,
)  # fmt: skip
"""Parts of a condition that are worth the same as long as no name in it is assigned."""


def endless_loops(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    """A warning for each ``while`` whose condition nothing changes and that nothing leaves."""
    for s in statements(function.body):
        if isinstance(s, ast.While) and _is_endless(s):
            names = sorted({e.id for e in expressions(s.test) if isinstance(e, ast.Name)})
            shown = " and ".join(f"`{n}`" for n in names)
            yield Diagnostic(
                "T0124", "this loop never ends once it has begun", s.test.span,
                f"nothing in the loop changes {shown}" if names else "this is always true",
                severity="warning", labels=_labels(s),
                helps=(f"change {shown} in the loop, or leave it with `break`" if names
                       else "leave it with `break` or `return`",),
            )  # fmt: skip


def _labels(s: ast.While) -> tuple[Label, ...]:
    return (Label(s.body[-1].span, "the end of the loop"),) if s.body else ()


def _is_endless(s: ast.While) -> bool:
    parts = list(expressions(s.test))
    if not all(isinstance(e, _STILL) for e in parts):
        return False
    if isinstance(s.test, ast.BoolLit) and not s.test.value:
        return False
    names = {e.id for e in parts if isinstance(e, ast.Name)}
    for inner in statements(s.body):
        if isinstance(inner, ast.Return | ast.Assert | ast.ErrorStmt | ast.FunctionDef):
            return False
        if any(isinstance(t, ast.Name) and t.id in names for t in targets(inner)):
            return False
    return not _breaks(s.body)


def _breaks(body: tuple[ast.Stmt, ...]) -> bool:
    """Whether a ``break`` of the loop stands in its body; those of inner loops are theirs."""
    for s in body:
        if isinstance(s, ast.Break):
            return True
        if isinstance(s, ast.If) and (_breaks(s.body) or _breaks(s.orelse)):
            return True
        if isinstance(s, ast.With) and _breaks(s.body):
            return True
    return False
