"""Gradients where a function of elements goes another way: at ties, at 0, at knots and bounds.

The difference quotient to both sides is the derivative where there is one, and between the two
one-sided derivatives where there is none: what operators have there by their rules too.
"""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

POINTS = [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]
POSITIVE = [0.5, 1.0, 2.0]
INSIDE = [-0.5, 0.0, 0.5]
STEP = 1e-6

ONE = {
    "op.abs(x)": POINTS, "op.fabs(x)": POINTS, "op.acos(x)": INSIDE, "op.asin(x)": INSIDE,
    "op.atan(x)": POINTS, "op.atanh(x)": INSIDE, "op.asinh(x)": POINTS, "op.cos(x)": POINTS,
    "op.cosh(x)": POINTS, "op.exp(x)": POINTS, "op.exp2(x)": POINTS, "op.expm1(x)": POINTS,
    "op.log(x)": POSITIVE, "op.log10(x)": POSITIVE, "op.log1p(x)": INSIDE, "op.log2(x)": POSITIVE,
    "op.reciprocal(x)": POSITIVE, "op.sin(x)": POINTS, "op.sinc(x)": POINTS, "op.sinh(x)": POINTS,
    "op.sqrt(x)": POSITIVE, "op.square(x)": POINTS, "op.tan(x)": INSIDE, "op.tanh(x)": POINTS,
    "op.cbrt(x)": [-1.0, -0.5, 0.5, 1.0], "op.deg2rad(x)": POINTS, "op.rad2deg(x)": POINTS,
    "op.softplus(x)": POINTS, "op.sigmoid(x)": POINTS, "op.silu(x)": POINTS, "op.gelu(x)": POINTS,
    "op.relu(x)": [-1.0, -0.5, 0.5, 1.0], "op.clip(x, -1.0, 1.0)": POINTS,
    "op.nan_to_num(x)": POINTS,
    "x ** 2": POINTS, "x ** 3": POINTS, "x ** 2.0": POINTS, "x ** 1": POINTS, "x ** 0": POINTS,
    "op.erf(x)": POINTS, "op.where(x > 0.0, x * x, 0.0)": POINTS,
    "op.where(x == 0.0, 0.0, x * x)": POINTS,
}  # fmt: skip
TWO = {
    "op.logaddexp(a, b)": POINTS, "op.maximum(a, b)": POINTS, "op.minimum(a, b)": POINTS,
    "op.fmax(a, b)": POINTS, "op.fmin(a, b)": POINTS, "op.hypot(a, b)": POSITIVE,
    "op.atan2(a, b)": POSITIVE, "a / b": POSITIVE, "a ** b": POSITIVE, "a * b": POINTS,
    "op.copysign(a, b)": [-1.0, -0.5, 0.5, 1.0], "op.abs(a - b)": POINTS,
}  # fmt: skip
REDUCED = {
    "op.logsumexp(x)": [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
    "op.max(x)": [[1.0, 0.0, 0.5]],
    "op.prod(x)": [[0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0]],
    "op.sum(op.cumprod(x, axis=0))": [[0.0, 2.0, 3.0], [2.0, 0.0, 3.0], [1.0, 2.0, 3.0]],
    "op.sum(op.softmax(x, axis=-1) ** 2)": [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]],
    "op.var(x)": [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]],
    "op.sum(op.interp(x, xp, fp))": [[0.25, 1.5, 2.5], [-2.0, 5.0, 0.5], [4.0, -3.0, 1.75]],
}
KNOTS = (
    "    xp = op.array([-1.0, 0.0, 1.0, 2.0, 3.0])\n    fp = op.array([0.0, 1.0, 3.0, 4.0, 8.0])\n"
)


def test_at_knots_a_slope_is_that_of_an_interval() -> None:
    m = tessera.compile(
        f"def f(x):\n{KNOTS}    return op.sum(op.interp(x, xp, fp))\n"
        "def g(x): return grad(f)(x)\n", target="cpu",
    )  # fmt: skip
    assert m.g(np.array([-1.0, 0.0, 1.0, 2.0])).tolist() == [1.0, 2.0, 1.0, 4.0]


def _near(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("text", ONE)
@pytest.mark.sample(14)
def test_of_one(text: str) -> None:
    m = tessera.compile(
        f"def f(x): return {text}\ndef s(x): return op.sum(f(x))\ndef g(x): return grad(s)(x)\n",
        target="cpu",
    )
    x = np.array(ONE[text])
    _near(m.g(x), (m.f(x + STEP) - m.f(x - STEP)) / (2 * STEP))


@pytest.mark.parametrize("text", TWO)
@pytest.mark.sample(5)
def test_of_two(text: str) -> None:
    m = tessera.compile(
        f"def f(a, b): return {text}\ndef s(a, b): return op.sum(f(a, b))\n"
        "def g(a, b): return grad(s, wrt=(0, 1))(a, b)\n",
        target="cpu",
    )
    a, b = (v.ravel().copy() for v in np.meshgrid(TWO[text], TWO[text]))
    found = m.g(a, b)
    _near(found[0], (m.f(a + STEP, b) - m.f(a - STEP, b)) / (2 * STEP))
    _near(found[1], (m.f(a, b + STEP) - m.f(a, b - STEP)) / (2 * STEP))


@pytest.mark.parametrize("text", REDUCED)
@pytest.mark.sample(4)
def test_of_many(text: str) -> None:
    knots = KNOTS if "interp" in text else ""
    m = tessera.compile(
        f"def f(x):\n{knots}    return {text}\ndef g(x): return grad(f)(x)\n", target="cpu"
    )
    for point in REDUCED[text]:
        x = np.array(point)
        wanted = [
            (m.f(x + STEP * e) - m.f(x - STEP * e)) / (2 * STEP) for e in np.eye(len(x))
        ]  # fmt: skip
        _near(m.g(x), np.ravel(wanted))
