"""What to write where a value does not go as it is: a conversion, and where it stands.

Owns the helps and fixes of conversions. Must not know which types mix.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Edit, Fix
from tessera_lang.sema.context import Context
from tessera_lang.sema.expression_text import is_simple, source_of
from tessera_lang.sema.float_dtypes import float_alone
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, I32, I64, DType, integer_range, mean_dtype, widens_to
from tessera_lang.types.type import Scalar, Tensor, Tile

Advice = tuple[tuple[str, ...], tuple[Fix, ...]]


def cast_fix(e: ast.Expr, dtype: DType) -> Fix:
    """Edits that put ``dtype(...)`` around an expression."""
    return Fix(f"convert with `{dtype}(...)`", _around(e.span, f"{dtype}(", ")"), "unsafe")


def _around(span: Span, before: str, after: str) -> tuple[Edit, Edit]:
    start = Span(span.anchor, span.start, span.start)
    end = Span(span.anchor, span.end, span.end)
    return Edit(start, before), Edit(end, after)


def float_for(c: Context, dtype: DType) -> DType:
    """The floats that integers of ``dtype`` become: those of the other arrays, and where there are
    none f64, as in NumPy, or those of means where a narrower dtype is named."""
    if c.cells.floats == F64:
        return F64
    if c.cells.has_floats:
        return F32
    return F64 if float_alone(c.declaration) == F64 else mean_dtype(dtype)


def float_beside(c: Context, dtype: DType) -> DType | None:
    """The floats that integers of ``dtype`` become by themselves beside a literal with a point and
    in a function of floats; None where a cast has to say so, as these floats have not all of
    them."""
    found = float_for(c, dtype)
    return found if widens_to(dtype, found) else None


def mean_for(c: Context, dtype: DType) -> DType:
    """What means of elements of ``dtype`` are: of integers f64 too where floats are f64."""
    return F64 if not dtype.is_float and c.cells.floats == F64 else mean_dtype(dtype)


def wider_for(c: Context, value: object, dtype: DType) -> DType | None:
    """The type in which a literal and a value of ``dtype`` can meet, where it does not fit
    ``dtype``; None where none holds both."""
    if isinstance(value, float):
        if dtype.is_integer:
            return float_for(c, dtype)
        return F32 if dtype.is_float and dtype.bits < 32 else F64
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
    parts = _operands(c, e, own) if own.is_integer else []
    if statement is None and parts:
        text = _with_casts(e, parts, dtype)
        edits = tuple(edit for x in parts for edit in cast_fix(x, dtype).edits)
        fix = Fix(f"convert with `{dtype}(...)`", edits, "unsafe")
        return (f"convert before `{own}` would wrap: `{text}`",), (fix,)
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


def _operands(c: Context, e: ast.Expr, own: DType) -> list[ast.Expr]:
    """What arithmetic of type ``own`` is made of, which would wrap before its result is converted:
    elements and parameters, from which variables that begin with a literal have their type; of
    variables alone all of them."""
    if not isinstance(e, ast.Binary) or e.operator not in ("+", "-", "*"):
        return []
    found: list[ast.Expr] = []
    for x in (e.left, e.right):
        inner = _operands(c, x, own)
        if inner:
            found += inner
        elif c.try_value(x) is None and _dtype(c, x) == own:
            found.append(x)
    names = {p.name for p in c.declaration.parameters}
    given = [x for x in found if not isinstance(x, ast.Name) or x.id in names]
    return given or found


def _dtype(c: Context, e: ast.Expr) -> DType | None:
    term = c.infer(e)
    return term.dtype if isinstance(term, Scalar | Tile | Tensor) else None


def _with_casts(e: ast.Expr, parts: list[ast.Expr], dtype: DType) -> str:
    if e in parts:
        return f"{dtype}({source_of(e)})"
    if not isinstance(e, ast.Binary):
        return source_of(e)
    sides = [
        f"({text})" if isinstance(x, ast.Binary) else text
        for x in (e.left, e.right) for text in (_with_casts(x, parts, dtype),)
    ]  # fmt: skip
    return f" {e.operator} ".join(sides)
