"""Means, variances, deviations, norms and quantiles of integers: f64 where f32 has not all of them,
in kernels and in the host program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, results_of

R = np.random.default_rng(3)
F64, F32 = np.float64, np.float32
WIDE = (np.int32, np.int64, np.uint32, np.uint64)
NARROW = (np.int8, np.uint8, np.int16, np.uint16, np.bool_)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "op.mean(x{})": np.mean, "op.var(x{})": np.var, "op.std(x{})": np.std,
    "op.var(x{}, ddof=1)": lambda x, **k: np.var(x, ddof=1, **k),
    "op.norm(x{})": lambda x, **k: np.linalg.norm(x.astype(F64), **k),
    "op.median(x{})": np.median, "op.quantile(x{}, q=0.3)": lambda x, **k: np.quantile(x, 0.3, **k),
    "op.percentile(x{}, q=(10, 90))": lambda x, **k: np.percentile(x, (10, 90), **k),
}  # fmt: skip
LINES = ("op.median", "op.quantile", "op.percentile")
z = 10**9 + R.integers(0, 1000, (5, 7))
k, u = z.astype(np.int32), (3 * z).astype(np.uint32)
v = R.normal(size=7)
GIVEN = {"z": z, "k": k, "u": u, "v": v, "w": v.astype(F32)}
EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "op.mean(k[1:4, ::2], axis=(0, 1), keepdims=True)":
        lambda: k[1:4, ::2].mean(keepdims=True),
    "op.mean(op.arange(7)) * v":
        lambda: 3.0 * v,
    "k.to(f64) - op.mean(k)":
        lambda: k - k.mean(),
    "(z.to(f64) - op.mean(z, axis=1)[:, None]) / op.std(z, axis=1)[:, None]":
        lambda: (z - z.mean(1)[:, None]) / z.std(1)[:, None],
    "w * op.mean(op.where(w > 0, 1, 0))":
        lambda: GIVEN["w"] * F32((v > 0).mean()),
    "v * op.mean(op.where(v > 0, 1, 0))":
        lambda: v * (v > 0).mean(),
    "v * op.std(op.where(v > 0, 3, 1))":
        lambda: v * np.where(v > 0, 3, 1).std(),
    "v - op.median(op.where(v > 0, 1, 2)).to(f64)":
        lambda: v - np.median(np.where(v > 0, 1, 2)),
    "op.mean(op.where(k > 10**9 + 500, 1, 0), axis=1)":
        lambda: (k > 10**9 + 500).mean(1).astype(F32),
    "op.norm(op.where(v > 0, 3, 4))":
        lambda: F32(np.linalg.norm(np.where(v > 0, 3, 4))),
}  # fmt: skip


def _elements(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    info = None if dtype is np.bool_ else np.iinfo(dtype)
    low, high = (0, 2) if info is None else (max(info.min, -(2**45)), min(info.max, 2**45))
    return R.integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", ["", ", axis=1"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [*WIDE, *NARROW])
@pytest.mark.sample(6)
def test_integers(dtype: Any, function: str, axis: str, target: str) -> None:
    x = _elements(dtype, (5, 9))
    if dtype is np.bool_ and function.startswith(LINES):
        pytest.skip("bools are refused there")
    want = FUNCTIONS[function](x.astype(F64), **({"axis": 1} if axis else {}))
    wide = dtype is not np.bool_  # no floats are named
    want = np.asarray(want, F64 if wide else F32)
    got = results_of(function.format(axis), {"x": x}, target)
    assert np.asarray(got).dtype == want.dtype
    agree(got, want, *((1e-13, 0) if wide else (1e-5, 1e-5)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.sample(5)
def test_expressions(expression: str, target: str) -> None:
    want = np.asarray(EXPRESSIONS[expression]())
    rtol = 1e-12 if want.dtype == F64 else 1e-6
    agree(results_of(expression, GIVEN, target), want, rtol, rtol)


@pytest.mark.parametrize("axis", ["", ", axis=1"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.sample(4)
def test_the_host_program(target: str, function: str, axis: str) -> None:
    text = f"def f(x):\n    return {function.format(axis)}\n"
    x = _elements(np.int64, (5, 9))
    got = tessera.compile(text, target=target).f(x)
    want = FUNCTIONS[function](x.astype(F64), **({"axis": 1} if axis else {}))
    agree(np.asarray(got), np.asarray(want), 1e-14, 0)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.sample(2)
def test_lanes(dtype: Any, target: str) -> None:
    text = (
        "@kernel tile[(32,)] grid[(m,)]\ndef f(x: i32[m, n], mean: mut f64[m], var: mut f64[m]):\n"
        "    r = group_linear_id()\n    if tile_linear_id() == 0:\n"
        "        mean[r] = op.mean(x[r, :])\n        var[r] = op.var(x[r, 1:8])\n"
    )
    name = np.dtype(dtype).name.replace("uint", "u").replace("int", "i")
    x = _elements(dtype, (5, 9))
    mean, var = np.zeros(5), np.zeros(5)
    text = text.replace("i32", name)
    tessera.compile(text, target=target).f(x, mean, var)
    agree((mean, var), (x.mean(1), x[:, 1:8].astype(F64).var(1)), 1e-13, 0)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [*WIDE, np.int16])
@pytest.mark.sample(2)
def test_means_of_the_library(dtype: Any, target: str) -> None:
    text = "import std.reduce\n\ndef f(x):\n    return std.reduce.mean(x, axis=1)\n"
    x = _elements(dtype, (5, 9))
    want = x.mean(1).astype(F64 if dtype in WIDE else F32)
    agree(tessera.compile(text, target=target).f(x), want, 1e-6 if dtype is np.int16 else 1e-14, 0)


@pytest.mark.parametrize("dtype", NARROW[:-1])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.sample(2)
def test_beside_narrower_floats_means_of_narrow_integers_are_f32(function: str, dtype: Any) -> None:
    x = _elements(dtype, (5, 9))
    source = f"{function.format(', axis=1')} + op.sum(w)"
    got = results_of(source, {"x": x, "w": np.zeros(3, F32)}, "cpu")
    assert got.dtype == F32
    agree(got, np.asarray(FUNCTIONS[function](x.astype(F64), axis=1), F32), 1e-5, 1e-5)


def test_a_result_declared_f32_is_refused() -> None:
    text = "def f(k: i32[m, n]) -> f32:\n    return op.mean(k)"
    with pytest.raises(tessera.TesseraError, match="T0208"):
        results_of(text, GIVEN, "cpu")


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", [
    "op.mean(z)", "op.std(k, axis=1)", "op.norm(u)", "op.quantile(k, 0.3, axis=1)",
])  # fmt: skip
def test_code_for_gpus(source: str) -> None:
    assembled(source, GIVEN)
