"""For tests: the arithmetic of the language, said once more in plain Python.

Values are Python's ``int``, ``float`` and ``bool``; a float of a narrow dtype is the double of
the same value. Every operation is computed exactly or in double precision and rounded once:
for + - * / and square roots of dtypes of up to 24 bits that is the correctly rounded result.
Must not know the compiler.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from ctypes import c_float
from fractions import Fraction

Number = int | float | bool
SIGNED = ("i8", "i16", "i32", "i64", "index")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")
BITS = {
    "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64, "u8": 8, "u16": 16, "u32": 32,
    "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f8e4m3": 8, "f8e5m2": 8,
}  # fmt: skip
# Bits of the significand (with the hidden one), least normal exponent, greatest finite value.
_FORMATS = {
    "f16": (11, -14, 65504.0), "bf16": (8, -126, (2 - 2.0**-7) * 2.0**127),
    "f32": (24, -126, (2 - 2.0**-23) * 2.0**127), "f64": (53, -1022, 1.7976931348623157e308),
    "f8e4m3": (4, -6, 448.0), "f8e5m2": (3, -14, 57344.0),
}  # fmt: skip


def limits(dtype: str) -> tuple[int, int]:
    bits = BITS[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype in SIGNED else (0, (1 << bits) - 1)


def wrap(value: int, dtype: str) -> int:
    bits = BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype in SIGNED and value >> (bits - 1) else value


def rounded(x: float, dtype: str) -> float:
    """A double as the nearest value of a dtype, ties to even."""
    if dtype == "f32":
        return c_float(x).value
    if dtype == "f64" or x != x or x == 0:
        return x
    precision, least, greatest = _FORMATS[dtype]
    if math.isfinite(x):
        unit = max(math.frexp(x)[1] - 1, least) - (precision - 1)
        x = math.copysign(math.ldexp(round(math.ldexp(x, -unit)), unit), x)
    if abs(x) > greatest:
        saturated = greatest if dtype.startswith("f8") else math.inf
        return math.copysign(saturated, x)
    return x


def rounded_exactly(x: Fraction, dtype: str) -> float:
    """A rational number as the nearest value of a dtype, ties to even."""
    if x == 0:
        return 0.0
    precision, least, greatest = _FORMATS[dtype]
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = max(exponent, least) - (precision - 1)
    steps = round(x / Fraction(2) ** unit)
    size = abs(Fraction(steps) * Fraction(2) ** unit)
    if size > Fraction(greatest):
        size_of = greatest if dtype.startswith("f8") else math.inf
        return math.copysign(size_of, x)
    return math.copysign(float(size), x)


def cast(x: Number, source: str, dtype: str) -> Number:
    if dtype == source:
        return x
    if dtype == "bool":
        return x != 0
    if source == "bool":
        x = int(x)
    if dtype in INTEGERS:
        if source not in FLOATS:
            return wrap(int(x), dtype)
        if x != x:
            return 0
        low, high = limits(dtype)
        if math.isinf(x):
            return high if x > 0 else low
        return min(max(math.trunc(x), low), high)
    if source in FLOATS:
        return rounded(float(x), dtype)
    return rounded_exactly(Fraction(int(x)), dtype)


# --- binary and unary operations ---------------------------------------------------------


def quotient(a: float, b: float) -> float:
    """IEEE division of doubles."""
    if b:
        return a / b
    if a != a or a == 0 or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _remainder(a: float, b: float) -> float:
    if math.isinf(a) or b == 0 or a != a or b != b:
        return math.nan
    return math.fmod(a, b)


def _float_mod(a: float, b: float, dtype: str) -> float:
    rest = _remainder(a, b)
    if rest != rest:
        return rest
    if rest == 0:
        return math.copysign(0.0, b)
    return rounded(rest + b, dtype) if (rest < 0) != (b < 0) else rest


def _float_floordiv(a: float, b: float, dtype: str) -> float:
    """Python's algorithm, each step rounded to the dtype it is computed in."""
    if b == 0:
        return quotient(a, b)
    rest = _remainder(a, b)
    if rest != rest:
        return rest
    q = rounded(rounded(a - rest, dtype) / b, dtype)
    if rest != 0 and (rest < 0) != (b < 0):
        q = rounded(q - 1.0, dtype)
    if math.isinf(q):
        return q
    if q == 0:
        return math.copysign(0.0, a) * math.copysign(1.0, b)
    whole = float(math.floor(q)) if abs(q) < 2.0**52 else q
    if q - whole > 0.5:
        whole = rounded(whole + 1.0, dtype)
    return whole


def _lesser(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    if a == b:
        return a if math.copysign(1.0, a) < 0 else b
    return a if a < b else b


def _greater(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    if a == b:
        return b if math.copysign(1.0, a) < 0 else a
    return a if a > b else b


def _shifted(operator: str, a: int, count: int, dtype: str) -> int:
    bits = BITS[dtype]
    if not 0 <= count < bits:
        return -1 if operator == ">>" and a < 0 else 0
    return wrap(a << count, dtype) if operator == "<<" else a >> count


def integer_operation(operator: str, a: int, b: int, dtype: str) -> int:
    """``//``, ``%`` and ``ceil_div`` by 0 give 0; the caller sees to the report."""
    match operator:
        case "+":
            return wrap(a + b, dtype)
        case "-":
            return wrap(a - b, dtype)
        case "*":
            return wrap(a * b, dtype)
        case "//":
            return wrap(a // b, dtype) if b else 0
        case "%":
            return wrap(a % b, dtype) if b else 0
        case "ceil_div":
            return wrap(-(-a // b), dtype) if b else 0
        case "&":
            return wrap(a & b, dtype)
        case "|":
            return wrap(a | b, dtype)
        case "^":
            return wrap(a ^ b, dtype)
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case _:
            return _shifted(operator, a, b, dtype)


def float_operation(operator: str, a: float, b: float, dtype: str) -> float:
    computed = "f64" if dtype == "f64" else "f32"
    match operator:
        case "+":
            return rounded(a + b, dtype)
        case "-":
            return rounded(a - b, dtype)
        case "*":
            return rounded(a * b, dtype)
        case "/":
            return rounded(quotient(a, b), dtype)
        case "//":
            return rounded(_float_floordiv(a, b, computed), dtype)
        case "%":
            return rounded(_float_mod(a, b, computed), dtype)
        case "min":
            return _lesser(a, b)
        case _:
            return _greater(a, b)


def fma(a: float, b: float, c: float, dtype: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        # a * b must not overflow on the way where it is finite.
        product = (
            math.copysign(1.0, a) * math.copysign(1.0, b) if math.isfinite(a * 0 + b * 0) else a * b
        )
        return rounded(product + c, dtype)
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        negative = math.copysign(1.0, a) * math.copysign(1.0, b) < 0
        zero = a == 0 or b == 0
        return (-0.0 if negative else 0.0) + c if zero and c == 0 else 0.0
    return rounded_exactly(exact, dtype)


def _integral(f: Callable[[float], int]) -> Callable[[float], float]:
    def apply(x: float) -> float:
        return math.copysign(float(f(x)), x) if math.isfinite(x) and abs(x) < 2.0**53 else x

    return apply


FLOAT_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "floor": _integral(math.floor), "ceil": _integral(math.ceil),
    "trunc": _integral(math.trunc), "round": _integral(round),
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else (x if x == 0 else math.nan),
}  # fmt: skip


def bits_of(x: float, dtype: str) -> int:
    """The bits of a value of f16, bf16, f32 or f64."""
    kind, shift = {"f16": ("<e", 0), "bf16": ("<f", 16), "f32": ("<f", 0), "f64": ("<d", 0)}[dtype]
    return int.from_bytes(struct.pack(kind, x), "little") >> shift


def widens(a: str, b: str) -> str | None:
    """The dtype in which two dtypes meet without a cast, or None."""
    if a == b:
        return a
    if a in FLOATS and b in FLOATS:
        small = [d for d in (a, b) if d != "f32"]
        return "f32" if len(small) == 1 and BITS[small[0]] < 32 else None
    if a not in INTEGERS or b not in INTEGERS:
        return None
    if "index" in (a, b):
        return "index"
    if (a in SIGNED) != (b in SIGNED):
        return None
    return a if BITS[a] > BITS[b] else b
