"""Powers of numbers: by products, or by ``math.pow``.

Owns which of the two a power is, and in which dtype it is computed. Must not know tiles.
"""

from __future__ import annotations

from tessera_lang.sema.context import Context
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, Term, Unknown
from tessera_lang.sema.literals import settle
from tessera_lang.sema.operators import (
    MOST_POWER,
    Operand,
    is_bool,
    literal_as_float,
    meet,
    not_numbers,
)
from tessera_lang.sema.side_tables import FunctionSymbol, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, INDEX, DType
from tessera_lang.types.type import ERROR, ErrorType, Scalar, Weak


def power(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    """``a ** b`` of numbers."""
    exponent = c.try_value(b.e)
    if isinstance(a.term, Weak) and isinstance(b.term, Weak):
        return a.term if b.term.kind == "int" else Weak("float")
    for o in (a, b):
        if is_bool(o.term):
            return not_numbers(c, span, o)
    if type(exponent) is int and 0 <= exponent <= MOST_POWER:
        settle(c, b.e, b.term, INDEX)
        return a.term
    if _kind(a.term) == "int" and (_kind(b.term) == "int" or isinstance(a.term, Scalar)):
        return _of_integer(c, a, b)
    return _by_function(c, span, a, b)


def _kind(term: Term) -> str:
    match term:
        case Weak():
            return term.kind
        case Open():
            return term.cell.root().kind
        case Scalar():
            return "float" if term.dtype.is_float else "int"
        case _:
            return ""


def _of_integer(c: Context, a: Operand, b: Operand) -> Term:
    return c.report(
        "T0209", f"`**` of an integer takes a literal exponent from 0 to {MOST_POWER}", b.e.span,
        helps=integer_helps(c.try_value(a.e), source_of(a.e), source_of(b.e),
                            _kind(b.term) == "float"),
    )  # fmt: skip


def integer_helps(
    base: object, x: str, y: str, floats: bool, tile: bool = False
) -> tuple[str, ...]:
    """What to write for a power of integers that loses no digit of it; ``tile``: the exponent is
    one."""
    base_as_float = f"{base}.0" if type(base) is int and base >= 0 else f"f64({x})"
    of = y if y.replace(".", "").isidentifier() else f"({y})"
    if floats:
        return (f"write a float base: `{base_as_float} ** {y}`",)
    exact = f"multiply in a loop, which is exact: `for _ in range({y}): p *= {x}`, from `p = 1`"
    if base == 2:
        exact = f"`1 << {of}` is the same, and exact"
    elif tile:
        exact = ("multiply in a loop up to the largest exponent, which is exact:"
                 f" `p = op.where(i < {y}, p * {x}, p)`")  # fmt: skip
    return exact, f"or as a float, which is rounded: `{base_as_float} ** {of}`"


def _by_function(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    """An integer exponent is exact in f64, and the power is rounded to the dtype of the base."""
    if _kind(b.term) == "int" and not isinstance(b.term, Weak):
        result: Term = a.term
        if isinstance(a.term, Weak):
            result = literal_as_float(c, b.e, a)
            settle(c, a.e, a.term, F64)
        compute = F64
    else:
        if isinstance(b.term, Weak) and isinstance(a.term, Scalar):
            settled = settle(c, b.e, b.term, F64 if a.term.dtype == F64 else F32)
            if isinstance(settled, ErrorType):
                return ERROR
            result = a.term
        else:
            result = meet(c, span, a, b)
        if not isinstance(result, (Scalar, Open)):
            return result
        compute = F64 if result == Scalar(F64) else F32
    if _pow(c, b.e, compute) is None:
        return ERROR if c.final else Unknown()
    return result


def _pow(c: Context, key: ast.Expr, dtype: DType) -> TypedFunction | None:
    """The instance of ``math.pow``, written down at the exponent."""
    scope = c.scope.scope_named("std.math")
    symbol = None if scope is None else scope.names.get("pow")
    if scope is None or not isinstance(symbol, FunctionSymbol):
        c.report("T0114", "not built yet: `**` without `std.math`", key.span)
        return None
    shared, declaration = c.functions(), symbol.declaration
    named = {p.name: Scalar(dtype) for p in declaration.parameters}
    memo_key = (declaration, *named.values())
    if memo_key not in shared.memo:
        shared.memo[memo_key] = shared.instantiate(shared, scope, declaration, named)
    instance, reports = shared.memo[memo_key]
    if instance is None or not instance.complete:
        if c.final:
            c.reports.extend(reports)
        return None
    if c.final:
        c.typed.second[key] = instance
    return instance
