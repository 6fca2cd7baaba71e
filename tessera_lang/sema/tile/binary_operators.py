"""``a operator b`` of tiles, powers among them.

Owns which powers are products and which a function. Must not know how operands meet.
"""

from __future__ import annotations

from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.operators import MOST_POWER, Operand, integer_helps, operate, silent
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.elementwise_builtins import attach_instance
from tessera_lang.sema.tile.operators import (
    Mixed,
    convert_operand,
    is_waiting,
    mix,
    result_of,
    surrogate,
    value_of_operand,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64
from tessera_lang.types.type import ERROR, Scalar, Tile


def operate_tiles(
    c: TileContext, operator: ast.BinaryOperator, span: Span, a: Operand, b: Operand
) -> Term:
    """``a operator b`` where one of them is a tile or an array."""
    if operator == "**":
        return _power(c, span, a, b)
    found = mix(c, span, [a, b], f"`{operator}`", operator)
    return result_of(c, found) if isinstance(found, Mixed) else found


def _power(c: TileContext, span: Span, a: Operand, b: Operand) -> Term:
    """By products where the exponent is a whole number that is known, else by ``math.pow``."""
    if is_silent(a.term) or is_silent(b.term):
        return silent(a, b)
    a, b = value_of_operand(c, a), value_of_operand(c, b)
    exponent = c.try_value(b.e)
    integers = isinstance(a.term, Tile) and a.term.dtype.is_integer and not is_waiting(a.term)
    products = exponent in range(MOST_POWER + 1) and not (integers and type(exponent) is float)
    if isinstance(a.term, Tile) and products:
        if is_waiting(a.term):
            return a.term
        found = operate(c, "**", span, surrogate(a, False), b)
        return a.term if isinstance(found, Scalar) else found
    met = mix(c, span, [a, b], "`**`")
    if not isinstance(met, Mixed):
        return met
    if not met.dtype.is_float:
        return c.report(
            "T0209", f"`**` of integers takes a literal exponent from 0 to {MOST_POWER}", b.e.span,
            helps=integer_helps(c.try_value(a.e), source_of(a.e), source_of(b.e), False,
                                isinstance(b.term, Tile)),
        )  # fmt: skip
    if exponent == 0.5 and isinstance(a.term, Tile):
        return result_of(c, met)  # the root, as in NumPy
    compute = F64 if met.dtype == F64 else F32
    for o in (a, b):
        convert_operand(c, o, Mixed(compute, False, ()))
    if attach_instance(c, b.e, "math.pow", [Scalar(compute)] * 2, second=True) is None:
        return ERROR if c.final else Unknown()
    return result_of(c, met)
