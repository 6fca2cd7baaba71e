"""Arrays that are made of numbers take all bits of the dtype that they meet, in fused functions and
gradients as in the host program; so do constants of functions that are derived from others."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

x = np.random.default_rng(0).normal(size=(6, 8))
y = np.array([0, 3, 7, 1, 2, 5])
EXPRESSIONS = [
    "op.sum(x * op.linspace(0.1, 1.0, 8)[None, :], axis=1)",
    "op.exp(-x) * op.linspace(0.1, 1.0, 8)",
    "x * op.full((8,), 0.1)", "x * op.array([0.1, 0.2] * 4)", "x @ (op.eye(8) * 0.1)",
    "op.sum((op.eye(8) * 0.1)[None, :, :] * x[:, None, :], axis=2)", "x * -(op.eye(8)[3] / 3.0)",
    "op.where(x > 0, 0.1, 0.3) * x", "x * (op.ones((8,)) / 3.0)", "x * (op.arange(8) * 0.1)",
    "x * (op.arange(8) / 3)", "x * op.sin(op.arange(8) * 0.1)",
    "x * op.exp(op.linspace(0.1, 1.0, 8))",
    "x * op.cumsum(op.full((8,), 0.1))", "x * op.linspace(0.1, 1.0, 8)[::-1]",
    "x * op.outer(op.linspace(0.1, 1.0, 6), op.linspace(0.1, 1.0, 8))",
    "(op.eye(8) * 0.1)[y] * x", "op.eye(8)[y] - op.exp(x)", "x * op.sum(op.full((8,), 0.1))",
    "x * op.mean(op.linspace(0.1, 0.9, 8))", "x * op.repeat(op.array([0.1, 0.2]), 4)",
    "x * op.copysign(0.1, x)", "op.cbrt(x * x + 0.1)", "op.cbrt(x) * x",
    "op.where(op.isin(y, op.array([0, 7, 5]))[:, None], x, 0.1)", "op.heaviside(x, 0.1) * x",
    "op.interp(x[0], op.array([-3.0, 0.1, 3.0]), op.array([0.1, 0.2, 0.7]))",
    "op.diff(op.linspace(0.1, 1.0, 9)) * x", "op.gradient(op.linspace(0.1, 1.0, 8) ** 2) * x",
    "x * op.sum(op.eye(8) * 0.1, axis=1)", "op.logaddexp(x, op.linspace(0.1, 1.0, 8))",
]  # fmt: skip


def _numpy(e: str, x: Any) -> Any:
    return eval(e.replace("op.", "np."), {"np": np, "x": x, "y": y})


@pytest.mark.parametrize("e", EXPRESSIONS)
@pytest.mark.sample(1)
def test_as_numpy(e: str) -> None:
    given = {"x": x, "y": y} if re.search(r"\by\b", e) else {"x": x}
    names = ", ".join(given)
    text = (
        f"def f({names}):\n    return {e}\n\n\ndef g({names}):\n    return fused(f)({names})\n\n\n"
        f"def s({names}):\n    return op.sum({e})\n\n\n"
        f"def d({names}):\n    return value_and_grad(s)({names})\n"
    )
    module, want = tessera.compile(text, target="cpu"), _numpy(e, x)
    for f in (module.f, module.g):
        got = np.asarray(f(*given.values()))
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, 1e-13, 1e-14)
    value, slope = module.d(*given.values())
    np.testing.assert_allclose(value, want.sum(), 1e-12)
    r = np.random.default_rng(1).normal(size=x.shape) * 1e-5
    by_steps = (_numpy(e, x + r).sum() - _numpy(e, x - r).sum()) / 2
    np.testing.assert_allclose((np.asarray(slope) * r).sum(), by_steps, 1e-5, 1e-11)


def test_signs_of_zeros() -> None:
    v = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf])
    text = (
        "def f(v):\n    return op.where(op.signbit(v), -1.0, 1.0) * op.copysign(2.0, v)\n\n\n"
        "def g(v):\n    return fused(f)(v)\n"
    )
    for f in (tessera.compile(text, target="cpu").f, tessera.compile(text, target="cpu").g):
        np.testing.assert_array_equal(f(v), np.full(6, 2.0))
