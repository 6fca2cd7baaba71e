"""What cannot stand in lanes, or not yet: one builder for each, used by both checks.

The generic check of a kernel and the check of an instance say the same words, so that
``unique`` keeps one of them. Must not know types.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.sema import builtins
from tessera_lang.source import Span
from tessera_lang.syntax import ast

_HOST_STATEMENTS: dict[type, tuple[str, str]] = {
    ast.With: ("`with`", "there is nothing to enter in lanes"),
    ast.FunctionDef: ("a function inside a function", "move it to the top level of the file"),
    ast.Import: ("an import", "move it to the top level of the file"),
    ast.FromImport: ("an import", "move it to the top level of the file"),
}


def not_built(what: str, span: Span, *helps: str) -> Diagnostic:
    """The language has it, this compiler has it not yet."""
    return Diagnostic("T0114", f"not built yet: {what}", span, helps=helps)


def statement_problem(s: ast.Stmt) -> Diagnostic | None:
    """Why a statement cannot stand in lanes, if it cannot."""
    if type(s) in _HOST_STATEMENTS:
        what, instead = _HOST_STATEMENTS[type(s)]
        at = s.signature_span if isinstance(s, ast.FunctionDef) else s.span
        return Diagnostic("T0118", f"{what} cannot stand in lanes", at, helps=(instead,))
    if isinstance(s, ast.For) and isinstance(s.iterable, ast.ErrorExpr):
        return None
    if isinstance(s, ast.For) and not is_range(s.iterable):
        return Diagnostic(
            "T0118", "a loop in lanes counts over `range(...)`", s.iterable.span,
            helps=("write `for k in range(n):` and index the array with `k`",),
        )  # fmt: skip
    if isinstance(s, ast.For) and not isinstance(s.target, ast.Name):
        return Diagnostic("T0118", "a loop over `range` has one variable", s.target.span)
    return None


def is_range(e: ast.Expr) -> bool:
    return isinstance(e, ast.Call) and isinstance(e.function, ast.Name) and e.function.id == "range"


def builtin_problem(name: str, span: Span) -> Diagnostic | None:
    """Why a builtin cannot be used in lanes, if it cannot."""
    what = builtins.later(name)
    if what is not None:
        return not_built(f"`{name}` ({what})", span)
    if name.startswith("op."):
        return not_built(f"`{name}` in lanes (tile operations)", span)
    if name == "print":
        return not_built("`print` in lanes", span)
    return None


def recursion(call: ast.Call, declaration: ast.FunctionDef) -> Diagnostic:
    """A function that calls itself, maybe through others, in lanes."""
    return Diagnostic(
        "T0110", f"`{declaration.name}` calls itself: recursion is not for lanes", call.span,
        labels=(Label(declaration.name_span, "declared here"),), helps=("write a loop",),
    )  # fmt: skip
