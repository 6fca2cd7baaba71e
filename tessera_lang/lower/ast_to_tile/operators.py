"""Operators on lane scalars: dtypes that meet, exact comparisons, shifts, powers.

Owns what an operator of the language becomes. Must not know syntax beyond operator names.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_tile.context import Lowering, Unsupported
from tessera_lang.source import Span
from tessera_lang.target.tuned_constants import UNROLLED_POWER
from tessera_lang.types.dtype import BOOL, INDEX, U64, DType, common_dtype, integer_range

_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod",
    "&": "and", "|": "or", "^": "xor",
}  # fmt: skip
_PREDICATES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def dtype_of(value: Value) -> DType:
    """The dtype of a scalar. Raises TypeError for arrays: sema lets none through."""
    if not isinstance(value.type, DType):
        raise TypeError(f"a scalar was expected, not {value.type}")
    return value.type


def constant_of(lowering: Lowering, value: Value) -> bool | int | float | None:
    """The number a value is, where it was built as a constant a few operations ago."""
    for operation in reversed(lowering.builder.current.operations[-8:]):
        if operation.name == "tile.constant" and operation.result is value:
            number = operation.attributes["value"]
            return number if isinstance(number, (int, float)) else None
    return None


def truth(lowering: Lowering, value: Value) -> Value:
    """``value`` as a bool: not zero."""
    dtype = dtype_of(value)
    if dtype == BOOL:
        return value
    return lowering.builder.cmp("ne", value, lowering.builder.constant(0, dtype))


def _meet(lowering: Lowering, a: Value, b: Value, span: Span) -> tuple[Value, Value]:
    """Both operands in the dtype they meet in."""
    common = common_dtype(dtype_of(a), dtype_of(b))
    if common is None:
        raise Unsupported(span, f"an operator on {dtype_of(a)} with {dtype_of(b)}")
    return lowering.builder.cast(a, common), lowering.builder.cast(b, common)


def combine(lowering: Lowering, operator: str, a: Value, b: Value, span: Span) -> Value:
    """``a operator b`` for an arithmetic or bitwise operator."""
    if operator in ("<<", ">>"):
        return _shift(lowering, operator, a, b)
    if operator == "**":
        return _power(lowering, a, b, span)
    if operator not in _BINARY:
        raise Unsupported(span, f"`{operator}` on lane scalars")
    a, b = _meet(lowering, a, b, span)
    name = _BINARY[operator]
    site = -1
    if name in ("floordiv", "mod") and dtype_of(b).is_integer and not constant_of(lowering, b):
        site = lowering.site("division", span, f"`{operator}`")
    return lowering.builder.binary(name, a, b, site)


def _shift(lowering: Lowering, operator: str, a: Value, count: Value) -> Value:
    """A count of a wider dtype is clamped first, so that narrowing it keeps its meaning."""
    builder, dtype, wide = lowering.builder, dtype_of(a), dtype_of(count)
    low, high = integer_range(wide)
    if low < integer_range(dtype)[0] or high > integer_range(dtype)[1]:
        if wide.is_signed and dtype.is_signed:
            count = builder.binary("max", count, builder.constant(-1, wide))
        elif wide.is_signed:
            negative = builder.cmp("lt", count, builder.constant(0, wide))
            count = builder.select(negative, builder.constant(dtype.bits, wide), count)
        if high > integer_range(dtype)[1]:
            count = builder.binary("min", count, builder.constant(dtype.bits, wide))
    return builder.binary("shl" if operator == "<<" else "shr", a, builder.cast(count, dtype))


def _power(lowering: Lowering, a: Value, b: Value, span: Span) -> Value:
    """A power by a small known exponent: repeated squaring, left to right."""
    exponent = constant_of(lowering, b)
    if exponent is None or exponent != int(exponent) or not 0 <= exponent <= UNROLLED_POWER:
        help_text = f"an integer from 0 to {UNROLLED_POWER} may stand there"
        raise Unsupported(span, "`**` with this exponent", help_text)
    builder = lowering.builder
    result: Value | None = None
    for bit in bin(int(exponent))[2:]:
        if result is not None:
            result = builder.binary("mul", result, result)
        if bit == "1":
            result = a if result is None else builder.binary("mul", result, a)
    return builder.constant(1, dtype_of(a)) if result is None else result


# --- comparisons --------------------------------------------------------------------------


def compare(lowering: Lowering, operator: str, a: Value, b: Value, span: Span) -> Value:
    """One step of a comparison; between integers exact whatever their signs."""
    if operator not in _PREDICATES:
        raise Unsupported(span, f"`{operator}` on lane scalars")
    predicate = _PREDICATES[operator]
    x, y = dtype_of(a), dtype_of(b)
    if x == y:
        return lowering.builder.cmp(predicate, a, b)
    if x.is_integer and y.is_integer:
        return _compare_integers(lowering, predicate, a, b)
    if x.is_integer and y.is_float:  # a count
        a = lowering.builder.cast(a, y)
    elif x.is_float and y.is_integer:
        b = lowering.builder.cast(b, x)
    a, b = _meet(lowering, a, b, span)
    return lowering.builder.cmp(predicate, a, b)


def _compare_integers(lowering: Lowering, predicate: str, a: Value, b: Value) -> Value:
    builder, x, y = lowering.builder, dtype_of(a), dtype_of(b)
    if not (U64 in (x, y) and (x.is_signed or y.is_signed)):
        wide = U64 if U64 in (x, y) else INDEX
        return builder.cmp(predicate, builder.cast(a, wide), builder.cast(b, wide))
    if x == U64:
        return _compare_integers(lowering, MIRRORED[predicate], b, a)
    # a signed, b u64: a negative a is below every b, else both are compared as u64.
    negative = builder.cmp("lt", a, builder.constant(0, x))
    same = builder.cmp(predicate, builder.cast(a, U64), b)
    known = builder.constant(predicate in ("ne", "lt", "le"), BOOL)
    return builder.select(negative, known, same)
