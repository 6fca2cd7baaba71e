"""Functions of `math` on numbers.

Owns their values, at the edges too: what has none is NaN, what is too large infinite. Must not know
calls or expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera_lang.evaluate.arithmetic import ArithmeticFault, kind_of


def _rounded(function: Callable[[float], int]) -> Callable[[float], float]:
    def whole(x: float) -> float:
        return x if not math.isfinite(x) else math.copysign(float(function(x)), x)

    return whole


def _log(function: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    return lambda x: -math.inf if x == pole else function(x)


def _exp2(x: float) -> float:
    return math.pow(2.0, x)


def _sigmoid(x: float) -> float:
    e = math.exp(-abs(x))
    return (1.0 if x >= 0 else e) / (1.0 + e)


def _gelu(x: float) -> float:
    return 0.5 * max(x, -50.0) * math.erfc(-x * math.sqrt(0.5)) if x == x else x


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _sinh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > 711 else math.sinh(x)


_OF_THE_C_LIBRARY = (math.tan, math.asin, math.acos, math.atan, math.cosh, math.asinh, math.acosh)

_FUNCTIONS: dict[str, tuple[Callable[..., float], int]] = {
    "sqrt": (math.sqrt, 1), "exp": (math.exp, 1), "exp2": (_exp2, 1),
    "log": (_log(math.log), 1), "log2": (_log(math.log2), 1), "log10": (_log(math.log10), 1),
    "expm1": (math.expm1, 1), "log1p": (_log(math.log1p, -1.0), 1), "erf": (math.erf, 1),
    "sigmoid": (_sigmoid, 1), "gelu": (_gelu, 1), "sin": (math.sin, 1), "cos": (math.cos, 1),
    **{f.__name__: (f, 1) for f in _OF_THE_C_LIBRARY},
    "atanh": (_atanh, 1), "sinh": (_sinh, 1), "atan2": (math.atan2, 2), "hypot": (math.hypot, 2),
    "tanh": (math.tanh, 1), "pow": (math.pow, 2), "floor": (_rounded(math.floor), 1),
    "ceil": (_rounded(math.ceil), 1), "trunc": (_rounded(math.trunc), 1),
    "round": (_rounded(round), 1),
}  # fmt: skip
NUMBERS_TAKEN = {name: count for name, (_, count) in _FUNCTIONS.items()}
"""How many numbers each function takes."""


def function_of_numbers(name: str, values: tuple[object, ...]) -> float:
    """``math.name(values)``. Raises ArithmeticFault for what is no number."""
    function, count = _FUNCTIONS[name]
    if len(values) != count:
        takes = f"{count} argument{'s' * (count > 1)}"
        raise ArithmeticFault(f"`math.{name}` takes {takes}, not {len(values)}")
    for value in values:
        if not isinstance(value, (int, float)):
            raise ArithmeticFault(f"`math.{name}` does not take {kind_of(value)}")
    try:
        return function(*values)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf
