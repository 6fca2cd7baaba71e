"""std.fast: errors within the bounds of docs/stdlib.md on every target."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import TARGETS

pytestmark = pytest.mark.optimized

ULP = 2.0**-23
COUNT = 200_000
TEXT = """
@kernel tile[(128,)] grid[(64,)]
def k(x: {t}[n], y: {t}[n], out: mut {t}[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = fast.{call}
"""
Bound = Callable[[Any, Any, Any], Any]
_erfc = np.frompyfunc(math.erfc, 1, 1)


def ulps(limit: Callable[[Any, Any], Any]) -> Bound:
    """A bound in units of the last place of the exact result."""

    def bound(x: Any, y: Any, exact: Any) -> Any:
        last = ULP * 2.0 ** np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126)))
        return np.where(np.abs(exact) < 2.0**-125, 2.0**-125, limit(x, y) * last)

    return bound


def logarithm(limit: float) -> Bound:
    near = ulps(lambda x, y: limit)
    return lambda x, y, e: np.where((x >= 0.5) & (x <= 2), 2.0**-21, near(x, y, e))


CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, float], Bound]] = {
    "exp2(x[i])": (lambda x, y: np.exp2(x), (-130, 127), ulps(lambda x, y: 4)),
    "exp(x[i])": (lambda x, y: np.exp(x), (-90, 88), ulps(lambda x, y: 4 + 2 * abs(x))),
    "log2(x[i])": (lambda x, y: np.log2(x), (1e-6, 4), logarithm(4)),
    "log(x[i])": (lambda x, y: np.log(x), (1e-6, 4), logarithm(5)),
    "sin(x[i])": (lambda x, y: np.sin(x), (-6.28, 6.28), lambda x, y, e: 2.0**-20),
    "cos(x[i])": (lambda x, y: np.cos(x), (-6.28, 6.28), lambda x, y, e: 2.0**-20),
    "tanh(x[i])": (lambda x, y: np.tanh(x), (-9, 9), ulps(lambda x, y: 5000)),
    "sqrt(x[i])": (lambda x, y: np.sqrt(x), (0, 1e6), ulps(lambda x, y: 2)),
    "rsqrt(x[i])": (lambda x, y: 1 / np.sqrt(x), (1e-6, 1e6), ulps(lambda x, y: 2)),
    "reciprocal(x[i])": (lambda x, y: 1 / x, (1e-6, 1e6), ulps(lambda x, y: 1)),
    "divide(x[i], y[i])": (lambda x, y: x / y, (-1e4, 1e4), ulps(lambda x, y: 3)),
    "sigmoid(x[i])": (
        lambda x, y: 1 / (1 + np.exp(-x)), (-80, 80), ulps(lambda x, y: 8 + 2 * abs(x)),
    ),
    "gelu(x[i])": (
        lambda x, y: x * 0.5 * _erfc(-x * math.sqrt(0.5)).astype(np.float64), (-13, 13),
        ulps(lambda x, y: 40 + 4 * x * x),
    ),
    "pow(x[i], y[i])": (
        lambda x, y: x**y, (1e-3, 1e3),
        ulps(lambda x, y: 5 + 2 * abs(y) * np.maximum(1, abs(np.log2(x)))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("call", CASES)
@pytest.mark.sample(3)
def test_f32_is_within_its_bound(call: str, target: str) -> None:
    meaning, (low, high), bound = CASES[call]
    r = np.random.default_rng(3)
    x = r.uniform(low, high, COUNT)
    if low > 0:
        x[::2] = np.exp(r.uniform(np.log(low), np.log(high), COUNT // 2))
    x = x.astype(np.float32)
    y = r.uniform(0.5, 8, COUNT).astype(np.float32)
    out = np.zeros_like(x)
    tessera.compile(TEXT.format(t="f32", call=call), target=target).k(x, y, out)
    tessera.synchronize()
    wide, other = x.astype(np.float64), y.astype(np.float64)
    exact = meaning(wide, other)
    wrong = np.abs(out - exact) > bound(wide, other, exact)
    assert not wrong.any(), (x[wrong][:3], y[wrong][:3], out[wrong][:3], exact[wrong][:3])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("call", CASES)
@pytest.mark.sample(3)
def test_narrow_floats_are_rounded_once(call: str, dtype: str, target: str) -> None:
    """Every number of 16 bits in the range: half a place, and the bound of f32 beside it."""
    meaning, (low, high), bound = CASES[call]
    kind, digits = {"f16": (np.float16, 11), "bf16": (ml_dtypes.bfloat16, 8)}[dtype]
    x = np.arange(65536, dtype=np.uint16).view(kind)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    x = x[(wide >= low) & (wide <= high)]
    y = np.full(len(x), 1.5, kind)
    out = np.zeros_like(x)
    tessera.compile(TEXT.format(t=dtype, call=call), target=target).k(x, y, out)
    tessera.synchronize()
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exact = meaning(wide, y.astype(np.float64))
        rounded = exact.astype(kind).astype(np.float64)
        least = -24 if dtype == "f16" else -126 - 7
        place = 2.0 ** np.maximum(np.floor(np.log2(np.abs(exact))) - (digits - 1), least)
        error = np.abs(out.astype(np.float64) - exact)
        inside = np.isfinite(rounded) & (np.abs(exact) < 60000) & np.isfinite(exact)
        wrong = inside & (error > 0.5001 * place + 1.01 * bound(wide, 1.5, exact))
    assert not wrong.any(), (x[wrong][:3], out[wrong][:3], exact[wrong][:3])


@pytest.mark.parametrize(("call", "message"), [
    ("sin(f64(x[i]))", "takes f16, bf16 and f32"), ("exp(f64(x[i]))", "takes f16, bf16 and f32"),
    ("machine(\"sin\", f16(x[i]), f16(x[i]))", "takes f32"),
    ("machine(\"exp\", x[i], x[i])", "is one of \"log2\""), ("sine(x[i])", "has no `sine`"),
])  # fmt: skip
def test_what_they_do_not_take_is_said(call: str, message: str) -> None:
    text = TEXT.format(t="f32", call=f"{call}").replace("fast." + call, f"f32(fast.{call})")
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu")
    (found,) = caught.value.diagnostics
    assert message in found.message


def test_a_tile_kernel_has_them() -> None:
    text = (
        "@op.kernel\ndef k(x: f32[n], out: mut f32[n]):\n"
        "    for i in op.tile_range(n, step=64):\n        out[i:i+64] = fast.{}(x[i:i+64])\n"
    )
    x, out = np.linspace(-1, 1, 100, dtype=np.float32), np.zeros(100, np.float32)
    for name, exact in (("exp", np.exp), ("sin", np.sin), ("tanh", np.tanh)):
        tessera.compile(text.format(name), target="cpu").k(x, out)
        assert np.abs(out - exact(x)).max() < 1e-5
