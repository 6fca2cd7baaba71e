"""Functions of tiles whose results are rounded to 16 bits at once: half a place, as stated."""

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

TEXT = """\
@op.kernel
def k(x: f32[n]) -> {t}[n]:
    y = op.empty((n,), {t})
    for i in op.tile_range(n, step=1024):
        y[i:i+1024] = {call}
    return y
"""
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Any) -> Any:
    return np.where(x >= 0, 1.0, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x)))


def _gelu(x: Any) -> Any:
    t = np.clip(x, -40, 40)
    return np.where(x > 40, x, 0.5 * t * _erfc(-t * math.sqrt(0.5)).astype(np.float64))


EXACT: dict[str, Callable[[Any], Any]] = {
    "gelu": _gelu, "sigmoid": _sigmoid, "silu": lambda x: x * _sigmoid(x),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("t", "digits", "least"), [("f16", 11, -14), ("bf16", 8, -126)])
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.sample(1)
def test_the_error_is_half_a_place(name: str, t: str, digits: int, least: int, target: str) -> None:
    """Of every number of 16 bits, and of numbers between them."""
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[t]
    x = np.arange(65536, dtype=np.uint16).view(kind).astype(np.float32)
    x = np.concatenate([x, np.random.default_rng(1).uniform(-14, 14, 20000).astype(np.float32)])
    module = tessera.compile(
        TEXT.format(t=t, call=f"op.{name}(x[i:i+1024]).to({t})"), target=target
    )
    found = np.asarray(module.k(x)).astype(np.float64)
    wide = np.clip(x.astype(np.float64), -3.4e38, 3.4e38)
    with np.errstate(all="ignore"):
        exact = EXACT[name](wide)
        place = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 2.0**least))) - (digits - 1))
        limit = 0.51 * place + (2.0**-118 if t == "bf16" else 0)
        wrong = np.isfinite(exact.astype(kind)) & ~(np.abs(found - exact) <= limit)
    wrong = np.where(np.isinf(x), False, wrong | (np.isnan(x) != np.isnan(found)))
    assert not wrong.any(), (x[wrong][:3], found[wrong][:3], exact[wrong][:3])


def test_only_what_is_rounded_at_once() -> None:
    """A result that has another use, or goes into f32, is that of `math`, to the bit."""
    text = TEXT.format(t="f32", call="op.gelu(x[i:i+1024])")
    named = "op.gelu(x[i:i+1024])\n        y[i:i+1024] = z.to(bf16)"
    other = TEXT.format(t="bf16", call=named).replace("y[i:i+1024] = op", "z = op")
    x = np.linspace(-6, 6, 5001).astype(np.float32)
    exact = np.asarray(tessera.compile(text, target="cpu").k(x))
    kept = np.asarray(tessera.compile(other, target="cpu").k(x))
    assert kept.tobytes() == exact.astype(ml_dtypes.bfloat16).tobytes()
