"""Weak values: what fits a type, and how an expression of literals takes the type it meets.

Owns the rules for number literals. Must not know operators or statements.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tessera_lang.diagnostics.diagnostic import Edit, Fix
from tessera_lang.evaluate.constant import NotConstant
from tessera_lang.sema.context import Context
from tessera_lang.sema.conversion_hints import Advice, convert_operand, float_for, wider_for
from tessera_lang.sema.inference_types import Open, Term, Unknown, default_dtype
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX, DType, integer_range, widens_to
from tessera_lang.types.type import ERROR, ErrorType, Scalar, Weak


def greatest(dtype: DType) -> Fraction:
    """The greatest finite value of a float dtype."""
    return Fraction(dtype.largest)


def exact_in(value: int, dtype: DType) -> bool:
    """Whether an integer is a value of a float dtype."""
    magnitude = abs(value)
    if magnitude == 0:
        return True
    trailing = (magnitude & -magnitude).bit_length() - 1
    return magnitude.bit_length() - trailing <= dtype.mantissa and magnitude <= greatest(dtype)


def misfit(value: object, dtype: DType) -> str | None:
    """Why a literal value cannot be of this type, or None where it can."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "it is no number"
    if dtype.is_integer:
        if isinstance(value, float):
            return f"it is a float and `{dtype}` holds integers"
        low, high = integer_range(dtype)
        return None if low <= value <= high else f"`{dtype}` holds {low} to {high}"
    if not dtype.is_float:
        return f"`{dtype}` holds no numbers"
    if not dtype.exponent:
        return None  # of a tile whose dtype is not known yet
    if isinstance(value, int):
        return None if exact_in(value, dtype) else f"`{dtype}` does not hold {value} exactly"
    if math.isnan(value):
        return None
    if math.isinf(value):
        return None if dtype.infinite else f"{dtype} has no infinity"
    half_step = Fraction(2) ** ((1 << (dtype.exponent - 1)) - 1) / (1 << dtype.mantissa)
    limit = greatest(dtype) + (half_step if dtype.infinite else 0)
    if abs(Fraction(value)) >= limit and abs(Fraction(value)) > greatest(dtype):
        return f"`{dtype}` ends at {float(greatest(dtype)):g}"
    least = Fraction(2) ** (3 - (1 << (dtype.exponent - 1)) - dtype.mantissa)
    if value and abs(Fraction(value)) <= least / 2:
        return f"it would be 0: `{dtype}` begins at {float(least):g}"
    return None


def settle(
    c: Context, e: ast.Expr, term: Term, dtype: DType, beside: ast.Expr | None = None
) -> Term:
    """Give a weak or open expression the type it met; anything else stays what it is.

    ``beside``: the operand of that type, where it is one that could be converted instead.
    """
    if isinstance(term, Open):
        c.cells.fix(term.cell, dtype, e.span)
        return term
    if not isinstance(term, Weak):
        return term
    if c.is_known(e):
        return _settle_known(c, e, dtype, beside)
    return _settle_parts(c, e, dtype)


def settle_default(c: Context, e: ast.Expr, term: Term) -> Term:
    """A literal that met nothing typed: index or f32."""
    return (
        settle(c, e, term, default_dtype(term.kind, c.cells.floats))
        if isinstance(term, Weak)
        else term
    )


def _settle_known(c: Context, e: ast.Expr, dtype: DType, beside: ast.Expr | None) -> Term:
    try:
        value = c.value_of(e)
    except NotConstant as fault:
        c.report("T0222", f"this constant expression has no value: {fault.reason}",
                 fault.expression.span)  # fmt: skip
        return c.note(e, ERROR)
    reason = misfit(value, dtype)
    if reason is not None:
        helps, fixes = _instead(c, e, value, dtype, beside)
        return c.note(
            e,
            c.report("T0202", f"{_shown(value)} does not fit in `{dtype}`", e.span, reason,
                     helps=helps, fixes=fixes),
        )  # fmt: skip
    _mark(c, e, dtype)
    return c.note(e, Scalar(dtype))


def _instead(
    c: Context, e: ast.Expr, value: object, dtype: DType, beside: ast.Expr | None
) -> Advice:
    """What to write where a literal does not fit the type that it meets."""
    if isinstance(value, int) and dtype.is_float:
        text = repr(float(value))
        if misfit(float(value), dtype) is not None:
            return (), ()
        return (f"write it as a float, `{text}`, if rounding is meant",), (
            Fix(f"write `{text}`", (Edit(e.span, text),), "unsafe"),
        )
    wide = wider_for(c, value, dtype)
    if beside is not None:
        return convert_operand(c, beside, dtype, wide) if wide is not None else ((), ())
    if not isinstance(value, float) or not dtype.is_integer:
        return (), ()
    if value.is_integer() and misfit(int(value), dtype) is None:
        return (f"write it as an integer: `{int(value)}`",), (
            Fix(f"write `{int(value)}`", (Edit(e.span, str(int(value))),), "unsafe"),
        )
    floats = float_for(c, dtype)
    return (
        f"write an integer, or give a float dtype, such as `{floats}`, to what has `{dtype}`",
    ), ()


def _mark(c: Context, e: ast.Expr, dtype: DType) -> None:
    """The parts of a constant expression show the type of the whole."""
    if not c.final:
        return
    todo: list[ast.Expr] = [e]
    while todo:
        node = todo.pop()
        if not isinstance(c.typed.types.get(node), Weak):
            continue
        c.typed.types[node] = Scalar(dtype)
        todo.extend(_parts(node))


def _parts(e: ast.Expr) -> tuple[ast.Expr, ...]:
    match e:
        case ast.Unary():
            return (e.operand,)
        case ast.Binary():
            return (e.left, e.right)
        case ast.Conditional():
            return (e.then, e.orelse)
        case ast.Call():
            return e.arguments
        case _:
            return ()


def _settle_parts(c: Context, e: ast.Expr, dtype: DType) -> Term:
    """A weak expression whose value depends on run time: ``1 if p else 0``."""
    for part in _parts(e):
        kind = c.typed.types.get(part)
        if isinstance(kind, Weak):
            settle(c, part, kind, dtype)
    for value in c.typed.tables.get(e, ()) if isinstance(e, ast.Subscript) else ():
        reason = misfit(value, dtype)
        if reason is not None:
            c.report("T0202", f"{_shown(value)} of this table does not fit in `{dtype}`", e.span,
                     reason)  # fmt: skip
            return c.note(e, ERROR)
    return c.note(e, Scalar(dtype))


def _shown(value: object) -> str:
    return f"`{value}`"


def give(c: Context, e: ast.Expr, term: Term, dtype: DType) -> bool:
    """Use a value where ``dtype`` is wanted: settle or convert it. False: it does not go.

    What was reported already goes anywhere.
    """
    if isinstance(term, (Weak, Open)):
        settle(c, e, term, dtype)
        return True
    if isinstance(term, (Unknown, ErrorType)):
        return True
    if not isinstance(term, Scalar):
        return False
    if term.dtype == dtype:
        return True
    if widens_to(term.dtype, dtype) or (term.dtype == INDEX and c.narrows(e, dtype)):
        c.coerce(e, dtype)
        return True
    return False


def is_silent(term: Term) -> bool:
    """Whether a term was reported or is not known yet."""
    return isinstance(term, (Unknown, ErrorType))
