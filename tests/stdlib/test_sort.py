"""std.sort against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import (
    DTYPES,
    FLOATS,
    TARGETS,
    few,
    module,
    numbers,
    one_thread,
    same,
    some,
    views,
    wide,
)

SIZES = (0, 1, 2, 33, 255, 1024, 1025, 4095, 4096, 4097, 30_001)
MOST = some("u8", "f32")


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.sort", str(request.param))


@pytest.mark.parametrize("name", ["argsort", "sort"])
@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.sample(1)
def test_every_size(std: Any, dtype: str, name: str) -> None:
    for n in SIZES:
        for make in (numbers, few):
            x = make(dtype, n, seed=n)
            x[wide(x) == 0] = 0  # which of two zeros comes first has its own test
            found = np.asarray(getattr(std, name)(x))
            if name == "sort":
                same(found, np.sort(wide(x), kind="stable").astype(DTYPES[dtype]))
            else:
                assert found.dtype == np.int64
                np.testing.assert_array_equal(found, np.argsort(wide(x), kind="stable"))


@pytest.mark.parametrize("n", [700, 3000, 5000])
@pytest.mark.parametrize("dtype", some("f32"))
@pytest.mark.sample(1)
def test_numbers_that_are_none_come_last(std: Any, dtype: str, n: int) -> None:
    if dtype not in FLOATS:
        return
    x = numbers(dtype, n, seed=1)
    x[::7] = np.nan
    x[3::11] = 0.0
    x[4::11] = -0.0
    if dtype != "f8e4m3":
        x[5::13], x[6::13] = np.inf, -np.inf
    found = wide(np.asarray(std.sort(x)))
    expected = np.sort(wide(x))
    np.testing.assert_array_equal(found, expected)
    zeros = np.signbit(found[found == 0])
    assert zeros.sum() == np.signbit(wide(x)[wide(x) == 0]).sum()
    assert not np.diff(zeros.astype(int)).clip(0).any()
    np.testing.assert_array_equal(np.asarray(std.argsort(x)), np.argsort(wide(x), kind="stable"))


@pytest.mark.parametrize("n", [1000, 4000, 20_000])
@pytest.mark.sample(1)
def test_pairs_keep_their_order(std: Any, n: int) -> None:
    keys, values = few("i32", n, seed=3), numbers("f64", n, seed=4)
    found_keys, found_values = std.sort_pairs(keys, values)
    order = np.argsort(keys, kind="stable")
    same(found_keys, keys[order])
    same(found_values, values[order])


@pytest.mark.parametrize("n", [2001, 9001])
@pytest.mark.parametrize("dtype", some("f32"))
@pytest.mark.slow
def test_other_layouts(placed: Any, dtype: str, n: int) -> None:
    for view in views(numbers(dtype, n, seed=5)).values():
        order = np.lexsort((~np.signbit(wide(view)), wide(view)))  # -0.0 before 0.0
        same(placed.sort(view), view[order])


def test_one_worker_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    std, x = module("std.sort", "cpu"), numbers("f32", 50_000, seed=6)
    several = std.sort(x)
    one_thread(monkeypatch)
    same(std.sort(x), several)


def test_what_cannot_be_sorted(std: Any) -> None:
    with pytest.raises(tessera.TesseraError, match="rank 1, not 2"):
        std.sort(np.zeros((2, 3), np.float32))
    with pytest.raises(tessera.TesseraError, match="a value for each key"):
        std.sort_pairs(np.zeros(3, np.int32), np.zeros(4, np.int32))


@pytest.mark.parametrize("dtype", some("u8", "f32", "i64"))
@pytest.mark.slow
def test_several_parts_and_buckets_of_a_cpu(dtype: str) -> None:
    """A CPU sorts by buckets: of all elements, of one, of few bits, of those that are far apart."""
    std = module("std.sort", "cpu")

    def same_but_one(dtype: str, n: int, seed: int) -> Any:
        x = few(dtype, n, seed=seed)
        x[:], x[seed % n] = x[0], x[0] + 3
        return x

    def falling(dtype: str, n: int, seed: int) -> Any:
        return (np.arange(n)[::-1] // (seed % 7 + 1) % 251).astype(DTYPES[dtype])

    for n in (4097, 131_072, 200_001):
        for make in (numbers, few, same_but_one, falling):
            x = make(dtype, n, seed=n)
            x[wide(x) == 0] = 0
            same(std.sort(x), np.sort(wide(x), kind="stable").astype(DTYPES[dtype]))
            order = np.argsort(wide(x), kind="stable")
            np.testing.assert_array_equal(np.asarray(std.argsort(x)), order)


@pytest.mark.parametrize("dtype", some("i16", "f32", "u64"))
@pytest.mark.slow
def test_passes_of_a_gpu_run_on_the_cpu_too(dtype: str) -> None:
    """There the library takes another way; the kernels give the same."""
    std = module("std.sort", "cpu")
    for n in (4097, 9001):
        x, places = few(dtype, n, seed=n), np.arange(n, dtype=np.int64)
        x[wide(x) == 0] = 0
        keys, found = std._passes_in_groups(x, places, True, True)
        order = np.argsort(wide(x), kind="stable")
        same(keys, x[order])
        np.testing.assert_array_equal(np.asarray(found), order)
        same(std._passes_in_groups(x, places[:1], False, False)[0], x[order])
    for n in (1, 33, 1024, 1025, 4096):
        x = few(dtype, n, seed=n)
        x[wide(x) == 0] = 0
        # NumPy 2.4's own default sort of f16 is not in order on some machines with AVX-512.
        right = np.sort(wide(x), kind="stable").astype(DTYPES[dtype])
        same(std._in_a_group(x, np.zeros(1, np.uint8), False, False)[0], right)
