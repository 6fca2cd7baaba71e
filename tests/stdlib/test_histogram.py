"""std.histogram against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, INTEGERS, SIZES, TARGETS, module, numbers, same, views


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.histogram", str(request.param))


def counted(x: Any, bins: int = 256) -> Any:
    return np.bincount(x.reshape(-1).astype(np.int64), minlength=bins).astype(np.int32)


def test_bytes_of_every_size(std: Any) -> None:
    for n in (*SIZES, 15, 16, 17, 32768 * 3 + 5):
        x = numbers("u8", n, seed=n)
        found = std.histogram(x)
        assert found.dtype == np.int32
        same(found, counted(x))


def test_bytes_that_are_all_the_same(std: Any) -> None:
    for value in (0, 7, 255):
        x = np.full(70001, value, np.uint8)
        same(std.histogram(x), counted(x))


@pytest.mark.slow
def test_layouts(placed: Any) -> None:
    for shape in ((5000,), (40, 33), (5, 6, 7)):
        for x in views(numbers("u8", shape)).values():
            same(placed.histogram(x), counted(x))
            same(placed.bincount(x, 256), counted(x))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.sample(2)
def test_integers_of_every_dtype(std: Any, dtype: str) -> None:
    for bins in (1, 3, 100):
        for n in SIZES:
            x = np.random.default_rng(n).integers(0, bins, n).astype(DTYPES[dtype])
            found = std.bincount(x, bins)
            assert found.dtype == np.int32
            same(found, counted(x, bins))


@pytest.mark.parametrize("dtype", ["u16", "i64", "u64"])
@pytest.mark.sample(2)
def test_many_bins(std: Any, dtype: str) -> None:
    for bins in (8191, 8192, 8193, 60000):
        x = np.random.default_rng(bins).integers(0, bins, 100003).astype(DTYPES[dtype])
        same(std.bincount(x, bins), counted(x, bins))


def test_no_bins(std: Any) -> None:
    assert std.bincount(np.zeros(0, np.int32), 0).shape == (0,)


@pytest.mark.parametrize("dtype", ["i32", "u64", "i8"])
@pytest.mark.parametrize("bins", [10, 9000])
def test_a_value_outside_is_reported(std: Any, dtype: str, bins: int) -> None:
    x = np.zeros(5000, DTYPES[dtype])
    x[77] = np.iinfo(DTYPES[dtype]).min or np.iinfo(DTYPES[dtype]).max
    with pytest.raises(tessera.TesseraError, match="at least 0 and below"):
        np.asarray(std.bincount(x, bins))


@pytest.mark.parametrize("call", [
    "histogram(floats)", "histogram(wide)", "histogram()", "bincount(floats, 3)",
    "bincount(bits, 2)", "bincount(wide, -1)", "bincount(wide)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {"floats": np.ones(3, np.float32), "wide": np.ones(3, np.int32),
             "bits": np.ones(3, np.bool_)}  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)


@pytest.mark.sample(1)
def test_what_a_gpu_runs_counts_the_same() -> None:
    """A CPU counts another way; the kernels of a GPU give the same on it."""
    k = tessera.load("std.histogram", target="cpu")
    for n in (0, 1, 17, 5000, 70_001):
        x = numbers("u8", n, seed=n)
        for kernel in (k._count_bytes, k._count_few, k._count_many):
            counts = np.zeros(256, np.int32)
            kernel(x, counts)
            same(counts, counted(x))
