"""Arithmetic on known host values: numbers, strings, tuples and lists.

Owns what an operator of the language means on Python values: ``//`` and ``%`` floor, a bool
counts as an integer, nothing wraps. Must not know expressions, arrays or diagnostics: a
fault is an ``ArithmeticFault`` with the reason in the user's words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from tessera_lang.syntax.ast import BinaryOperator, CompareOperator, UnaryOperator
from tessera_lang.types.dtype import DType, integer_range

_BITS = 4096  # the widest intermediate integer of a constant expression
_ITEMS = 1 << 24  # the longest string or list that repetition makes
INT64 = (-(1 << 63), (1 << 63) - 1)


class ArithmeticFault(Exception):
    """Why an operation has no value."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def kind_of(value: object) -> str:
    """What a value is, in the user's words."""
    match value:
        case None:
            return "None"
        case bool():
            return "a bool"
        case int():
            return "an integer"
        case float():
            return "a float"
        case str():
            return "a string"
        case tuple():
            return "a tuple"
        case list():
            return "a list"
        case dict():
            return "a dict"
        case range():
            return "a range"
        case DType():
            return "a dtype"
        case _:
            kind = type(value)
            return str(getattr(kind, "description", f"a `{kind.__name__}` of Python"))


def is_number(value: object) -> bool:
    """Whether a value is a bool, an integer or a float."""
    return isinstance(value, (int, float))


def _floor_divide(a: float, b: float) -> float:
    if b == 0:
        return _by_zero(a, b)
    if math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    return a // b


def _modulo(a: float, b: float) -> float:
    if b == 0:
        _by_zero(a, b)
        return math.nan
    return math.nan if math.isinf(a) else a % b


def _divide(a: float, b: float) -> float:
    return _by_zero(a, b) if b == 0 else a / b


def _by_zero(a: float, b: float) -> float:
    """A quotient of floats is infinite or NaN, as in arrays; one of integers has no value."""
    if isinstance(a, int) and isinstance(b, int):
        raise ArithmeticFault("division by zero")
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, sign)


def _power(a: float, b: float) -> float:
    if isinstance(a, int) and isinstance(b, int) and b > 0 and a.bit_length() * b > _BITS:
        raise ArithmeticFault("the result is too large")
    if a == 0 and b < 0:
        raise ArithmeticFault("0 to a negative power")
    result: object = a**b
    if isinstance(result, complex):
        raise ArithmeticFault("a negative number to a fractional power")
    return cast("float", result)


def _count(count: int) -> int:
    if count < 0:
        raise ArithmeticFault(f"a shift by {count}, which is negative")
    if count > _BITS:
        raise ArithmeticFault("the result is too large")
    return count


_NUMBERS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "//": _floor_divide,
    "%": _modulo,
    "**": _power,
}
_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << _count(b),
    ">>": lambda a, b: a >> _count(b),
}


def _sequence(operator: str, a: object, b: object) -> object:
    """Concatenation and repetition, or NotImplemented."""
    if operator == "+":
        if isinstance(a, str) and isinstance(b, str):
            return a + b
        if isinstance(a, tuple) and isinstance(b, tuple):
            return cast("tuple[object, ...]", a) + cast("tuple[object, ...]", b)
        if isinstance(a, list) and isinstance(b, list):
            return cast("list[object]", a) + cast("list[object]", b)
    if operator == "*":
        if isinstance(a, (str, tuple, list)) and isinstance(b, int):
            return _repeated(cast("tuple[object, ...]", a), b)
        if isinstance(b, (str, tuple, list)) and isinstance(a, int):
            return _repeated(cast("tuple[object, ...]", b), a)
    return NotImplemented


def _repeated(sequence: tuple[object, ...], count: int) -> object:
    if len(sequence) * count > _ITEMS:
        raise ArithmeticFault("the result is too large")
    return sequence * count


def binary(operator: BinaryOperator, a: object, b: object) -> object:
    """``a operator b``. Raises ArithmeticFault."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if operator in _NUMBERS:
            try:
                result = _NUMBERS[operator](a, b)
            except OverflowError:
                raise ArithmeticFault("the result is too large") from None
            if isinstance(result, int) and result.bit_length() > _BITS:
                raise ArithmeticFault("the result is too large")
            return result
        if operator in _INTEGERS and isinstance(a, int) and isinstance(b, int):
            return _INTEGERS[operator](a, b)
    else:
        made = _sequence(operator, a, b)
        if made is not NotImplemented:
            return made
    raise ArithmeticFault(f"`{operator}` does not take {kind_of(a)} and {kind_of(b)}")


def unary(operator: UnaryOperator, value: object) -> object:
    """``operator value``; ``not`` takes the truth of numbers and sequences."""
    if operator == "not":
        return not truth(value)
    if operator == "~" and isinstance(value, int):
        return (not value) if isinstance(value, bool) else ~value
    if operator in ("-", "+") and isinstance(value, (int, float)):
        return -value if operator == "-" else +value
    raise ArithmeticFault(f"`{operator}` does not take {kind_of(value)}")


def truth(value: object) -> bool:
    """The truth of a known value, as Python has it."""
    if value is None or isinstance(value, (int, float, str, tuple, list, dict, range)):
        return bool(cast("object", value))
    raise ArithmeticFault(f"{kind_of(value)} is neither true nor false")


def _ordered(operator: str, a: object, b: object) -> bool:
    kinds = (int | float, str, tuple, list)
    if not any(isinstance(a, kind) and isinstance(b, kind) for kind in kinds):
        raise ArithmeticFault(f"`{operator}` does not take {kind_of(a)} and {kind_of(b)}")
    x, y = cast("float", a), cast("float", b)
    try:
        match operator:
            case "<":
                return x < y
            case "<=":
                return x <= y
            case ">":
                return x > y
            case _:
                return x >= y
    except TypeError:
        raise ArithmeticFault("the items of the two have no order") from None


def compare(operator: CompareOperator, a: object, b: object) -> bool:
    """``a operator b`` for one step of a comparison chain."""
    match operator:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "is" | "is not":
            if not (a is None or b is None or isinstance(a, bool) or isinstance(b, bool)):
                raise ArithmeticFault(f"`{operator}` compares with None, True or False only")
            return (a is b) == (operator == "is")
        case "in" | "not in":
            if isinstance(b, str) and isinstance(a, str):
                return (a in b) == (operator == "in")
            if isinstance(b, dict):
                try:
                    return (a in cast("dict[object, object]", b)) == (operator == "in")
                except TypeError:
                    raise ArithmeticFault(f"{kind_of(a)} cannot be a key of a dict") from None
            if isinstance(b, (tuple, list, range)):
                return (a in cast("list[object]", b)) == (operator == "in")
            raise ArithmeticFault(f"`{operator}` does not look into {kind_of(b)}")
        case _:
            return _ordered(operator, a, b)


def ceil_div(a: object, b: object) -> object:
    """``a / b`` rounded up, for integers of any sign."""
    if not (isinstance(a, int) and isinstance(b, int)):
        raise ArithmeticFault(f"`ceil_div` does not take {kind_of(a)} and {kind_of(b)}")
    if b == 0:
        raise ArithmeticFault("division by zero")
    return -(-a // b)


def extreme(name: str, values: tuple[object, ...]) -> object:
    """``min`` or ``max`` of two or more numbers; a NaN wins."""
    for value in values:
        if not is_number(value):
            raise ArithmeticFault(f"`{name}` does not take {kind_of(value)}")
    numbers = cast("tuple[float, ...]", values)
    if not numbers:
        raise ArithmeticFault(f"`{name}` of nothing")
    for number in numbers:
        if isinstance(number, float) and math.isnan(number):
            return number
    return min(numbers) if name == "min" else max(numbers)


def absolute(value: object) -> object:
    if not isinstance(value, (int, float)):
        raise ArithmeticFault(f"`abs` does not take {kind_of(value)}")
    return abs(value)


def int64(value: object) -> object:
    """The value, if it is no integer outside of 64 bits."""
    if isinstance(value, int) and not INT64[0] <= value <= INT64[1]:
        raise ArithmeticFault(f"{_shown(value)} does not fit in 64 bits")
    return value


def _shown(value: int) -> str:
    return str(value) if value.bit_length() < 200 else "the result"


# --- conversion to a dtype -----------------------------------------------------------------


def convert(value: object, dtype: DType) -> bool | int | float:
    """``dtype(value)`` by the language's rules: integers wrap, floats saturate into integers."""
    if not isinstance(value, (int, float)):
        raise ArithmeticFault(f"`{dtype}` does not take {kind_of(value)}")
    if dtype.kind == "bool":
        return value != 0
    if dtype.is_float:
        try:
            return round_float(float(value), dtype)
        except OverflowError:
            return math.copysign(math.inf, value)
    low, high = integer_range(dtype)
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        return low if value <= low else high if value >= high else int(value)
    return (value - low) % (high - low + 1) + low


def round_float(value: float, dtype: DType) -> float:
    """The value of a float dtype that is nearest, ties to even; f8 saturates, and keeps an
    infinity that it has: numbers here are literals."""
    if dtype.bits == 64 or math.isnan(value) or value == 0:
        return value
    bias = (1 << (dtype.exponent - 1)) - 1
    largest = dtype.largest
    if math.isinf(value):
        return value if dtype.infinite else math.copysign(largest, value)
    exponent = max(math.frexp(value)[1] - 1, 1 - bias)
    quantum = math.ldexp(1.0, exponent - (dtype.mantissa - 1))
    rounded = round(value / quantum) * quantum
    if abs(rounded) > largest:
        return math.copysign(largest if dtype.bits == 8 else math.inf, value)
    return math.copysign(rounded, value)
