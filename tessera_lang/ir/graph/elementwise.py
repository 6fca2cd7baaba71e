"""Operators of each element: functions, arithmetic, comparisons, choice and casts.

Owns their rows. Must not know other operators beyond those that their gradients are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph import rules
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import (
    DTypeRule,
    Gradient,
    NoGradient,
    Operator,
    Refused,
    Tolerance,
)
from tessera_lang.ir.tile.op_definition import AttributeDef
from tessera_lang.types.dtype import F32

Derivative = Callable[[GraphBuilder, Value, Value], Value]
"""What the result changes by for a change of the operand: of the operand and the result."""

_STEPS = NoGradient("it is constant between its steps")
_PLACES = NoGradient("its result is no number that changes with the operands")
_BITS = NoGradient("it works on bits")


def _along(derivative: Derivative) -> Gradient:
    def gradient(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
        return (b.mul(ct, derivative(b, o.operands[0], o.result)),)

    return gradient


_TEXT = Refused(("!graph.tensor<i32, [4]>",), "takes floats")


def _function(
    name: str, derivative: Derivative, reference: str, tolerance: Tolerance = "few ulp",
    source: str = "", work: float = 10.0,
) -> Operator:  # fmt: skip
    """A function of floats."""
    return Operator(
        name, ("a",), (), rules.same_shapes, rules.floats, (_TEXT,), reference,
        source or f"op.{name}({{a}})", _along(derivative), rules.per_result(work),
        rules.pointwise, tolerance, True,
    )  # fmt: skip


def _rounding(name: str, reference: str) -> Operator:
    return Operator(
        name, ("a",), (), rules.same_shapes, rules.floats, (_TEXT,), reference,
        f"op.{name}({{a}})", _STEPS, rules.per_result(1.0), rules.pointwise, "exact", True,
    )  # fmt: skip


def _gaussian(b: GraphBuilder, a: Value, scale: float, width: float) -> Value:
    """``scale * exp(-a * a * width)``."""
    return b.times(b.op("exp", b.times(b.mul(a, a), -width)), scale)


def _gelu(b: GraphBuilder, a: Value, y: Value) -> Value:
    below = b.times(b.plus(b.op("erf", b.times(a, math.sqrt(0.5))), 1.0), 0.5)
    return b.add(below, b.mul(a, _gaussian(b, a, 1.0 / math.sqrt(2.0 * math.pi), 0.5)))


def _silu(b: GraphBuilder, a: Value, y: Value) -> Value:
    s = b.op("sigmoid", a)
    return b.add(s, b.mul(y, b.sub(b.like(s, 1.0), s)))


def _inverse(b: GraphBuilder, value: Value) -> Value:
    return b.div(b.like(value, 1.0), value)


def _root(b: GraphBuilder, value: Value) -> Value:
    return b.op("sqrt", value)


def _one_minus_square(b: GraphBuilder, value: Value) -> Value:
    return b.sub(b.like(value, 1.0), b.mul(value, value))


def _sign(b: GraphBuilder, a: Value, y: Value) -> Value:
    zero = b.zeros(a)
    negative = b.where(b.op("lt", a, zero), b.like(a, -1.0), zero)
    return b.where(b.op("gt", a, zero), b.like(a, 1.0), negative)


def _positive(b: GraphBuilder, a: Value, y: Value) -> Value:
    zero = b.zeros(a)
    return b.where(b.op("gt", a, zero), b.like(a, 1.0), zero)


FUNCTIONS: tuple[Operator, ...] = (
    _function("exp", lambda b, a, y: y, "np.exp(a)"),
    _function("exp2", lambda b, a, y: b.times(y, math.log(2.0)), "np.exp2(a)"),
    _function("expm1", lambda b, a, y: b.plus(y, 1.0), "np.expm1(a)"),
    _function("log", lambda b, a, y: _inverse(b, a), "np.log(a)"),
    _function("log2", lambda b, a, y: _inverse(b, b.times(a, math.log(2.0))), "np.log2(a)"),
    _function("log10", lambda b, a, y: _inverse(b, b.times(a, math.log(10.0))), "np.log10(a)"),
    _function("log1p", lambda b, a, y: _inverse(b, b.plus(a, 1.0)), "np.log1p(a)"),
    _function("sqrt", lambda b, a, y: b.div(b.like(y, 0.5), y), "np.sqrt(a)", "rounded"),
    _function("rsqrt", lambda b, a, y: b.div(b.times(y, -0.5), a), "1.0 / np.sqrt(a)"),
    _function("sin", lambda b, a, y: b.op("cos", a), "np.sin(a)"),
    _function("cos", lambda b, a, y: b.neg(b.op("sin", a)), "np.cos(a)"),
    _function("tan", lambda b, a, y: b.plus(b.mul(y, y), 1.0), "np.tan(a)"),
    _function("asin", lambda b, a, y: _inverse(b, _root(b, _one_minus_square(b, a))),
              "np.arcsin(a)"),
    _function("acos", lambda b, a, y: b.neg(_inverse(b, _root(b, _one_minus_square(b, a)))),
              "np.arccos(a)"),
    _function("atan", lambda b, a, y: _inverse(b, b.plus(b.mul(a, a), 1.0)), "np.arctan(a)"),
    _function("sinh", lambda b, a, y: b.op("cosh", a), "np.sinh(a)"),
    _function("cosh", lambda b, a, y: b.op("sinh", a), "np.cosh(a)"),
    _function("tanh", lambda b, a, y: _one_minus_square(b, y), "np.tanh(a)"),
    _function("asinh", lambda b, a, y: _inverse(b, _root(b, b.plus(b.mul(a, a), 1.0))),
              "np.arcsinh(a)"),
    _function("acosh", lambda b, a, y: _inverse(b, _root(b, b.plus(b.mul(a, a), -1.0))),
              "np.arccosh(a)"),
    _function("atanh", lambda b, a, y: _inverse(b, _one_minus_square(b, a)), "np.arctanh(a)"),
    _function("erf", lambda b, a, y: _gaussian(b, a, 2.0 / math.sqrt(math.pi), 1.0), "erf(a)"),
    _function("sigmoid", lambda b, a, y: b.mul(y, b.sub(b.like(y, 1.0), y)),
              "1.0 / (1.0 + np.exp(-a))"),
    _function("softplus", lambda b, a, y: b.op("sigmoid", a), "np.logaddexp(a, 0.0)"),
    _function("gelu", _gelu, "0.5 * a * (1.0 + erf(a * np.sqrt(0.5)))"),
    _function("silu", _silu, "a / (1.0 + np.exp(-a))"),
    _function("relu", _positive, "np.maximum(a, 0.0)", "exact", work=1.0),
    _rounding("floor", "np.floor(a)"), _rounding("ceil", "np.ceil(a)"),
    _rounding("trunc", "np.trunc(a)"), _rounding("round", "np.round(a)"),
)  # fmt: skip

# --- arithmetic ------------------------------------------------------------------------------

_F4, _F5, _I4, _B4 = (
    "!graph.tensor<f32, [4]>", "!graph.tensor<f32, [5]>", "!graph.tensor<i32, [4]>",
    "!graph.tensor<i1, [4]>",
)  # fmt: skip
_SIZES = Refused((_F4, _F5), "along axis 0 one has size 4, the other 5")
_RANKS = Refused((_F4, "!graph.tensor<f32, [4, 4]>"), "one has 1 axes, the other 2")
_DTYPES = Refused((_F4, _I4), "the dtypes differ")


def _arithmetic(
    name: str, source: str, reference: str, gradient: Gradient | NoGradient,
    dtype: DTypeRule = rules.numbers, tolerance: Tolerance = "rounded", work: float = 1.0,
) -> Operator:  # fmt: skip
    """Of two operands."""
    return Operator(
        name, ("a", "b"), (), rules.same_shapes, dtype, (_SIZES, _RANKS, _DTYPES), reference,
        source, gradient, rules.per_result(work), rules.pointwise, tolerance, True,
    )  # fmt: skip


def _of_product(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    x, y = o.operands
    return b.mul(ct, y), b.mul(ct, x)


def _of_quotient(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    _, y = o.operands
    return b.div(ct, y), b.neg(b.div(b.mul(ct, o.result), y))


def _of_power(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    x, y = o.operands
    zero = b.zeros(x)
    number = b.number_of(y)
    if number:
        rest = x if number == 2.0 else b.op("pow", x, b.like(x, number - 1.0))
        return b.mul(ct, b.times(rest, number)), None
    # An exponent of 0 gives a constant, and a base of 0 or less has no logarithm.
    base = b.mul(y, b.op("pow", x, b.plus(y, -1.0)))
    of_base = b.where(b.op("eq", y, zero), zero, base)
    inside = b.where(b.op("gt", x, zero), x, b.like(x, 1.0))
    return b.mul(ct, of_base), b.mul(ct, b.mul(o.result, b.op("log", inside)))


def _of_extreme(first: str) -> Gradient:
    """All to the operand that is chosen, half to each where they are equal."""

    def gradient(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
        x, y = o.operands
        zero, half = b.zeros(ct), b.times(ct, 0.5)
        same = b.op("eq", x, y)
        parts = (b.where(b.op(first, p, q), ct, zero) for p, q in ((x, y), (y, x)))
        return tuple(b.where(same, half, part) for part in parts)

    return gradient


def _of_remainder(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    x, y = o.operands
    return ct, b.neg(b.mul(ct, b.op("floordiv", x, y)))


def _of_angle(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value, ...]:
    y, x = o.operands
    square = b.add(b.mul(x, x), b.mul(y, y))
    return b.div(b.mul(ct, x), square), b.neg(b.div(b.mul(ct, y), square))


def _compared(name: str, sign: str) -> Operator:
    of = rules.any_dtype if name in ("eq", "ne") else rules.numbers
    return _arithmetic(name, f"({{a}} {sign} {{b}})", f"a {sign} b", _PLACES, rules.to_bool(of),
                       "exact")  # fmt: skip


def _bitwise(name: str, sign: str) -> Operator:
    return _arithmetic(name, f"({{a}} {sign} {{b}})", f"a {sign} b", _BITS,
                       rules.whole_or_bool, "exact")  # fmt: skip


ARITHMETIC: tuple[Operator, ...] = (
    _arithmetic("add", "({a} + {b})", "a + b", lambda b, o, ct: (ct, ct)),
    _arithmetic("sub", "({a} - {b})", "a - b", lambda b, o, ct: (ct, b.neg(ct))),
    _arithmetic("mul", "({a} * {b})", "a * b", _of_product),
    _arithmetic("div", "({a} / {b})", "a / b", _of_quotient, rules.floats),
    _arithmetic("pow", "({a} ** {b})", "np.power(a, b)", _of_power, rules.floats, "few ulp", 20.0),
    _arithmetic("floordiv", "({a} // {b})", "np.floor_divide(a, b)", _STEPS),
    _arithmetic("mod", "({a} % {b})", "np.remainder(a, b)", _of_remainder),
    _arithmetic("max", "max({a}, {b})", "np.maximum(a, b)", _of_extreme("gt"), tolerance="exact"),
    _arithmetic("min", "min({a}, {b})", "np.minimum(a, b)", _of_extreme("lt"), tolerance="exact"),
    _arithmetic("atan2", "op.atan2({a}, {b})", "np.arctan2(a, b)", _of_angle, rules.floats,
                "few ulp", 20.0),
    *(_compared(n, s) for n, s in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="),
                                   ("gt", ">"), ("ge", ">="))),
    *(_bitwise(n, s) for n, s in (("and", "&"), ("or", "|"), ("xor", "^"))),
    Operator(
        "neg", ("a",), (), rules.same_shapes, rules.numbers,
        (Refused((_B4,), "takes numbers"),), "-a", "(-{a})", lambda b, o, ct: (b.neg(ct),),
        rules.per_result(1.0), rules.pointwise, "exact", True,
    ),
    Operator(
        "abs", ("a",), (), rules.same_shapes, rules.numbers,
        (Refused((_B4,), "takes numbers"),), "np.abs(a)", "op.abs({a})", _along(_sign),
        rules.per_result(1.0), rules.pointwise, "exact", True,
    ),
    Operator(
        "not", ("a",), (), rules.same_shapes, rules.whole_or_bool,
        (Refused((_F4,), "takes integers or bools"),), "~a", "(~{a})", _BITS,
        rules.per_result(1.0), rules.pointwise, "exact", True,
    ),
)  # fmt: skip


# --- choice and casts ------------------------------------------------------------------------


def _of_choice(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    zero = b.zeros(ct)
    return None, b.where(o.operands[0], ct, zero), b.where(o.operands[0], zero, ct)


def _of_cast(b: GraphBuilder, o: Operation, ct: Value) -> tuple[Value | None, ...]:
    source = o.operands[0].tensor_type.dtype
    through = source.is_float and ct.tensor_type.dtype.is_float
    return (b.cast(ct, source) if through else None,)


CHOICE: tuple[Operator, ...] = (
    Operator(
        "where", ("c", "a", "b"), (), rules.same_shapes, rules.chosen_dtype,
        (Refused((_F4, _F4, _F4), "chooses by bools"), Refused((_B4, _F4, _I4), "dtypes differ"),
         Refused((_B4, _F4, _F5), "along axis 0")),
        "np.where(c, a, b)", "op.where({c}, {a}, {b})", _of_choice, rules.per_result(1.0),
        rules.pointwise, "exact", True,
    ),
    Operator(
        "cast", ("a",), (AttributeDef("dtype", "dtype"),), rules.same_shapes, rules.given_dtype,
        (Refused((), "takes a, not 0 operands", {"dtype": F32}),),
        "converted(a, dtype)", "{a}.to({dtype})", _of_cast, rules.per_result(1.0),
        rules.pointwise, "rounded", True,
    ),
)  # fmt: skip
