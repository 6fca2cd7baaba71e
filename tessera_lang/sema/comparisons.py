"""Comparisons of two operands.

Owns which values may be compared. Integers compare exactly whatever their types.
"""

from __future__ import annotations

from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.literals import is_silent, misfit, settle, settle_default
from tessera_lang.sema.operators import Operand, is_bool, meet
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, I64, U64
from tessera_lang.types.type import Opaque, Scalar, Weak


def compare(c: Context, operator: ast.CompareOperator, span: Span, a: Operand, b: Operand) -> bool:
    """Check one comparison of a chain. False: it was reported or is not known."""
    if is_silent(a.term) or is_silent(b.term):
        return False
    if operator in ("in", "not in", "is", "is not"):
        if c.is_known(a.e) and c.is_known(b.e):
            return True
        c.report("T0118", f"`{operator}` is not for lanes", span,
                 helps=("compare with `==`, joined by `or`",))  # fmt: skip
        return False
    if isinstance(a.term, Opaque) or isinstance(b.term, Opaque):
        return _compare_known(c, operator, span, a, b)
    if is_bool(a.term) and is_bool(b.term):
        if operator in ("==", "!="):
            return True
        c.report("T0206", f"`{operator}` is not for bools", span,
                 helps=("use `==`, `!=`, `and`, `or`, `not`",))  # fmt: skip
        return False
    both_integers = all(isinstance(o.term, Scalar) and o.term.dtype.is_integer for o in (a, b))
    if both_integers or _with_literal(c, a, b) or _with_literal(c, b, a):
        return True
    result = meet(c, span, a, b)
    if isinstance(result, Weak):
        for o in (a, b):
            settle_default(c, o.e, o.term)
    return not is_silent(result)


def _with_literal(c: Context, o: Operand, literal: Operand) -> bool:
    """Gives an integer literal that the dtype of ``o`` does not hold one that holds it: integers
    compare exactly, and a bool is 0 or 1."""
    if not isinstance(o.term, Scalar) or not is_integer_literal(c, literal):
        return False
    if o.term.dtype != BOOL and not o.term.dtype.is_integer:
        return False
    value = c.try_value(literal.e)
    found = next((d for d in (I64, U64) if misfit(value, d) is None), None)
    if found is None or misfit(value, o.term.dtype) is None:
        return False
    if o.term.dtype == BOOL:
        c.coerce(o.e, found)
    settle(c, literal.e, literal.term, found)
    return True


def is_integer_literal(c: Context, o: Operand) -> bool:
    """Whether an operand is an integer whose dtype is that of what it meets."""
    value = c.try_value(o.e) if isinstance(o.term, Weak) else None
    return isinstance(value, int) and not isinstance(value, bool)


def _compare_known(
    c: Context, operator: ast.CompareOperator, span: Span, a: Operand, b: Operand
) -> bool:
    """Strings and dtypes: known at compile time, or nothing."""
    if c.is_known(a.e) and c.is_known(b.e) and type(a.term) is type(b.term):
        if operator in ("==", "!="):
            return True
    c.report(
        "T0206", f"`{text_of(a.term)}` and `{text_of(b.term)}` cannot be compared with"
        f" `{operator}`", span,
    )  # fmt: skip
    return False
