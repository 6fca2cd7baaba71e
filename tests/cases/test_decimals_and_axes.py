"""Decimals of rounded numbers, medians along several axes, floats that are counted and powers of
matrices, beside NumPy; what is refused names a form that gives NumPy's numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, results_of

R = np.random.default_rng(5)
GIVEN: dict[str, Any] = {
    "x": 40 * R.normal(size=(3, 4)), "z": R.normal(size=(3, 4, 5)), "f": R.normal(size=(4,
            6)).astype("f4"),
}  # fmt: skip
AXES = ("(0, 1)", "(0, 2)", "(1, 2)", "(-1, 0)", "(1,)", "(0, 1, 2)")
VALUES = (
    *(f"op.median(z, axis={a}{k})" for a in AXES for k in ("", ", keepdims=True")),
    *(f"op.quantile(z, {q}, axis={a}{k})" for a, k in zip(AXES, ("", ", keepdims=True") * 3,
                                                           strict=True) for q in ("0.3",
                                                                   "[0.1, 0.9]")),
    "op.percentile(z * 2.0, 30, axis=(0, 2))", "op.median(f, axis=(0, 1))",
    "op.round(x, -1)", "op.round(x * 30.0, decimals=-2)", "x.round(-1) + x.round(1)",
            "op.round(f, -1)",
    "op.around(x, -1)", "op.sum(x) * op.arange(0, 1, 0.25)", "x[0, 0] + op.arange(0.1, 1.0, 0.1)",
    "x[0, 0] + op.arange(5.0)", "x[0, 0] + op.arange(1.0, -1.0, -0.3)",
            "x[0, 0] + op.arange(2, 1, 0.5)",
    "op.arange(0.0, 1.0, 0.25, dtype=op.float64) * 3.0",
            "f[0, 0] * op.arange(0, 3, 0.5, dtype=op.float32)",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", VALUES)
@pytest.mark.sample(4)
def test_in_a_kernel(text: str, target: str) -> None:
    want = np.asarray(eval(text, {"op": np, **GIVEN}))
    found = np.asarray(results_of(text, GIVEN, target))
    assert found.shape == want.shape and found.dtype == want.dtype
    np.testing.assert_allclose(found, want, 1e-12 if want.dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("text", VALUES)
@pytest.mark.sample(3)
def test_in_the_host_program(text: str) -> None:
    names = [n for n in GIVEN if re.search(rf"(?<![\w.]){n}\b", text)]
    module = tessera.compile(f"def f({', '.join(names)}):\n    return {text}\n", target="cpu")
    want = np.asarray(eval(text, {"op": np, **GIVEN}))
    found = np.asarray(module.f(*(GIVEN[n] for n in names)))
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, 1e-6 if "f" in names else 1e-12)


@pytest.mark.parametrize("digits", [-1, 0, 2])
def test_a_number_of_a_kernel(digits: int) -> None:
    found = results_of(f"round(x[1, 2], {digits}) + 0.0 * x", GIVEN, "cpu")
    want = eval(f"np.round(x[1, 2], {digits}) + 0 * x", {"np": np, **GIVEN})
    np.testing.assert_allclose(found, want)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4"])
@pytest.mark.parametrize("n", [-2, 0, 1, 2, 5, 8, 11])
@pytest.mark.sample(2)
def test_powers_of_matrices(n: int, dtype: str) -> None:
    a = R.integers(-3, 4, (3, 3)).astype(dtype)
    if n < 0:
        a = a.astype(np.float64) + 9 * np.eye(3)
    text = f"def f(a):\n    return op.linalg.matrix_power(a, {n}), op.matrix_power(a, {n})\n"
    want = np.linalg.matrix_power(a, n)
    for found in tessera.compile(text, target="cpu").f(a):
        assert np.asarray(found).dtype == want.dtype
        np.testing.assert_allclose(np.asarray(found), want, 1e-5 if dtype == "f4" else 1e-12)


TOLD = {
    "op.softmax(x, axis=(0, 2))": "np.exp(z) / np.exp(z).sum((0, 2), keepdims=True)",
    "op.sort(x, axis=(0, 1))": "np.sort(z.transpose(2, 0, 1).reshape(5, -1), 1)",
    "op.cumsum(x, axis=(1, 2))": "np.cumsum(z.reshape(3, -1), 1)",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("head", ["", "@op.kernel\n"])
@pytest.mark.parametrize("text", TOLD)
def test_several_axes_of_what_has_one(text: str, head: str) -> None:
    """The help, followed literally."""
    source = f"{head}def f(x):\n    return {text}\n"
    with pytest.raises(tessera.TesseraError, match="T0311") as error:
        tessera.compile(source, target="cpu").f(GIVEN["z"])
    *first, last = re.findall(r"`([^`]+)`", str(error.value).partition("help:")[2])
    lines = "".join(f"    {line}\n" for line in (*first, f"return {last}"))
    found = tessera.compile(f"{head}def f(x):\n{lines}", target="cpu").f(GIVEN["z"])
    np.testing.assert_allclose(np.asarray(found), eval(TOLD[text], {"np": np, **GIVEN}), 1e-12)


@pytest.mark.parametrize("call", ["op.round(x, decimals=d)", "op.round(x, d)"])
def test_decimals_that_only_the_run_knows(call: str) -> None:
    source = f"@op.kernel\ndef f(x: f64[m, n], d: i32):\n    return {call}\n"
    with pytest.raises(tessera.TesseraError, match=r"T010[56]") as error:
        tessera.compile(source, target="cpu").f(GIVEN["x"], 2)
    (form,) = re.findall(r"`(op\.round\(x, 2\))`", str(error.value))
    right = source.replace(call, form)
    found = tessera.compile(right, target="cpu").f(GIVEN["x"], 2)
    want = eval("np.round(x, 2)", {"np": np, **GIVEN})
    np.testing.assert_allclose(np.asarray(found), want)


def test_floats_that_only_the_run_knows() -> None:
    source = "@op.kernel\ndef f(x: f64[n], d: f64):\n    return x + op.arange(0.5, d, 0.25)\n"
    with pytest.raises(tessera.TesseraError, match="T0215") as error:
        tessera.compile(source, target="cpu").f(np.ones(4), 1.5)
    (form,) = re.findall(r"`([^`]*op\.arange\(count\))`", str(error.value))
    right = source.replace("op.arange(0.5, d, 0.25)", form.replace("count", "4"))
    found = tessera.compile(right, target="cpu").f(np.ones(4), 1.5)
    np.testing.assert_allclose(np.asarray(found), 1 + np.arange(0.5, 1.5, 0.25))
