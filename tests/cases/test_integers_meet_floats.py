"""Integers of arrays beside floats, as NumPy computes them: beside f64 any, and beside narrower
floats those that these hold. In kernels, functions over whole arrays and lanes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, assembled, results_of

R = np.random.default_rng(5)
DTYPES = {"i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32,
          "u32": np.uint32, "i64": np.int64, "u64": np.uint64}  # fmt: skip
NARROW = ("i8", "u8", "i16", "u16")
X = R.normal(size=5)
WHOLE = np.array([3, 1, 4, 2, 7])
OPERATORS = (
    "i * x", "x + i", "i - x", "i / x", "x / i", "i // x", "x % i", "i > x", "x <= i", "i == x",
    "i * 0.5 + x", "0.5 * i", "i <= 2.5", "2.5 > i", "i * 1e-3", "i / 2.0", "i ** 0.5", "i ** 2.0",
    "i ** x", "x ** i", "i[0] * x", "x * i[1] + 0.1", "i[1:] - x[:-1]", "i[None, :] * x[:, None]",
    "(i == 2) * x", "i - i.mean()", "i > i.mean()", "i * op.pi",
    "op.linspace(0.0, 1.0, 5) * i", "op.ones_like(x) * i", "op.sum(i) * x", "op.max(i) - x",
    "i.astype(float) * x", "op.cumsum(i) * x", "op.diff(i) * 0.5", "op.abs(i) * 0.1 + x",
)  # fmt: skip
FUNCTIONS = (
    "op.sqrt(i) + x", "op.exp(i / 10.0)", "op.sin(2 * op.pi * i / len(i))", "op.log1p(i) * x",
    "op.arctan2(i, x)", "op.hypot(x, i)", "op.where(x > 0, x, i)", "op.where(x > 0, i, 0.5)",
    "op.maximum(i, x)", "op.minimum(x, i)", "op.maximum(i, 0.5)", "op.clip(i, 0.5, 2.5)",
    "op.copysign(i, x)", "op.power(i, 0.5)", "op.isclose(i, x)", "op.round(i * x, 1)",
    "op.concatenate((i, x))", "op.stack((x, i))", "op.interp(x, op.sort(i), x)", "op.std(i) * x",
    "x - op.median(i)", "op.mean(i) + x", "op.average(x, weights=i)", "op.trapezoid(x, i)",
    "op.sum(i * x)", "op.cumsum(i * x)", "op.sum(i[None, :] * x[:, None], axis=1)",
)  # fmt: skip
PRODUCTS = (
    "i @ x", "x @ i", "op.dot(i, x)", "x.dot(i)", "op.inner(i, x)", "op.outer(i, x)",
    "op.einsum('i,i->', i, x)", "op.einsum('i,j->ij', x, i)", "(i[:, None] * x) @ i",
    "op.cov(op.stack((x, i)))",
)  # fmt: skip
EXPRESSIONS = (*OPERATORS, *FUNCTIONS, *PRODUCTS)


def wanted(text: str, i: np.ndarray, x: np.ndarray) -> Any:
    """What NumPy says in f64: of narrow integers it would compute functions in f16 and f32."""
    wide = i.astype(np.float64)
    with np.errstate(all="ignore"):
        return eval(text.replace("op.", "np."), {"np": np, "i": wide, "x": x.astype(np.float64)})


def agree(got: Any, want: Any, floats: str) -> None:
    found, expected = np.asarray(got), np.asarray(want)
    assert found.shape == expected.shape
    tolerance = 1e-12 if floats == "f64" else 2e-5
    np.testing.assert_allclose(found.astype(float), expected.astype(float), tolerance, tolerance)
    if expected.dtype.kind == "f" and floats == "f64":
        assert found.dtype == np.float64
    assert (found.dtype == np.bool_) == (expected.dtype == np.bool_)


def _names(text: str) -> list[str]:
    return [n for n in ("i", "x") if re.search(rf"(?<![\w.']){n}\b(?!,i|->)", text)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.sample(9)
def test_kernels_of_f64(text: str, dtype: str, target: str) -> None:
    if dtype.startswith("u") and ("diff" in text or "trapezoid" in text):
        pytest.skip("differences of unsigned integers wrap, as in NumPy")
    i = WHOLE.astype(DTYPES[dtype])
    names = _names(text)
    types = {"i": f"i: {dtype}[n]", "x": "x: f64[n]"}
    source = f"def f({', '.join(types[n] for n in names)}):\n    return {text}"
    got = results_of(source, {"i": i, "x": X}, target)
    agree(got, wanted(text, i, X), "f64")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("text", [
    t for t in EXPRESSIONS if "x" in _names(t) and "float" not in t and "cumsum(i)" not in t
    and "sum(i)" not in t and "weights" not in t
])  # fmt: skip
@pytest.mark.sample(4)
def test_kernels_of_f32(text: str, dtype: str, target: str) -> None:
    i, x = WHOLE.astype(DTYPES[dtype]), X.astype(np.float32)
    source = f"def f(i: {dtype}[n], x: f32[n]):\n    return {text}"
    got = results_of(source, {"i": i, "x": x}, target)
    agree(got, wanted(text, i, x), "f32")
    assert np.asarray(got).dtype in (np.float32, np.bool_)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.sample(7)
def test_functions_over_whole_arrays(text: str, dtype: str, target: str) -> None:
    if dtype.startswith("u") and ("diff" in text or "trapezoid" in text):
        pytest.skip("differences of unsigned integers wrap, as in NumPy")
    i = WHOLE.astype(DTYPES[dtype])
    names = _names(text)
    given = {"i": i, "x": X}
    module: Any = tessera.compile(f"def f({', '.join(names)}):\n    return {text}\n", target=target)
    agree(module.f(*(given[n].copy() for n in names)), wanted(text, i, X), "f64")


@pytest.mark.parametrize("text", [t for t in (*OPERATORS, *PRODUCTS) if "float" not in t])
@pytest.mark.sample(4)
def test_fused_functions(text: str) -> None:
    names = _names(text)
    given = {"i": WHOLE, "x": X}
    head = ", ".join(names)
    source = f"def g({head}):\n    return {text}\n\ndef f({head}):\n    return fused(g)({head})\n"
    got = tessera.compile(source, target="cpu").f(*(given[n].copy() for n in names))
    agree(got, wanted(text, WHOLE, X), "f64")


BODIES: dict[str, Any] = {
    "    total = 0.0\n    for v in i:\n        total += v\n    return total / len(i)":
        lambda i, x: i.mean(),
    "    y = op.zeros(n)\n    for k in range(n):\n        y[k] = i[k]\n    return y * 0.5":
        lambda i, x: i * 0.5,
    "    y = op.zeros(n)\n    for k in range(n):\n        y[k] = x[k] * i[k] - i[0]\n    return y":
        lambda i, x: x * i - i[0],
    "    s = 0.0\n    for k in range(n):\n        s += i[k] * (x[k] > 0)\n    return s + x[0]":
        lambda i, x: (i * (x > 0)).sum() + x[0],
    "    y = x.copy()\n    y[1:-1] = i[1:-1]\n    return y":
        lambda i, x: np.concatenate((x[:1], i[1:-1], x[-1:])),
    "    y = x.copy()\n    y += i\n    y *= i[0]\n    return y":
        lambda i, x: (x + i) * i[0],
    "    best, where = -1.0, 0\n    for k in range(n):\n        if i[k] * x[k] > best:\n"
    "            best = i[k] * x[k]\n            where = k\n    return where + best":
        lambda i, x: (i * x).argmax() + (i * x).max(),
    "    p = i / i.sum()\n    return -op.sum(p * op.log2(p)) + x[0]":
        lambda i, x: -np.sum(i / i.sum() * np.log2(i / i.sum())) + x[0],
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sample(4)
def test_loops_and_stores(body: str, dtype: str, target: str) -> None:
    i = WHOLE.astype(DTYPES[dtype])
    x = np.abs(X)
    got = results_of(f"def f(i: {dtype}[n], x: f64[n]):\n{body}", {"i": i, "x": x}, target)
    agree(got, BODIES[body](WHOLE, x), "f64")


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("dtype", ["i64", "u8"])
@pytest.mark.sample(4)
def test_loops_of_functions(body: str, dtype: str) -> None:
    i, x = WHOLE.astype(DTYPES[dtype]), np.abs(X)
    text = f"def f(i, x):\n    n = len(x)\n{body}\n"
    got = tessera.compile(text, target="cpu").f(i, x)
    agree(got, BODIES[body](WHOLE, x), "f64")


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sample(4)
def test_lanes(dtype: str, target: str) -> None:
    text = (
        f"@kernel tile[(8,)] grid[(1,)]\ndef f(i: {dtype}[n], x: f64[n], y: mut f64[n]):\n"
        "    k = tile_linear_id()\n"
        "    if k < n: y[k] = x[k] * i[k] + 0.5 * i[0] + math.sqrt(i[k]) + i[k] ** 0.5\n"
    )
    y, i = np.zeros(5), WHOLE.astype(DTYPES[dtype])
    tessera.compile(text, target=target).f(i, X, y)
    np.testing.assert_allclose(y, X * WHOLE + 0.5 * WHOLE[0] + 2 * np.sqrt(WHOLE), 1e-14)


BIG = 2**53 + 1


def test_integers_that_f64_does_not_hold_are_rounded_as_in_numpy() -> None:
    i, x = np.array([BIG, -BIG, 2**62 + 3]), np.array([1.0, 0.5, 2.0])
    for text in ("i * x", "i + 0.5", "op.where(x > 0.7, x, i)", "op.sum(i * x)"):
        want = eval(text.replace("op.", "np."), {"np": np, "i": i, "x": x})
        np.testing.assert_array_equal(results_of(text, {"i": i, "x": x}, "cpu"), want)
        module: Any = tessera.compile(f"def f(i, x):\n    return {text}\n", target="cpu")
        np.testing.assert_array_equal(module.f(i, x), want)


@pytest.mark.parametrize("dtype", ["i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("text", [
    "i * x", "x - i", "x + 0.5 * i", "i @ x", "op.where(x > 0, x, i)", "op.sqrt(i) * x",
    "op.concatenate((i, x))", "op.einsum('i,i->', i, x)", "x * i[0]",
])  # fmt: skip
def test_what_f32_does_not_hold_needs_a_cast(text: str, dtype: str) -> None:
    given = {"i": WHOLE.astype(DTYPES[dtype]), "x": X.astype(np.float32)}
    with pytest.raises(tessera.TesseraError, match=r"f32\(i|i\.to\(f32\)|f32\(x|`i\b.*to\(f"):
        results_of(f"def f(i: {dtype}[n], x: f32[n]):\n    return {text}", given, "cpu")


@pytest.mark.parametrize("body", [
    "    i[0] = 1.5", "    i[0] = x[0]", "    i[:] = x", "    i += x", "    i[1:] = i[1:] * 0.5",
])  # fmt: skip
def test_floats_do_not_go_into_integers(body: str) -> None:
    text = f"@op.kernel\ndef f(i: mut i64[n], x: f64[n]):\n{body}\n"
    with pytest.raises(tessera.TesseraError, match="T020"):
        tessera.compile(text, target="cpu").f(WHOLE.copy(), X)


@pytest.mark.parametrize("source", ["i * x", "op.sqrt(i) + 0.5", "i @ x", "op.mean(i) - x"])
def test_code_for_gpus(source: str) -> None:
    assembled(source, {"i": WHOLE, "x": X})
