"""Integers where floats are made of them: functions of two numbers, declared results, lists beside
arrays, powers; in the host program and in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, assembled, results_of

WHOLE = np.arange(-3, 4)
GIVEN: dict[str, Any] = {
    "i": WHOLE, "j": WHOLE.astype(np.int32), "h": WHOLE.astype(np.int8),
    "u": np.arange(7, dtype=np.uint8),
    "x": WHOLE * 0.5, "m": np.arange(12.0).reshape(3, 4),
}  # fmt: skip
BOTH = [
    *(f"op.{name}({pair})" for name in ("hypot", "arctan2")
      for pair in ("i, 2", "3, i", "i, i", "j, j", "h, u", "u, 2", "i, 2.5", "i, x", "x, -1",
                   "j, i")),
    *(f"op.copysign({pair})" for pair in ("i, -1", "i, i", "j, -1.0", "u, -2", "x, -1", "x, -0.0",
                                          "i, x", "x, 1")),
    "op.take(x, [0, -1])", "op.take(m, [0, -1])", "m.take([1, -2, 3])", "op.take(i, (0, -7))",
    "op.take(x, [2, 0])", "op.take(m, [0, -1], axis=1)",
]  # fmt: skip
OF_HOST = [
    "op.append(i, 2.5)", "op.append(i, 2)", "op.append(x, 2)", "op.append(i, [2.5, 1])",
    "op.append(m, 1.5)", "op.append(i, x)", "op.convolve(i, [1, 2, 1], 'same')",
    "op.convolve(x, [1, 2, 1])", "op.convolve([1, 2, 1], i)", "op.convolve(i, [0.5, 0.5])",
    "op.convolve(i, x)", "op.correlate(i, [1, 2], 'full')", "op.correlate(x, [1, -1])",
    "2 ** op.abs(i)", "op.abs(i) ** op.abs(i)", "i ** op.abs(i)", "(-1) ** op.abs(i)", "2 ** u",
    "2.0 ** i", "i ** op.arange(7)", "x ** op.abs(i)", "10 ** op.abs(i) % 7",
]  # fmt: skip
RETURNS = [
    ("i: i64[n]", "f64[n]", "0.5 * i"), ("j: i32[n]", "f64[n]", "0.5 * j"),
    ("j: i32[n]", "f64[n]", "op.sqrt(op.abs(j))"), ("h: i8[n]", "f64[n]", "op.exp(h)"),
    ("i: i64[n]", "f64[n]", "i / 3 + 0.1"), ("j: i32[n]", "f64[n]", "op.where(j > 0, 0.1, j)"),
    ("u: u8[n]", "f64[n]", "op.mean(u) * 0.1 + u"), ("h: i8[n]", "f32[n]", "0.5 * h"),
    ("i: i64[n]", "f64[n]", "op.hypot(i, 3)"), ("j: i32[n]", "f64", "0.1 * op.sum(j)"),
]  # fmt: skip


def _wanted(form: str) -> np.ndarray[Any, Any]:
    wide = {n: GIVEN[n].astype(np.int64) for n in "hu"}  # of which NumPy makes floats of 16 bits
    wide = wide if any(n in form for n in ("hypot", "arctan2", "exp")) else {}
    return np.asarray(eval(form, {"op": np, **GIVEN, **wide}))


def _same(found: Any, form: str, rtol: float = 1e-13) -> None:
    found, want = np.asarray(found), _wanted(form)
    assert found.shape == want.shape
    assert found.dtype.kind == want.dtype.kind
    np.testing.assert_allclose(found, want, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))


def _plain(form: str) -> Any:
    text = f"def f({', '.join(GIVEN)}):\n    return {form}\n".replace("'", '"')
    return tessera.compile(text, target="cpu").f(*GIVEN.values())


@pytest.mark.parametrize("form", [*BOTH, *OF_HOST])
def test_in_the_host_program(form: str) -> None:
    _same(_plain(form), form)


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("form", BOTH)
def test_in_kernels(form: str, target: str) -> None:
    _same(results_of(form, GIVEN, target), form)


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize(("parameter", "result", "form"), RETURNS)
def test_declared_results(parameter: str, result: str, form: str, target: str) -> None:
    source = f"def f({parameter}) -> {result}:\n    return {form}"
    found = np.asarray(results_of(source, GIVEN, target))
    assert found.dtype == (np.float32 if "f32" in result else np.float64)
    _same(found, form, 1e-6 if "f32" in result else 1e-13)


def test_the_code_for_devices_is_taken() -> None:
    assembled("return op.hypot(i, 2), op.arctan2(j, j), op.copysign(i, -1)", GIVEN)
    assembled("def f(j: i32[n]) -> f64[n]:\n    return op.sqrt(op.abs(j)) * 0.1", GIVEN)


def test_powers_below_0_are_refused() -> None:
    with pytest.raises(tessera.TesseraError, match="T0209"):
        _plain("2 ** i")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_of_the_other_operand_serves_all_calls(dtype: Any) -> None:
    text = "def f(x, k):\n    return x * k{}\n"
    x, k = np.linspace(0, 1, 3).astype(dtype), np.arange(3)
    if dtype == np.float32:
        with pytest.raises(tessera.TesseraError, match=r"\.to\(f32\)`; `\.to\(x\.dtype\)`"):
            tessera.compile(text.format(""), target="cpu").f(x, k)
    found = tessera.compile(text.format(".to(x.dtype)"), target="cpu").f(x, k)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, x * k)
