"""Operands of fewer axes stand along the last ones, as in NumPy: in kernels whose sizes have names
and in others, in the host program, in stores, in fused functions and in gradients."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

R = np.random.default_rng(0)
GIVEN: dict[str, Any] = {
    "x": R.normal(size=(6, 8)), "v": R.normal(size=8), "a": R.normal(size=(3, 6, 8)),
    "q": R.normal(size=(5, 5)), "w": R.normal(size=5), "u": R.normal(size=(6, 1)),
}  # fmt: skip
SHAPES = {"x": "m, n", "v": "n", "a": "k, m, n", "q": "p, p", "w": "p", "u": "m, 1"}
EXPRESSIONS = [
    "x * v", "v - x", "a + x", "a * v", "x - op.mean(x, axis=0)", "op.where(v > 0, x, 0.0)",
    "op.where(x > 0, v, x)", "op.where(a > 0, x, v)", "q * w", "q / op.sum(q, axis=0)", "x > v",
    "(x > 0) & (v > 0)", "v == x[0]", "x + v[None, :] + v", "x + u - v", "a[:, 0] + v",
    "x[1:, :] * v", "op.maximum(x, v)", "op.hypot(x, v)", "op.clip(x, v - 1, v + 1)",
    "op.isclose(x, v)", "op.logaddexp(a, v)", "op.sum(x * v, axis=1)", "x * op.arange(8)",
"q * op.ones((5,))", "abs(x - v)", "x / (v * v)",
]  # fmt: skip


def _forms(e: str, names: list[str], want: Any) -> dict[str, str]:
    plain = ", ".join(names)
    typed = ", ".join(f"{n}: f64[{SHAPES[n]}]" for n in names)
    made = f"op.empty({want.shape}, {'bool' if want.dtype == bool else 'f64'})"
    return {
        "named sizes": f"@op.kernel\ndef f({typed}):\n    return {e}\n",
        "no annotations": f"@op.kernel\ndef f({plain}):\n    return {e}\n",
        "stored": f"@op.kernel\ndef f({typed}):\n    r = {made}\n    r[:] = {e}\n    return r\n",
        "host": f"def f({plain}):\n    return {e}\n",
        "fused": f"def g({plain}):\n    return {e}\n\n\n"
                 f"def f({plain}):\n    return fused(g)({plain})\n",
    }  # fmt: skip


@pytest.mark.parametrize("e", EXPRESSIONS)
@pytest.mark.sample(3)
def test_expressions(e: str) -> None:
    names = [n for n in GIVEN if re.search(rf"\b{n}\b", e)]
    want = eval(e.replace("op.", "np."), {"np": np, **GIVEN})
    for form, text in _forms(e, names, want).items():
        if form == "no annotations" and "u" in names:
            continue  # that an axis has one element is known of its type
        got = np.asarray(tessera.compile(text, target="cpu").f(*(GIVEN[n].copy() for n in names)))
        assert got.shape == want.shape, form
        np.testing.assert_allclose(got, want, 1e-9, 1e-9, err_msg=form)


def _places(y: Any, v: Any) -> Any:
    y[:] = v
    y[1:] *= v
    y[2:4, :] += v
    y[y > 1.0] = 1.0
    return y


@pytest.mark.parametrize("kernel", [True, False])
def test_stores(kernel: bool) -> None:
    head = "@op.kernel\ndef f(x: f64[m, n], v: f64[n]):\n" if kernel else "def f(x, v):\n"
    body = ("y = x.copy()", "y[:] = v", "y[1:] *= v", "y[2:4, :] += v", "y[y > 1.0] = 1.0",
            "return y")  # fmt: skip
    text = head + "".join(f"    {line}\n" for line in body)
    got = tessera.compile(text, target="cpu").f(GIVEN["x"].copy(), GIVEN["v"])
    np.testing.assert_array_equal(got, _places(GIVEN["x"].copy(), GIVEN["v"]))


@pytest.mark.parametrize("t", [4, 16])
def test_tiles(t: int) -> None:
    text = (
        "@op.kernel\ndef f(x: f64[m, n], v: f64[n]):\n    y = op.empty((m, n), f64)\n"
        f"    for i, j in op.tile_range(m, n, step=(4, {t})):\n"
        f"        y[i:i+4, j:j+{t}] = v[j:j+{t}]\n"
        f"        y[i:i+4, j:j+{t}] += x[i:i+4, j:j+{t}] * v[j:j+{t}]\n    return y\n"
    )
    x, v = GIVEN["x"], GIVEN["v"]
    np.testing.assert_allclose(tessera.compile(text, target="cpu").f(x, v), v + x * v, 1e-12)


def test_the_gradient_is_added_over_the_rows() -> None:
    text = (
        "def g(x, v):\n    return op.sum((x * v - op.mean(x, axis=0)) ** 2)\n\n\n"
        'def f(x, v):\n    return grad(g, wrt="v")(x, v)\n'
    )
    x, v = GIVEN["x"], GIVEN["v"]
    want = (2 * (x * v - x.mean(0)) * x).sum(0)
    np.testing.assert_allclose(tessera.compile(text, target="cpu").f(x, v), want, 1e-9)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("e", "warned"),
    [("q / op.sum(q, axis=1)", True), ("q / op.sum(q, axis=0)", False), ("q / w", False),
     ("q / op.sum(q, axis=1)[None, :]", False), ("q / op.sum(q, axis=-1, keepdims=True)", False)],
)  # fmt: skip
def test_a_reduction_over_the_last_axis_of_a_square(e: str, warned: bool) -> None:
    head = "@op.kernel\ndef f(q: f64[p, p], w: f64[p]):\n    "
    for body in (f"return {e}\n", f"d = {e[4:]}\n    return q / d\n"):
        session = Session()
        session.set_text("f.tessera", head + body, 1)
        assert [d.code for d in session.check("f.tessera")] == ["T0623"] * warned
        got = tessera.compile(head + body, target="cpu").f(GIVEN["q"], GIVEN["w"])
        want = eval(e.replace("op.", "np."), {"np": np, **GIVEN})
        np.testing.assert_allclose(got, want, 1e-9)
