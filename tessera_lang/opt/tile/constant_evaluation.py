"""The values of Tile's scalar operations on constants, exactly as the targets compute them.

Owns wrapping, floor division, rounding to each float dtype, NaN and signed zeros. A
function gives None where it does not fold. Must not know the IR.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from tessera_lang.types.dtype import DType, integer_range

Number: TypeAlias = bool | int | float


def wrap(value: int, dtype: DType) -> int:
    """Two's complement."""
    low, high = integer_range(dtype)
    return (value - low) % (high - low + 1) + low


def largest(dtype: DType) -> float:
    """The greatest finite value of a float dtype."""
    return dtype.largest


def round_exact(value: Fraction, dtype: DType) -> float:
    """The nearest value of a float dtype, ties to even; f8 saturates, others overflow."""
    if value == 0:
        return 0.0
    sign, magnitude = (-1.0, -value) if value < 0 else (1.0, value)
    bias = (1 << (dtype.exponent - 1)) - 1
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, 1 - bias) - (dtype.mantissa - 1))
    rounded = round(magnitude / quantum) * quantum
    if rounded > Fraction(largest(dtype)):
        return sign * (largest(dtype) if dtype.bits == 8 else math.inf)
    return sign * float(rounded)


def round_float(value: float, dtype: DType) -> float:
    """A float in another float dtype."""
    if math.isnan(value) or value == 0:
        return value
    if math.isinf(value):
        return math.copysign(largest(dtype), value) if dtype.bits == 8 else value
    return math.copysign(round_exact(Fraction(value), dtype), value)


def literal(value: float, dtype: DType) -> float:
    """A number as an element of a float dtype holds it: an infinity that it has is kept."""
    return value if math.isinf(value) and dtype.infinite else round_float(value, dtype)


def cast(value: Number, source: DType, target: DType) -> Number:
    """Language section 10."""
    if target.kind == "bool":
        return value != 0
    if target.is_float:
        if source.is_float:
            return round_float(float(value), target)
        return round_exact(Fraction(int(value)), target)
    if source.is_float:
        low, high = integer_range(target)
        if math.isnan(value):
            return 0
        return low if value <= low else high if value >= high else int(value)
    return wrap(int(value), target)


# --- integers -----------------------------------------------------------------------------


def _shift_count(count: int, dtype: DType) -> int:
    return count if 0 <= count < dtype.bits else dtype.bits


def _shl(a: int, count: int, dtype: DType) -> int:
    n = _shift_count(count, dtype)
    return 0 if n == dtype.bits else wrap(a << n, dtype)


_INTEGERS: dict[str, Callable[[int, int, DType], int]] = {
    "add": lambda a, b, t: wrap(a + b, t),
    "sub": lambda a, b, t: wrap(a - b, t),
    "mul": lambda a, b, t: wrap(a * b, t),
    "floordiv": lambda a, b, t: wrap(a // b, t) if b else 0,
    "mod": lambda a, b, t: wrap(a % b, t) if b else 0,
    "min": lambda a, b, _: min(a, b),
    "max": lambda a, b, _: max(a, b),
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
    "shl": _shl,
    "shr": lambda a, b, t: a >> _shift_count(b, t),
}


# --- floats -------------------------------------------------------------------------------


def _negative(value: float) -> bool:
    return math.copysign(1.0, value) < 0


def _add(a: float, b: float, dtype: DType) -> float:
    if not (math.isfinite(a) and math.isfinite(b)) or (a == 0 and b == 0):
        return a + b
    return round_exact(Fraction(a) + Fraction(b), dtype)


def _mul(a: float, b: float, dtype: DType) -> float:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return a * b
    return math.copysign(round_exact(Fraction(a) * Fraction(b), dtype), a * b or _sign(a, b))


def _sign(a: float, b: float) -> float:
    return -1.0 if _negative(a) != _negative(b) else 1.0


def _div(a: float, b: float, dtype: DType) -> float:
    if math.isnan(a) or math.isnan(b):
        return math.nan
    if math.isinf(a) or math.isinf(b) or a == 0 or b == 0:
        if (a == 0 and b == 0) or (math.isinf(a) and math.isinf(b)):
            return math.nan
        return math.copysign(math.inf if b == 0 or math.isinf(a) else 0.0, _sign(a, b))
    return math.copysign(round_exact(Fraction(a) / Fraction(b), dtype), _sign(a, b))


def _extreme(least: bool) -> Callable[[float, float, DType], float]:
    def choose(a: float, b: float, _: DType) -> float:
        if math.isnan(a) or math.isnan(b):
            return math.nan
        if a == b == 0:
            return a if _negative(a) == least else b
        return min(a, b) if least else max(a, b)

    return choose


_FLOATS: dict[str, Callable[[float, float, DType], float]] = {
    "add": _add,
    "sub": lambda a, b, t: _add(a, -b, t),
    "mul": _mul,
    "div": _div,
    "min": _extreme(True),
    "max": _extreme(False),
}


def binary(name: str, a: Number, b: Number, dtype: DType) -> Number | None:
    """``tile.<name>`` of two constants of one dtype."""
    if dtype.is_float:
        if dtype.bits == 8 or name not in _FLOATS:
            return None
        return _FLOATS[name](float(a), float(b), dtype)
    if dtype.kind == "bool":
        if name not in ("and", "or", "xor", "min", "max"):
            return None
        return bool(_INTEGERS[name](int(a), int(b), dtype))
    return _INTEGERS[name](int(a), int(b), dtype) if name in _INTEGERS else None


def unary(name: str, a: Number, dtype: DType) -> Number | None:
    """``tile.<name>`` of a constant."""
    if dtype.kind == "bool":
        return not a if name == "not" else None
    if not dtype.is_float:
        match name:
            case "neg":
                return wrap(-int(a), dtype)
            case "abs":
                return wrap(abs(int(a)), dtype)
            case "not":
                return wrap(~int(a), dtype)
            case _:
                return None
    match name:
        case "neg":
            return -float(a)
        case "abs":
            return abs(float(a))
        case "floor" | "ceil" | "trunc" | "round":
            return _integral(name, float(a))
        case _:
            return None


def _integral(name: str, a: float) -> float:
    if not math.isfinite(a) or a == 0:
        return a
    whole = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}[name](a)
    return math.copysign(float(whole), a)


def compare(predicate: str, a: Number, b: Number) -> bool:
    """Ordered comparisons; only ``ne`` is true on NaN."""
    match predicate:
        case "eq":
            return a == b
        case "ne":
            return a != b
        case "lt":
            return a < b
        case "le":
            return a <= b
        case "gt":
            return a > b
        case _:
            return a >= b


def bitcast(value: Number, source: DType, target: DType) -> Number | None:
    """The same bits as another dtype; only the pairs that ``struct`` knows fold."""
    formats = {"f16": "e", "f32": "f", "f64": "d"}
    sizes = {8: "b", 16: "h", 32: "i", 64: "q"}
    if math.isnan(value):
        return None

    def spelling(dtype: DType) -> str | None:
        if dtype.is_float:
            return formats.get(dtype.name)
        letter = sizes.get(dtype.bits)
        return letter if letter is None or dtype.is_signed else letter.upper()

    give, take = spelling(source), spelling(target)
    if give is None or take is None or source.kind == "bool" or target.kind == "bool":
        return None
    result: Number = struct.unpack("<" + take, struct.pack("<" + give, value))[0]
    return None if math.isnan(result) else result
