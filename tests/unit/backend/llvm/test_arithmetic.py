"""Every operation on every dtype against NumPy, ml_dtypes and Python, on special values."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.types.dtype import (
    BF16,
    BOOL,
    DTYPES,
    F8E4M3,
    F8E5M2,
    F16,
    F32,
    F64,
    I32,
    INDEX,
    DType,
    integer_range,
)
from tests.quick_code import optimized_of
from tests.unit.backend.tile_kernels import NUMPY, map_kernel

Array = np.ndarray[Any, Any]
INTEGERS = [d for d in DTYPES.values() if d.is_integer]
FLOATS = [F16, BF16, F32, F64, F8E4M3, F8E5M2]
# Optimization of one dtype of each kind; of the others `make test` sees what is generated.
ALL_INTEGERS, ALL_FLOATS = optimized_of(INTEGERS, I32), optimized_of(FLOATS, F32)
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def integer_values(dtype: DType) -> list[int]:
    low, high = integer_range(dtype)
    some = {low, low + 1, low // 2, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 63, high // 2, high - 1, high}
    return sorted(v for v in some if low <= v <= high)


def float_values(dtype: DType) -> Array:
    if dtype.bits == 8:
        return np.arange(256, dtype=np.uint8).view(NUMPY[dtype.name])
    info = ml_dtypes.finfo(NUMPY[dtype.name])
    some = [
        0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 7.0, -7.0, 0.1, 1e-3, 100.25, 12345.0,
        float(info.max), float(info.min), float(info.tiny), float(info.smallest_subnormal),
        -float(info.smallest_subnormal), math.inf, -math.inf, math.nan, float(info.eps),
        1.0 + float(info.eps), 1.0 - float(info.eps) / 2, math.pi, -math.e,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.array(some).astype(NUMPY[dtype.name])


def pairs(values: Any, dtype: DType) -> tuple[Array, Array]:
    array = np.asarray(values, NUMPY[dtype.name])
    a, b = np.meshgrid(array, array, indexing="ij")
    return a.ravel(), b.ravel()


def same_bits(got: Array, wanted: Array) -> None:
    """Equal bit for bit, any NaN being as good as another."""
    assert got.dtype == wanted.dtype
    g, w = got.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(g), np.isnan(w))
    kind = BITS[got.dtype.itemsize]
    keep = ~np.isnan(w)
    np.testing.assert_array_equal(got[keep].view(kind), wanted[keep].view(kind))


def wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def shift(name: str, a: int, count: int, dtype: DType) -> int:
    unsigned = count & ((1 << dtype.bits) - 1)
    if name == "shl":
        return wrap(a << unsigned, dtype) if unsigned < dtype.bits else 0
    return a >> min(unsigned, dtype.bits)


PYTHON = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("dtype", ALL_INTEGERS, ids=str)
@pytest.mark.sample(3)
def test_integer_binary(dtype: DType) -> None:
    values = integer_values(dtype)
    a, b = pairs(values, dtype)
    names = [*PYTHON, "shl", "shr"]
    for name in names:
        got = map_kernel([dtype, dtype], dtype, lambda bb, v, n=name: bb.binary(n, *v))(a, b)
        wanted = [
            shift(name, x, y, dtype) if name in ("shl", "shr") else wrap(PYTHON[name](x, y), dtype)
            for x, y in itertools.product(values, values)
        ]
        np.testing.assert_array_equal(got, np.array(wanted, NUMPY[dtype.name]), err_msg=name)


@pytest.mark.parametrize("dtype", ALL_INTEGERS, ids=str)
def test_integer_unary(dtype: DType) -> None:
    values = integer_values(dtype)
    for name, meaning in (("neg", lambda v: -v), ("abs", abs), ("not", lambda v: ~v)):
        got = map_kernel([dtype], dtype, lambda b, v, n=name: b.unary(n, *v))(
            np.array(values, NUMPY[dtype.name])
        )
        wanted = [wrap(meaning(v), dtype) for v in values]
        np.testing.assert_array_equal(got, np.array(wanted, NUMPY[dtype.name]), err_msg=name)


@pytest.mark.optimized
def test_division_by_a_constant() -> None:
    values = integer_values(INDEX)
    for divisor in (1, 2, 3, -1, -2, 7, 128):
        for name in ("floordiv", "mod"):
            run = map_kernel(
                [INDEX], INDEX,
                lambda b, v, n=name, d=divisor: b.binary(n, v[0], b.index(d)),
            )  # fmt: skip
            wanted = [wrap(PYTHON[name](v, divisor), INDEX) for v in values]
            np.testing.assert_array_equal(run(np.array(values)), wanted)


def test_division_by_zero_is_reported() -> None:
    run = map_kernel([INDEX, INDEX], INDEX, lambda b, v: b.binary("floordiv", *v, site=6))
    got = run(np.array([5, 6, 7]), np.array([2, 0, 3]))
    assert list(got) == [2, 0, 2]
    assert run.fault[:6] == [7, 0, 0, 0, 0, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ALL_FLOATS, ids=str)
def test_float_arithmetic(dtype: DType) -> None:
    a, b = pairs(float_values(dtype), dtype)
    wide = np.float64 if dtype == F64 else np.float32
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        for name, wanted in (("add", x + y), ("sub", x - y), ("mul", x * y), ("div", x / y)):
            got = map_kernel([dtype, dtype], dtype, lambda bb, v, n=name: bb.binary(n, *v))(a, b)
            same_bits(got, rounded(wanted, dtype))


def rounded(values: Array, dtype: DType) -> Array:
    """NumPy's rounding, with our saturation of f8."""
    result = values.astype(NUMPY[dtype.name])
    if dtype.bits == 8:
        largest = float(ml_dtypes.finfo(NUMPY[dtype.name]).max)
        clipped = np.clip(values, -largest, largest)
        result = np.where(np.isnan(values), values, clipped).astype(NUMPY[dtype.name])
    return result


@pytest.mark.parametrize("dtype", ALL_FLOATS, ids=str)
def test_float_floor_division(dtype: DType) -> None:
    a, b = pairs(float_values(dtype), dtype)
    wide = np.float64 if dtype == F64 else np.float32
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        for name, wanted in (("floordiv", np.floor_divide(x, y)), ("mod", np.mod(x, y))):
            got = map_kernel([dtype, dtype], dtype, lambda bb, v, n=name: bb.binary(n, *v))(a, b)
            same_bits(got, rounded(wanted, dtype))


@pytest.mark.parametrize("dtype", optimized_of([F32, F64], F32), ids=str)
def test_float_remainder_is_exact(dtype: DType) -> None:
    generator = np.random.default_rng(7)
    raw = generator.integers(0, 1 << 62, 4000).astype(BITS[dtype.bytes])
    values = raw.view(NUMPY[dtype.name])
    a, b = values[:2000], values[2000:]
    got = map_kernel([dtype, dtype], dtype, lambda bb, v: bb.binary("mod", *v))(a, b)
    with np.errstate(all="ignore"):
        same_bits(got, np.mod(a, b))


@pytest.mark.parametrize("dtype", ALL_FLOATS, ids=str)
def test_float_extremes(dtype: DType) -> None:
    a, b = pairs(float_values(dtype), dtype)

    def meaning(name: str, x: float, y: float) -> float:
        if math.isnan(x) or math.isnan(y):
            return math.nan
        key = lambda v: (v, math.copysign(1.0, v))  # noqa: E731
        return (min if name == "min" else max)(x, y, key=key)

    for name in ("min", "max"):
        got = map_kernel([dtype, dtype], dtype, lambda bb, v, n=name: bb.binary(n, *v))(a, b)
        wanted = np.array(
            [meaning(name, float(x), float(y)) for x, y in zip(a, b, strict=True)]
        ).astype(NUMPY[dtype.name])
        same_bits(got, wanted)


@pytest.mark.parametrize("dtype", ALL_FLOATS, ids=str)
def test_float_unary(dtype: DType) -> None:
    a = float_values(dtype)
    x = a.astype(np.float64 if dtype == F64 else np.float32)
    with np.errstate(all="ignore"):
        meanings = {
            "neg": -x, "abs": np.abs(x), "sqrt": np.sqrt(x), "floor": np.floor(x),
            "ceil": np.ceil(x), "trunc": np.trunc(x), "round": np.round(x),
        }  # fmt: skip
        for name, wanted in meanings.items():
            got = map_kernel([dtype], dtype, lambda b, v, n=name: b.unary(n, *v))(a)
            plain = wanted.astype(a.dtype)  # an infinity is one, where nothing is computed
            exact = rounded(wanted, dtype) if name == "sqrt" else plain
            same_bits(got, exact)


@pytest.mark.parametrize("dtype", ALL_INTEGERS + ALL_FLOATS, ids=str)
@pytest.mark.sample(8)
def test_comparison(dtype: DType) -> None:
    a, b = pairs(float_values(dtype) if dtype.is_float else integer_values(dtype), dtype)
    wide = a.astype(np.float64), b.astype(np.float64)
    x, y = wide if dtype.is_float else (a, b)
    with np.errstate(all="ignore"):
        meanings = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y,
                    "ge": x >= y}  # fmt: skip
    for name, wanted in meanings.items():
        got = map_kernel([dtype, dtype], BOOL, lambda bb, v, n=name: bb.cmp(n, *v))(a, b)
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_bool() -> None:
    a, b = pairs([False, True], BOOL)
    for name, wanted in (("and", a & b), ("or", a | b), ("xor", a ^ b), ("min", a & b),
                         ("max", a | b)):  # fmt: skip
        got = map_kernel([BOOL, BOOL], BOOL, lambda bb, v, n=name: bb.binary(n, *v))(a, b)
        np.testing.assert_array_equal(got, wanted)
    got = map_kernel([BOOL], BOOL, lambda bb, v: bb.unary("not", *v))(a)
    np.testing.assert_array_equal(got, ~a)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ALL_FLOATS, ids=str)
def test_fused_multiply_add(dtype: DType) -> None:
    """One rounding, checked with rationals."""
    generator = np.random.default_rng(3)
    if dtype.bits == 8:
        a, b, c = generator.integers(0, 256, (3, 3000)).astype(np.uint8).view(NUMPY[dtype.name])
    else:
        scale = np.exp2(generator.integers(-12, 12, (3, 3000)))
        a, b, c = (generator.standard_normal((3, 3000)) * scale).astype(NUMPY[dtype.name])
        half = len(a) // 2  # sums that cancel, and ties
        wide = a[:half].astype(np.float64) * b[:half].astype(np.float64)
        with np.errstate(all="ignore"):
            c[:half] = (-wide).astype(NUMPY[dtype.name])
    got = map_kernel([dtype] * 3, dtype, lambda bb, v: bb.fma(*v))(a, b, c)
    for x, y, z, found in zip(a, b, c, got, strict=True):
        p, q, r = float(x), float(y), float(z)
        if not all(map(math.isfinite, (p, q, r))):
            continue
        exact = Fraction(p) * Fraction(q) + Fraction(r)
        assert_nearest(exact, found, dtype)


def assert_nearest(exact: Fraction, found: Any, dtype: DType) -> None:
    kind = NUMPY[dtype.name]
    info = ml_dtypes.finfo(kind)
    value = float(found)
    if abs(exact) >= Fraction(float(info.max)):
        assert abs(value) >= float(info.max)
        return
    assert math.isfinite(value)
    gap = abs(Fraction(value) - exact)
    bits = int(np.array(found).view(BITS[dtype.bytes]))
    for neighbour in (bits + 1, bits - 1):
        other = float(np.array([neighbour % (1 << dtype.bits)], BITS[dtype.bytes]).view(kind)[0])
        if math.isfinite(other):
            distance = abs(Fraction(other) - exact)
            assert gap < distance or (gap == distance and bits % 2 == 0), (exact, value, other)


@pytest.mark.optimized
def test_nothing_is_contracted() -> None:
    """``a * b - a * b`` rounded twice is 0; a fused form is not."""
    a = np.float32([1 + 2**-12, 3.1])
    body = lambda b, v: b.binary("sub", b.binary("mul", v[0], v[0]), v[1])  # noqa: E731
    got = map_kernel([F32, F32], F32, body)(a, a * a)
    assert list(got) == [0.0, 0.0]
