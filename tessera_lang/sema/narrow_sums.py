"""Sums that wrap or lose digits because nothing says in what they add up (T0210).

Must not know tiles.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.sema.context import Context, Variable
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, I32, U32, DType


def wide_sum(dtype: DType | None) -> DType | None:
    """The dtype to add up in, of which narrow numbers convert without a word; None for numbers
    that are not narrow."""
    if dtype is None or dtype.bits >= 32 or not (dtype.is_float or dtype.is_integer):
        return None
    return F32 if dtype.is_float else I32 if dtype.is_signed else U32


def adds_to_itself(target: ast.Name, value: ast.Expr | None) -> bool:
    """Whether an assignment is ``a = a + ...``."""
    if not isinstance(value, ast.Binary):
        return False
    left: ast.Expr = value
    while isinstance(left, ast.Binary):
        if left.operator not in ("+", "-", "*"):
            return False
        left = left.left
    return isinstance(left, ast.Name) and left.id == target.id


def warn_narrow(c: Context, v: Variable) -> None:
    """An open accumulator became a number narrower than 32 bits."""
    dtype = v.cell.root().dtype if v.cell is not None else None
    wide = wide_sum(dtype)
    if wide is None or v.accumulates is None or v.literal is None:
        return
    end = Span(v.literal.anchor, v.literal.end, v.literal.end)
    c.report(
        "T0210", f"`{v.local.name}` adds up in `{dtype}`", v.literal,
        "a literal starts it, and it takes the type it meets",
        helps=(f"write `{v.local.name}: {wide} = ...` to add up in {wide}",),
        fixes=(Fix(f"add up in {wide}", (Edit(end, f": {wide}"),)),),
        warning=True,
    )  # fmt: skip
