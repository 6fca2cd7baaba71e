"""Names and keyword arguments of NumPy, in the host program and in tile kernels, beside NumPy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
R = np.random.default_rng(0)
GIVEN: dict[str, Any] = {
    "x": R.normal(size=(4, 6)), "v": R.normal(size=5), "w": R.normal(size=5),
    "m": R.random((4, 6)) > 0.5, "k": R.integers(0, 4, 5).astype(np.int32),
    "f": R.normal(size=(4, 6)).astype(np.float32),
}  # fmt: skip
FORMS = """
op.arctan2(v, w)
op.arcsin(v / 9.0) + op.arccos(v / 9.0) + op.arctan(v) + op.arcsinh(v) + op.arctanh(v / 9.0)
op.amax(x, axis=1)
op.amin(x)
op.absolute(x)
op.radians(v) + op.degrees(v)
op.mod(v, w)
op.true_divide(v, w)
op.left_shift(k, 2) + op.right_shift(k, 1)
op.invert(m)
op.bitwise_not(k)
op.fix(v)
op.around(v, 2)
op.round(v, 2)
v.round(3)
op.round(v, decimals=1)
op.sum(f, dtype=f64)
f.sum(axis=0, dtype=f64)
op.mean(f, axis=1, dtype=f64)
op.cumsum(f, axis=0, dtype=f64)
f.mean(dtype=f64)
op.sum(x, where=m)
op.sum(x, axis=0, where=m)
op.sum(x, axis=1, initial=3.0)
op.max(x, axis=1, initial=0.5)
op.max(x, axis=1, where=m, initial=-1.0)
op.min(x, initial=0.5)
op.prod(x, axis=0, where=m)
op.any(x > 0, axis=1, where=m)
op.all(x > 0, axis=1, where=m)
op.sort(x, axis=1, kind="stable")
op.argsort(x, kind="stable")
v[op.argsort(v, kind="mergesort")]
op.clip(v, a_min=-0.5, a_max=0.5)
op.full((3,), fill_value=2.5) * v[:3]
op.linspace(0.0, 1.0, 5, endpoint=False) * v
op.linspace(0.0, 1.0, num=5, endpoint=False) * v
op.linspace(0.0, 1.0, num=5, endpoint=True) * v
v[:, op.newaxis] * w[op.newaxis, :]
op.quantile(v, 0.25, method="linear")
op.identity(6) * x[:1, :]
op.ravel(x, order="C")
op.diff(v, prepend=0.0)
op.diff(v, prepend=v[0], append=v[-1:])
op.diff(v, append=1.5)
op.diff(x, axis=0, prepend=0.0)
op.diff(x, axis=1, append=x[:, :2])
op.diff(x, n=2, prepend=0.0)
op.diff(v, prepend=v[:1])
op.diff(k, prepend=0)
op.pad(x, 1, mode="edge")
op.pad(x, ((1, 2), (0, 3)), mode="reflect")
op.pad(v, 2, mode="wrap")
op.pad(v, 7, mode="symmetric")
op.pad(v, 7, mode="reflect")
op.pad(v, 12, mode="wrap")
op.pad(x, ((0, 0), (1, 1)), "edge")
op.pad(x * 2.0, 2, mode="reflect")[1:-1, 1:-1]
op.cumsum(op.ravel(x))
op.fmax(v, w) - op.fmin(v, w)
op.cbrt(v)
op.heaviside(v, 0.5)
op.sinc(v)
op.nansum(x, axis=1)
op.nanmean(x)
op.nanmax(x, axis=0, keepdims=True)
op.nan_to_num(v)
op.average(v, weights=w)
op.average(x, axis=1, weights=x)
op.hstack((v, w))
op.hstack((x, x))
op.vstack((v, w))
op.vstack([x, x])
op.column_stack((v, w))
op.column_stack((x, x))
op.diag(v)
op.diag(x[:, :4])
op.inner(v, w)
op.inner(x, x)
op.vdot(v, w)
op.kron(x[:2, :2], x[:, :3])
op.cov(x)
op.corrcoef(x)
op.gradient(v)
op.gradient(v, 0.5)
op.trapezoid(v)
op.trapezoid(v, op.cumsum(w * w))
op.trapezoid(x, dx=0.5)
op.cross(v[:3], w[:3])
op.cross(x[:, :3], x[:, 3:])
op.isin(k, op.array([1, 3]))
op.isin(k, [1, 3])
op.searchsorted(op.sort(v), w)
op.searchsorted(op.sort(v), w, side="right")
op.searchsorted(op.sort(v), 0.25)
op.digitize(v, [-1.0, 0.0, 1.0])
op.digitize(v, op.array([-1.0, 0.0, 1.0]), right=True)
op.interp(v, op.sort(w), v)
op.interp(0.1, op.sort(w), v)
op.interp(v, [-1.0, 0.0, 1.0], [0.5, 2.0, -1.0])
op.isneginf(v) | op.isposinf(w)
op.nanmin(x, axis=0)
op.nanprod(x)
"""


def _numpy(text: str) -> Any:
    for name in ("f64", "i64"):
        text = text.replace(name, f"np.{'float64' if name == 'f64' else 'int64'}")
    return eval(text.replace("op.", "np."), {"np": np, **GIVEN})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["", "@op.kernel\n"], ids=["host", "kernel"])
@pytest.mark.parametrize("text", FORMS.strip().split("\n"))
@pytest.mark.sample(12)
def test_beside_numpy(text: str, kind: str, target: Any) -> None:
    names = [n for n in GIVEN if re.search(rf"(?<![\w.]){n}\b(?!=)", text)]
    source = f"{kind}def f({', '.join(names)}):\n    return {text}\n"
    got = tessera.compile(source, target=target).f(*(GIVEN[n].copy() for n in names))
    want, tolerance = np.asarray(_numpy(text)), 1e-5 if "f" in names else 1e-12
    assert np.shape(got) == want.shape
    np.testing.assert_allclose(np.asarray(got).astype(float), want.astype(float), tolerance,
                               tolerance)  # fmt: skip


OUT = """
def f(x, y):
    op.multiply(x, x, out=y)
    op.cumsum(x[1:3], axis=0, out=y[1:3])
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["", "@op.kernel"], ids=["host", "kernel"])
def test_results_stored_by_out(kind: str, target: Any) -> None:
    x, y = GIVEN["x"], np.zeros((4, 6))
    tessera.compile(OUT.replace("\ndef", f"\n{kind}\ndef"), target=target).f(x, y)
    np.testing.assert_allclose(y, np.concatenate((x[:1] ** 2, x[1:3].cumsum(0), x[3:] ** 2)))
    text = f"{kind}\ndef f(x, y):\n    return op.add(x, x, out=y)\n"
    with pytest.raises(tessera.TesseraError, match="out"):
        _called(text, x, y)


def _called(source: str, *arguments: Any) -> Any:
    return tessera.compile(source, target="cpu").f(*arguments)


MISSING = {
    "op.hypot(x)": r"`op.hypot\(a, b\)`", "op.where(x > 0.0, x)": "it is called so",
    "op.cumsum(x)": r"`op.cumsum\(op.ravel\(x\)\)`", "op.interp(v, v)": "it is called so",
    'op.pad(x, 1, mode="mean")': '"edge", "wrap", "reflect"',
}  # fmt: skip


@pytest.mark.parametrize("text", MISSING)
@pytest.mark.parametrize("kind", ["", "@op.kernel\n"], ids=["host", "kernel"])
def test_a_call_that_lacks_something_is_told_the_form(text: str, kind: str) -> None:
    source = f"{kind}def f(x, v):\n    return {text}\n"
    with pytest.raises(tessera.TesseraError, match=MISSING[text]):
        _called(source, GIVEN["x"], GIVEN["v"])
