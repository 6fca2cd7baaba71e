"""std.stencil against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import (
    DTYPES,
    EPSILON,
    FLOATS,
    INTEGERS,
    TARGETS,
    module,
    near,
    numbers,
    one_thread,
    same,
    some,
    views,
    wide,
)

SIZES = (0, 1, 2, 255, 1023, 1024, 1025, 5003)
WEIGHTS = (1, 2, 3, 8, 255, 256, 257, 700)
MOST = some("i8", "u32", "i64", "bf16", "f32", "f64")[1:]


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.stencil", str(request.param))


def convolved(x: Any, weights: Any, mode: str) -> Any:
    """What the documents say, whichever of the two is longer."""
    if not x.size:
        return np.zeros(0, x.dtype)
    whole = np.convolve(x, weights)
    n, w = x.size, weights.size
    first = (w - 1) // 2 if mode == "same" else w - 1
    return whole[first : first + (n if mode == "same" else max(0, n - w + 1))]


def check(found: Any, x: Any, weights: Any, mode: str, dtype: str) -> None:
    assert found.dtype == DTYPES[dtype]
    if dtype in INTEGERS:
        kind = np.uint64 if dtype[0] == "u" else np.int64
        with np.errstate(over="ignore"):
            exact = convolved(x.astype(kind), weights.astype(kind), mode)
        same(found, exact.astype(DTYPES[dtype]))
        return
    exact = convolved(wide(x), wide(weights), mode)
    size = convolved(np.abs(wide(x)), np.abs(wide(weights)), mode)
    acc = "f64" if dtype == "f64" else "f32"
    lost = EPSILON[acc] * (weights.size + 2) * size * 2
    least = {"f8e4m3": 2.0**-10, "f8e5m2": 2.0**-17, "f16": 2.0**-25}.get(dtype, 0.0)
    near(found, exact, lost + EPSILON[dtype] * 1.01 * np.abs(exact) + least)


@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.parametrize("mode", ["same", "valid"])
@pytest.mark.sample(1)
def test_convolution_of_every_size(std: Any, dtype: str, mode: str) -> None:
    for n in SIZES:
        for w in WEIGHTS:
            x, weights = numbers(dtype, n, seed=n), numbers(dtype, w, seed=w)
            if dtype.startswith("f8"):
                x, weights = (wide(x) / 8).astype(x.dtype), (wide(weights) / 8).astype(x.dtype)
            check(std.convolve1d(x, weights, mode=mode), x, weights, mode, dtype)


def test_the_modes_are_those_of_numpy(std: Any) -> None:
    for w in (1, 2, 5, 6):
        x, weights = np.arange(50), np.arange(w) + 1
        same(std.convolve1d(x, weights), np.convolve(x, weights, "same"))
        same(std.convolve1d(x, weights, mode="valid"), np.convolve(x, weights, "valid"))


@pytest.mark.slow
def test_layouts_of_a_convolution(placed: Any) -> None:
    weights = np.array([3, 0, -1, 0, 2], np.int64)
    for x in views(numbers("i64", 3000)).values():
        check(placed.convolve1d(x, weights[::2]), x, weights[::2], "same", "i64")


def laplace(x: Any, dtype: str) -> Any:
    """In the order of the kernel, so that every bit is the same."""
    acc = DTYPES["f32"] if dtype in FLOATS and dtype != "f64" else DTYPES[dtype]
    p = np.pad(x.astype(acc), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        high, wide_part = p[:-2, 1:-1] + p[2:, 1:-1], p[1:-1, :-2] + p[1:-1, 2:]
        return ((high + wide_part) - acc.type(4) * p[1:-1, 1:-1]).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.sample(1)
def test_laplacian_of_every_size(std: Any, dtype: str) -> None:
    for m in (0, 1, 2, 31, 32, 33, 70):
        for n in (0, 1, 2, 31, 32, 33, 64, 129):
            x = numbers(dtype, (m, n), seed=m)
            found = std.laplace2d(x)
            assert found.dtype == x.dtype
            same(found, laplace(x, dtype))


def test_layouts_of_a_laplacian(placed: Any) -> None:
    for x in views(numbers("f32", (75, 90))).values():
        same(placed.laplace2d(x), laplace(x, "f32"))


def test_every_run_gives_the_same_bits(std: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights = numbers("f32", 20011), numbers("f32", 77)
    bits: set[bytes] = set()
    for threads in (1, 2, 5):
        one_thread(monkeypatch, threads)
        bits.add(std.convolve1d(x, weights).tobytes())
    assert len(bits) == 1


@pytest.mark.parametrize("call", [
    "convolve1d(x, none)", "convolve1d(x, whole)", "convolve1d(square, x)", "convolve1d(x)",
    "convolve1d(x, x, mode='full')", "convolve1d(x, square)", "convolve1d(bits, bits)",
    "laplace2d(x)", "laplace2d()", "laplace2d(None)", "laplace2d(square > 0)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {"x": np.ones(3, np.float32), "none": np.ones(0, np.float32),
             "whole": np.ones(3, np.int32), "square": np.ones((2, 2), np.float32),
             "bits": np.ones(3, np.bool_)}  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)
