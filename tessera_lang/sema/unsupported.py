"""What cannot stand in lanes, or not yet: one builder for each, used by both checks.

The generic check of a kernel and the check of an instance say the same words, so that
``unique`` keeps one of them. Must not know types.
"""

from __future__ import annotations

from tessera_grammar.array_function_names import LIBRARY_NAMES, NETWORK_NAMES
from tessera_grammar.directives import DIRECTIVES
from tessera_grammar.keywords import MODULE_MEMBERS

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.foreign_names import TILE_FORMS
from tessera_lang.sema import builtins
from tessera_lang.sema.loop_iterable_help import loop_hint
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
        helps, fixes = loop_hint(s, tiles=False)
        message = "a loop in lanes counts over `range(...)`"
        return Diagnostic("T0118", message, s.iterable.span, helps=helps, fixes=fixes)
    if isinstance(s, ast.For) and not isinstance(s.target, ast.Name):
        return Diagnostic("T0118", "a loop over `range` has one variable", s.target.span)
    return None


def tile_statement_problem(s: ast.Stmt) -> Diagnostic | None:
    """Why a statement cannot stand in a tile kernel, if it cannot."""
    if isinstance(s, ast.With):
        if _named(s.context, "schedule", "pipeline") or isinstance(s.context, ast.ErrorExpr):
            return None
        return Diagnostic(
            "T0118", "`with` in a tile kernel enters a pipeline", s.context.span,
            helps=("write `with schedule.pipeline(double_buffer=True):`",),
        )  # fmt: skip
    if type(s) in _HOST_STATEMENTS:
        what, _ = _HOST_STATEMENTS[type(s)]
        at = s.signature_span if isinstance(s, ast.FunctionDef) else s.span
        helps = ("move it to the top level of the file",)
        return Diagnostic("T0118", f"{what} cannot stand in a tile kernel", at, helps=helps)
    if not isinstance(s, ast.For) or isinstance(s.iterable, ast.ErrorExpr):
        return None
    if not is_range(s.iterable) and not _named(s.iterable, "op", "tile_range"):
        helps, fixes = loop_hint(s, tiles=True)
        message = "a loop in a tile kernel counts over `op.tile_range(...)` or `range(...)`"
        return Diagnostic("T0118", message, s.iterable.span, helps=helps, fixes=fixes)
    items = s.target.items if isinstance(s.target, ast.TupleExpr) else (s.target,)
    if not all(isinstance(t, ast.Name) for t in items) or (is_range(s.iterable) and len(items) > 1):
        return Diagnostic("T0118", "a loop has one variable for each axis", s.target.span)
    return None


def _named(e: ast.Expr, module: str, name: str) -> bool:
    """Whether an expression calls ``module.name``, or ``name`` where that was imported."""
    f = e.function if isinstance(e, ast.Call) else None
    if isinstance(f, ast.Name):
        return f.id == name
    return isinstance(f, ast.Attribute) and f.name == name and (
        isinstance(f.value, ast.Name) and f.value.id == module
    )  # fmt: skip


def tile_builtin_problem(name: str, span: Span) -> Diagnostic | None:
    """Why a builtin cannot be used in a tile kernel, if it cannot."""
    if name in builtins.TILE_FUNCTIONS:
        return None
    if name in builtins.LANE_ONLY:
        return Diagnostic(
            "T0607", f"`{name}` belongs to lane kernels", span,
            helps=(_INSTEAD.get(name, "a tile kernel works on tiles, not in lanes"),),
        )  # fmt: skip
    if name.startswith("schedule."):
        close = nearest(name.removeprefix("schedule."), DIRECTIVES)
        return Diagnostic(
            "T0610", f"there is no directive `{name}`", span,
            helps=(f"did you mean `schedule.{close}`?",) if close
            else (f"the directives are {', '.join(DIRECTIVES)}",),
        )  # fmt: skip
    if name == "op.kernel":
        return None
    what = builtins.later(name)
    if what is not None or name.startswith("op."):
        form = TILE_FORMS.get(name.removeprefix("op."))
        return not_built(f"`{name}` in tile kernels", span, *((form,) if form else ()))
    return None


_INSTEAD = {
    "tbarrier": "`op.barrier()` waits for copies; stores and reads are ordered by themselves",
    "tshared.alloc": "write `op.shared(shape, dtype=...)`",
    "tlocal.alloc": "write `op.shared(shape, dtype=...)`",
}


def is_range(e: ast.Expr) -> bool:
    return isinstance(e, ast.Call) and isinstance(e.function, ast.Name) and e.function.id == "range"


def builtin_problem(name: str, span: Span) -> Diagnostic | None:
    """Why a builtin cannot be used in lanes, if it cannot."""
    if name in builtins.LANE_REDUCTIONS:
        return None
    if name.startswith("op.") and name in builtins.TILE_FUNCTIONS:
        return not_built(f"`{name}` in lanes (tile operations)", span, *_instead_of(name))
    what = builtins.later(name)
    if what is not None:
        return not_built(f"`{name}` ({what})", span)
    if name.startswith("op."):
        member = name.removeprefix("op.")
        helps = (TILE_FORMS[member],) if member in LIBRARY_NAMES | NETWORK_NAMES else ()
        return not_built(f"`{name}` in lanes (tile operations)", span, *helps)
    return None


_OF_NUMBERS = {
    "where": "a if condition else b", "clamp": "min(max(x, low), high)", "cast": "x.to(dtype)",
}  # fmt: skip
_ALLOCATIONS = ("shared", "zeros", "ones", "empty", "full")


def _instead_of(name: str) -> tuple[str, ...]:
    """What lanes have where tile kernels have ``name``."""
    member = name.removeprefix("op.")
    if member == "abs":
        return ("write `abs(x)`",)
    if f"math.{member}" in builtins.FUNCTIONS or member in MODULE_MEMBERS["math"]:
        return (f"write `math.{member}(x)`, of one number",)
    if member.removesuffix("_like") in _ALLOCATIONS:
        return ("write `tshared.alloc(shape, dtype)`, or `tlocal.alloc` for each lane's own",)
    if member == "barrier":
        return ("write `tbarrier()`",)
    if member in _OF_NUMBERS:
        return (f"write `{_OF_NUMBERS[member]}`",)
    return ("write a loop over the elements, or a tile kernel, `@op.kernel`",)


def recursion(call: ast.Call, declaration: ast.FunctionDef) -> Diagnostic:
    """A function that calls itself, maybe through others, in lanes."""
    return Diagnostic(
        "T0110", f"`{declaration.name}` calls itself: recursion is not for lanes", call.span,
        labels=(Label(declaration.name_span, "declared here"),), helps=("write a loop",),
    )  # fmt: skip
