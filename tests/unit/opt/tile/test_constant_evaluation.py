"""Constant folding gives what the operations of Tile IR give: checked against NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera_lang.opt.tile import constant_evaluation
from tessera_lang.types.dtype import DTYPES, DType, integer_range

FLOATS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
INTEGERS = [d for d in DTYPES.values() if d.is_integer]


def same(a: Any, b: Any) -> bool:
    """Equal with the sign of zero; one NaN is as good as another."""
    x, y = float(a), float(b)
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    return x == y and math.copysign(1, x) == math.copysign(1, y)


@pytest.mark.parametrize("name", FLOATS)
@given(a=st.floats(), b=st.floats())
def test_float_arithmetic(name: str, a: float, b: float) -> None:
    dtype, numpy_type = DTYPES[name], FLOATS[name]
    with np.errstate(all="ignore"):
        x, y = numpy_type(a), numpy_type(b)
        assert same(constant_evaluation.round_float(a, dtype), x)
        for operation, expected in (
            ("add", x + y), ("sub", x - y), ("mul", x * y), ("div", x / y),
        ):  # fmt: skip
            got = constant_evaluation.binary(operation, float(x), float(y), dtype)
            assert got is not None and same(got, expected), operation


def test_signed_zeros_and_nan() -> None:
    f32 = DTYPES["f32"]
    table = [
        (("add", -0.0, 0.0), 0.0),
        (("add", -0.0, -0.0), -0.0),
        (("sub", 0.0, 0.0), 0.0),
        (("mul", -0.0, 1.0), -0.0),
        (("min", -0.0, 0.0), -0.0),
        (("min", 0.0, -0.0), -0.0),
        (("max", -0.0, 0.0), 0.0),
        (("max", math.nan, 1.0), math.nan),
        (("min", 1.0, math.nan), math.nan),
        (("div", 1.0, -0.0), -math.inf),
    ]
    for (name, a, b), expected in table:
        got = constant_evaluation.binary(name, a, b, f32)
        assert got is not None and same(got, expected), (name, a, b)
    for predicate in ("eq", "lt", "le", "gt", "ge"):
        assert constant_evaluation.compare(predicate, math.nan, math.nan) is False
    assert constant_evaluation.compare("ne", math.nan, math.nan) is True
    assert same(constant_evaluation.unary("neg", 0.0, f32), -0.0)
    assert same(constant_evaluation.unary("round", -0.4, f32), -0.0)
    assert constant_evaluation.unary("round", 2.5, f32) == 2.0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(dtype: DType) -> None:
    low, high = integer_range(dtype)
    values = sorted({low, low + 1, -7, -1, 0, 1, 2, 7, dtype.bits - 1, dtype.bits, high - 1, high})
    wrap = lambda v: (v - low) % (high - low + 1) + low  # noqa: E731
    for a in (v for v in values if low <= v <= high):
        for b in (v for v in values if low <= v <= high):
            assert constant_evaluation.binary("add", a, b, dtype) == wrap(a + b)
            assert constant_evaluation.binary("sub", a, b, dtype) == wrap(a - b)
            assert constant_evaluation.binary("mul", a, b, dtype) == wrap(a * b)
            assert constant_evaluation.binary("floordiv", a, b, dtype) == (wrap(a // b) if b else 0)
            assert constant_evaluation.binary("mod", a, b, dtype) == (wrap(a % b) if b else 0)
            far = not 0 <= b < dtype.bits
            assert constant_evaluation.binary("shl", a, b, dtype) == (0 if far else wrap(a << b))
            assert constant_evaluation.binary("shr", a, b, dtype) == (a >> (200 if far else b))


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (257, "i32", "bf16", 256.0), (259, "i32", "bf16", 260.0), (511, "i32", "bf16", 512.0),
        (-259, "i32", "bf16", -260.0), (300, "i32", "u8", 44), (200, "u8", "i8", -56),
        (1e10, "f32", "i32", 2**31 - 1), (-1e10, "f32", "u32", 0), (math.nan, "f32", "i32", 0),
        (-1.9, "f32", "i32", -1), (1e6, "f32", "f16", math.inf), (1e6, "f32", "f8e4m3", 448.0),
        (-1e6, "f32", "f8e5m2", -57344.0), (2**64 - 1, "u64", "index", -1),
        (-0.0, "f32", "bool", False),
        (2**53 + 1, "i64", "f64", float(2**53)), (2**24 + 1, "i32", "f32", float(2**24)),
        (65520, "i32", "f16", math.inf), (65519, "i32", "f16", 65504.0),
    ],
)  # fmt: skip
def test_casts(value: Any, source: str, target: str, expected: Any) -> None:
    assert constant_evaluation.cast(value, DTYPES[source], DTYPES[target]) == expected
