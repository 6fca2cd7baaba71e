"""What to write where a value does not go as it is: a conversion, and where it stands.

Owns the helps and fixes of conversions. Must not know which types mix.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Edit, Fix
from tessera_lang.sema.context import Context
from tessera_lang.sema.expression_text import is_simple, source_of
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, I32, I64, DType, integer_range

Advice = tuple[tuple[str, ...], tuple[Fix, ...]]


def cast_fix(e: ast.Expr, dtype: DType) -> Fix:
    """Edits that put ``dtype(...)`` around an expression."""
    return Fix(f"convert with `{dtype}(...)`", _around(e.span, f"{dtype}(", ")"), "unsafe")


def _around(span: Span, before: str, after: str) -> tuple[Edit, Edit]:
    start = Span(span.anchor, span.start, span.start)
    end = Span(span.anchor, span.end, span.end)
    return Edit(start, before), Edit(end, after)


def wider_for(value: object, dtype: DType) -> DType | None:
    """The type in which a literal and a value of ``dtype`` can meet, where it does not fit
    ``dtype``; None where none holds both."""
    if isinstance(value, float):
        return F32 if dtype.is_integer or (dtype.is_float and dtype.bits < 32) else F64
    if not isinstance(value, int) or not dtype.is_integer:
        return None
    low, high = integer_range(dtype)
    for wide in (I32, I64):
        least, most = integer_range(wide)
        if least <= min(low, value) and max(high, value) <= most:
            return wide
    return None


def convert_operand(c: Context, e: ast.Expr, own: DType, dtype: DType) -> Advice:
    """``e``, an operand of type ``own``, has to become a ``dtype`` first.

    The place that an augmented assignment changes cannot stand in a call: there the statement
    is written out, and what comes out is converted back.
    """
    statement = c.places.get(e)
    if statement is None:
        return (f"convert the other operand first: `{dtype}({source_of(e)})`",), (
            cast_fix(e, dtype),
        )
    place = source_of(e)
    value = source_of(statement.value)
    value = value if is_simple(statement.value) else f"({value})"
    text = f"{place} = {own}({dtype}({place}) {statement.operator} {value})"
    helps = (f"write the assignment out, and what becomes of the result: `{text}`",)
    if "..." in place:
        return helps, ()
    simple = is_simple(statement.value)
    before, after = ("", ")") if simple else (" (", "))")
    end = Span(statement.span.anchor, statement.span.end, statement.span.end)
    left = f"= {own}({dtype}({place}) {statement.operator}{before}"
    edits = (Edit(statement.operator_span, left), Edit(end, after))
    return helps, (Fix("write the assignment out, with conversions", edits, "unsafe"),)
