"""std.nn against NumPy in float64: every float, rows of 0 to 131072 elements, every axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import (
    DTYPES,
    EPSILON,
    TARGETS,
    module,
    near,
    numbers,
    same,
    some,
    views,
    wide,
)

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS: list[Any] = [
    "f32",
    "bf16",
    *(pytest.param(d, marks=pytest.mark.slow) for d in ("f64", "f16")),
]
ROWS = (1, 2, 3, 31, 32, 33, 127, 128, 129, 1023, 1025, 4095, 8191, 8192, 8193)
LONG = (1024, 20001, 65536, 131072)


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.nn", str(request.param))


def exact(dtype: str) -> float:
    """The rounding of the dtype that a function computes in."""
    return EPSILON["f64" if dtype == "f64" else "f32"]


def rounding(dtype: str) -> float:
    """That of the dtype of the result, where it is another."""
    return 0.0 if dtype in ("f32", "f64") else EPSILON[dtype]


def smallest(dtype: str) -> float:
    """Below the normal numbers of a dtype the error is no longer relative."""
    return {"f16": 2.0**-25, "f64": 2.0**-1074}.get(dtype, 2.0**-133 if dtype == "bf16" else 1e-44)


def softmax(x: Array, axis: int) -> Array:
    x = wide(x)
    if not x.size:
        return x
    with np.errstate(invalid="ignore", divide="ignore"):
        top = x.max(axis=axis, keepdims=True)
        power = np.exp(x - np.where(top == -np.inf, 0, top))
        total = power.sum(axis=axis, keepdims=True)
    return power / np.where(total == 0, 1, total)


SOFTMAX = ("softmax", "log_softmax")


def check_softmax(
    std: Any, x: Array, dtype: str, axis: int = -1, names: Sequence[str] = SOFTMAX
) -> None:
    n = x.shape[axis]
    below = wide(x).max(axis=axis, keepdims=True) - wide(x) if x.size else wide(x)
    for name in names:
        found = getattr(std, name)(x, axis=axis)
        assert found.dtype == x.dtype and found.shape == x.shape
        if name == "softmax":
            want = softmax(x, axis)
            error = want * ((n + 3 * below + 20) * exact(dtype) + rounding(dtype) * 1.01)
            error += smallest(dtype) + (0 if dtype == "f64" else 2.0**-126)
        else:
            with np.errstate(divide="ignore"):
                total = np.log(np.exp(-below).sum(axis=axis, keepdims=True)) if x.size else 0
            want = -below - total
            error = (n + 2 * below + 8) * exact(dtype) + rounding(dtype) * 1.01 * np.abs(want)
        near(found, want, error)


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.sample(1)
def test_softmax_of_rows(std: Any, dtype: str, name: str) -> None:
    for n in ROWS:
        x = numbers(dtype, (3, n), seed=n) * DTYPES[dtype].type(3)
        check_softmax(std, x, dtype, names=[name])


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.sample(1)
def test_softmax_of_long_rows(std: Any, dtype: str, name: str) -> None:
    for n in LONG:
        check_softmax(std, numbers(dtype, (2, n), seed=n), dtype, names=[name])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.sample(1)
def test_softmax_along_every_axis(std: Any, axis: int) -> None:
    for shape in ((2, 3, 5), (1, 1, 1), (4, 33, 31), (33, 5, 65), (1, 40, 1)):
        check_softmax(std, numbers("f32", shape), "f32", axis)


@pytest.mark.slow
def test_softmax_down_long_columns(std: Any) -> None:
    check_softmax(std, numbers("f32", (20001, 3)), "f32", 0)
    check_softmax(std, numbers("bf16", (2, 9001, 33)), "bf16", 1)


def test_softmax_of_nothing(std: Any) -> None:
    for shape in ((0, 5), (5, 0), (0, 0), (0, 3, 4)):
        x = np.ones(shape, np.float32)
        for axis in range(len(shape)):
            assert std.softmax(x, axis=axis).shape == shape
            assert std.log_softmax(x, axis=axis).shape == shape


@pytest.mark.parametrize("axis", [0, pytest.param(1, marks=pytest.mark.optimized)])
@pytest.mark.slow
def test_rows_that_are_masked_out(std: Any, axis: int) -> None:
    """Nothing but -inf gives zeros, and NaN nowhere."""
    for n in (1, 5, 130, 9000):
        x = numbers("f32", (4, n))
        x[1], x[2, ::2] = -np.inf, -np.inf
        given = x if axis else np.ascontiguousarray(x.T)
        found = std.softmax(given, axis=axis)
        near(found if axis else found.T, softmax(x, 1), n * 1e-7)
        logs = std.log_softmax(given, axis=axis)
        logs = logs if axis else logs.T
        assert (logs[1] == -np.inf).all() and not np.isnan(logs).any()


@pytest.mark.optimized
def test_nan_stays_in_its_row(std: Any) -> None:
    x = numbers("f32", (3, 70))
    x[1, 30] = np.nan
    for found in (std.softmax(x), std.log_softmax(x)):
        same(np.isnan(found).all(axis=1), np.array([False, True, False]))
        same(np.isnan(found).any(axis=1), np.array([False, True, False]))


@pytest.mark.optimized
def test_large_numbers_do_not_overflow(std: Any) -> None:
    x = np.array([[1e30, 1e30, -1e30], [3e38, 0, 0], [-3e38, -3e38, -3e38]], np.float32)
    near(std.softmax(x), [[0.5, 0.5, 0], [1, 0, 0], [1 / 3] * 3], 1e-6)


def layernorm(x: Array, weight: Array, bias: Array, eps: float) -> tuple[Array, Array]:
    """The exact result, and the error that the page allows without the rounding at the end."""
    x = wide(x)
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    want = centred * scale * wide(weight) + wide(bias)
    n = x.shape[-1]
    top = np.abs(centred).max(axis=-1, keepdims=True)
    top = top + (n + 2) * EPSILON["f32"] * np.abs(x).max(axis=-1, keepdims=True)
    error = (n + 16) * (top * scale * np.abs(wide(weight)) + np.abs(want))
    return want, error


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.sample(1)
def test_layernorm(std: Any, dtype: str) -> None:
    for n in (*ROWS, 65536, 131072):
        x = numbers(dtype, (3, n), seed=n)
        weight, bias = numbers(dtype, n, seed=1), numbers(dtype, n, seed=2)
        want, error = layernorm(x, weight, bias, 1e-5)
        found = std.layernorm(x, weight, bias)
        assert found.dtype == x.dtype
        near(found, want, error * exact(dtype) + rounding(dtype) * 1.01 * np.abs(want) + 2.0**-25)


def test_layernorm_far_from_zero(std: Any) -> None:
    """The mean is taken off before the squares: no cancellation."""
    x = (numbers("f32", (5, 1000)) * 0.5 + 4096).astype(np.float32)
    one, zero = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    want, _ = layernorm(x, one, zero, 1e-5)
    near(std.layernorm(x, one, zero), want, 1e-5)


@pytest.mark.parametrize("n", [64, 513, 4096, 20000])
def test_layernorm_of_a_small_spread_far_from_zero(std: Any, n: int) -> None:
    """What rounding leaves of the mean, many times the spread, is taken off too."""
    x = (1000 + 1e-3 * numbers("f32", (4, n))).astype(np.float32)
    one, zero = np.ones(n, np.float32), np.zeros(n, np.float32)
    want, _ = layernorm(x, one, zero, 1e-5)
    near(std.layernorm(x, one, zero), want, 1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.slow
def test_rmsnorm(std: Any, dtype: str) -> None:
    for n in (*ROWS, 65536, 131072):
        x, weight = numbers(dtype, (3, n), seed=n), numbers(dtype, n, seed=1)
        z = wide(x)
        want = z / np.sqrt((z**2).mean(axis=-1, keepdims=True) + 1e-6) * wide(weight)
        error = (n / 2 + 8) * exact(dtype) + rounding(dtype) * 1.01
        near(std.rmsnorm(x, weight), want, error * np.abs(want) + 2.0**-25)


def test_norms_of_more_axes_and_constant_rows(std: Any) -> None:
    x, weight = numbers("f32", (2, 3, 5, 130)), numbers("f32", 130, seed=1)
    bias = numbers("f32", 130, seed=2)
    near(std.layernorm(x, weight, bias, eps=0.5), layernorm(x, weight, bias, 0.5)[0], 2e-5)
    flat = np.full((2, 130), 3, np.float32)
    near(std.layernorm(flat, weight, bias), np.broadcast_to(wide(bias), (2, 130)), 1e-6)
    same(
        std.rmsnorm(np.zeros((2, 130), np.float32), weight), np.zeros((2, 130), np.float32) * weight
    )
    # weights in f32 beside narrow rows, as they are trained
    narrow = x[0, 0].astype(DTYPES["bf16"])
    want, error = layernorm(narrow, weight, bias, 1e-5)
    near(std.layernorm(narrow, weight, bias), want, error * 2.0**-24 + 2.0**-8 * np.abs(want))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layernorm", "rmsnorm", "transpose"])
@pytest.mark.slow
def test_layouts(placed: Any, request: pytest.FixtureRequest, name: str) -> None:
    """On a GPU sums of a strided row are grouped otherwise: there they agree to the rounding."""
    on_cpu = request.node.callspec.params["std"] == "cpu"
    for x in views(numbers("f32", (66, 90))).values():
        n = x.shape[1]
        extra: tuple[Array, ...] = ()
        if name.endswith("norm"):
            extra = (numbers("f32", 2 * n, seed=3)[::2],) * (2 if name == "layernorm" else 1)
        function = getattr(placed, name)
        found, plain = function(x, *extra), function(x.copy(), *(e.copy() for e in extra))
        if on_cpu or name == "transpose":
            same(found, plain)
        else:
            near(found, wide(plain), 3e-6 * (1 + np.abs(plain)))


@pytest.mark.parametrize("shape", [pytest.param((4097, 4095), marks=pytest.mark.slow), (4095, 513)])
def test_odd_sizes(std: Any, shape: tuple[int, int]) -> None:
    x = numbers("f32", shape)
    same(std.transpose(x), x.T)
    near(std.softmax(x), softmax(x, 1), 1e-6)


@pytest.mark.parametrize("dtype", some("bool", "bf16", "i64"))
@pytest.mark.slow
def test_transpose(std: Any, dtype: str) -> None:
    for m in (0, 1, 2, 63, 64, 65, 131):
        for n in (0, 1, 3, 63, 64, 65, 197):
            x = numbers(dtype, (m, n), seed=m)
            found = std.transpose(x)
            assert found.dtype == x.dtype
            same(found, x.T)


@pytest.mark.parametrize("call", [
    "softmax(x, axis=2)", "softmax(x, axis=-3)", "softmax(i)", "softmax(None)", "log_softmax(i)",
    "layernorm(x, v, v)", "rmsnorm(x, v)", "transpose(v)", "rmsnorm(x)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {"x": np.ones((2, 3), np.float32), "v": np.ones(2, np.float32),
             "i": np.ones((2, 3), np.int32)}  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)
