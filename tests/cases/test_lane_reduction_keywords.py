"""Keyword arguments of reductions in lanes: each has its effect, as in NumPy, or is refused, and
none is passed over. Other forms that messages name in kernels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS

X = np.array([0.5, -2.0, 3.25, 4.0, 1.5, 7.0])
TEXT = """
@kernel tile[(32,)] grid[(1,)]
def f(x: {dtype}[n], b: bool[n], y: mut {dtype}[m]):
    if tile_linear_id() < m:
        y[tile_linear_id()] = {value}
"""
REDUCTIONS = ("sum", "max", "min", "mean", "prod", "var", "std")
KEYWORDS = ("axis=0", "axis=-1", "axis=None", "keepdims=True", "ddof=0", "ddof=1", "ddof=2",
            "correction=0", "correction=1", "dtype=f64", "initial=2.0", "where=b")  # fmt: skip


def run(value: str, dtype: str = "f64", target: str = "cpu") -> Any:
    x = X.astype(dtype.replace("f", "float"))
    y = np.zeros(2, x.dtype)
    made: Any = module_for(target, TEXT.format(dtype=dtype, value=value))
    made.f(x, X > 1.0, y)
    assert y[0] == y[1]
    return y[0]


def numpy_of(name: str, keyword: str) -> Any:
    known = {"np": np, "x": X[1:], "b": X[1:] > 1.0}
    return np.ravel(eval(f"np.{name}(x, {keyword.replace('f64', 'np.float64')})", known))[0]


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.sample(14)
def test_a_keyword_has_its_effect_or_is_refused(name: str, keyword: str) -> None:
    try:
        found = run(f"op.{name}(x[1:n], {keyword.replace('=b', '=b[1:n]')})")
    except tessera.TesseraError as error:
        assert re.search(r"T0\d\d\d", str(error))
        return
    np.testing.assert_allclose(found, numpy_of(name, keyword))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("key", "number"), [("ddof", 1), ("correction", 1), ("ddof", 2)])
@pytest.mark.sample(4)
def test_the_form_that_is_named(key: str, number: int, dtype: str, target: str) -> None:
    if target == "sm_90a":
        pytest.skip("lane kernels of a GPU run on a GPU")
    with pytest.raises(tessera.TesseraError, match="T0106") as error:
        run(f"op.var(x[1:n], {key}={number})", dtype)
    (form,) = re.findall(r"write `(.*)`", str(error.value))
    assert form.startswith("op.var(x[1:n]) * n")
    found = run(form.replace("* n / (n -", "* (n - 1) / (n - 1 -"), dtype, target)
    np.testing.assert_allclose(found, np.var(X[1:], ddof=number), 1e-6 if dtype == "f32" else 1e-14)


DTYPES = {
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "long": "i64",
    "short": "i16",
}


@pytest.mark.parametrize("name", DTYPES)
def test_a_conversion_by_another_name_names_its_dtype(name: str) -> None:
    with pytest.raises(tessera.TesseraError, match=rf"write `x\.to\({DTYPES[name]}\)`"):
        module_for("cpu", f"@op.kernel\ndef f(x: f64[n]):\n    return x.{name}()\n").f(X)
    text = f"@op.kernel\ndef f(x: f64[n]):\n    return x.to({DTYPES[name]})\n"
    made: Any = tessera.compile(text, target="cpu")
    np.testing.assert_allclose(
        np.asarray(made.f(X), np.float64), X if "f" in DTYPES[name] else np.trunc(X)
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("bounds", ["0.5, 1.5, 0.125", "0.0, 2.0, 0.1", "3.0"])
def test_a_range_of_floats_is_counted_in_the_dtype_that_it_meets(bounds: str, dtype: str) -> None:
    head = TEXT.partition("    if")[0].format(dtype=dtype)

    def of(loop: str, value: str) -> str:
        return (
            f"{head}    s = x[0]\n    for t in {loop}:\n        s += {value}\n"
            "    if tile_linear_id() < m: y[tile_linear_id()] = s\n"
        )

    with pytest.raises(tessera.TesseraError, match="T0215") as error:
        tessera.compile(of(f"range({bounds})", "t"), target="cpu")
    told = re.search(r"`for k in (range\(\d+\)):`, and compute `(.*)`", str(error.value))
    assert told is not None
    x = X.astype(dtype.replace("f", "float"))
    y = np.zeros(2, x.dtype)
    made: Any = tessera.compile(of(told[1], told[2].replace("k", "t")), target="cpu")
    made.f(x, X > 1.0, y)
    numbers = [float(v) for v in bounds.split(",")]
    np.testing.assert_allclose(
        y[0], X[0] + np.arange(*numbers).sum(), 1e-6 if dtype == "f32" else 1e-14
    )
