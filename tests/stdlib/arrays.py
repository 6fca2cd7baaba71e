"""For tests: dtypes, sizes and inputs that the tests of the standard library share."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tests import quick_code

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_), "i8": np.dtype(np.int8), "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
EPSILON = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53,
           "f8e4m3": 2.0**-4, "f8e5m2": 2.0**-3}  # fmt: skip
SIZES = (0, 1, 2, 3, 31, 32, 33, 255, 256, 257, 1023, 2047, 2049, 4095, 4096, 4097, 100003)
TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def some(*fast: str) -> list[Any]:
    """All dtypes; those not named here are for `make test-all`, as each is compiled anew."""
    return [d if d in fast else pytest.param(d, marks=pytest.mark.slow) for d in DTYPES]


def module(name: str, target: str) -> Any:
    """A module of the library, which all tests share that ask for code of one level."""
    return _module(name, target, quick_code.level() if target == "cpu" else quick_code.FULL)


@functools.cache
def _module(name: str, target: str, level: int) -> Any:
    return tessera.load(name, target=target)


def numbers(dtype: str, shape: int | tuple[int, ...], seed: int = 0) -> Any:
    """Random elements: integers of the whole range, floats around 0."""
    r = np.random.default_rng(seed)
    if dtype == "bool":
        return r.integers(0, 2, shape).astype(np.bool_)
    kind = DTYPES[dtype]
    if dtype in INTEGERS:
        limits = np.iinfo(kind)
        return r.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    return np.asarray(r.standard_normal(shape)).astype(np.float32).astype(kind)


def few(dtype: str, shape: int | tuple[int, ...], seed: int = 0) -> Any:
    """Elements of few values, so that many are equal."""
    r = np.random.default_rng(seed)
    low, high = (0, 2) if dtype == "bool" else (0, 5) if dtype.startswith("u") else (-3, 3)
    return np.asarray(r.integers(low, high, shape)).astype(DTYPES[dtype])


def wide(x: Any) -> Any:
    """The same values in a dtype of NumPy that holds them and computes well."""
    if x.dtype.kind in "iub":
        return x
    return x.astype(np.float64)


def same(found: Any, expected: Any) -> None:
    """Equal bits, NaN like NaN, and the sign of zero."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    a, b = wide(found), wide(expected)
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))


def near(found: Any, expected: Any, error: Any) -> None:
    """Within an error of the exact value; infinities and NaN are what they are."""
    found, expected = wide(np.asarray(found)), np.asarray(expected)
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    distance = np.abs(found[finite] - expected[finite])
    assert (distance <= np.broadcast_to(error, expected.shape)[finite]).all(), distance.max()


def one_thread(monkeypatch: pytest.MonkeyPatch, count: int = 1) -> None:
    """From here on the CPU target runs with this many threads."""
    from tessera_backend.cpu import thread_pool

    monkeypatch.setattr(thread_pool, "thread_count", lambda: count)


def views(x: Any) -> dict[str, Any]:
    """Arrays of the same rank over the same elements, laid out otherwise."""
    step = tuple(slice(None, None, 2) for _ in x.shape)
    back = tuple(slice(None, None, -1) for _ in x.shape)
    found = {"stepped": x[step], "reversed": x[back], "transposed": x.T}
    if x.ndim:
        found["broadcast"] = np.broadcast_to(x[:1], x.shape)
        found["off by one"] = x[1:]
    return found
