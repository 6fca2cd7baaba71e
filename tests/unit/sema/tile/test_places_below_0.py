"""Computed places below 0 in kernels, where the text shows them, and neighbours without them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tessera_backend.runtime import call_diagnostics

import tessera_lang as tessera
from tessera_lang.driver.session import Session

BELOW_0 = {
    "x[op.arange(n) - 1]": ["(op.arange(n) - 1) % x.shape[0]"],
    "x[op.arange(-1, n - 1)]": ["op.arange(-1, n - 1) % x.shape[0]"],
    "x[-2 + op.arange(n) + 1]": ["(-2 + op.arange(n) + 1) % x.shape[0]"],
    "op.take(x, op.arange(n) - 2)": ["(op.arange(n) - 2) % x.shape[0]"],
    "op.take(2.0 * x, i, axis=0)": ["i % (2.0 * x).shape[0]"],
    "x[i] + x[j]": ["i % x.shape[0]", "j % x.shape[0]"],
}
"""And the places that count from the end."""
NOT_BELOW_0 = (
    "x[(op.arange(n) - 1) % n]", "x[op.arange(n) - 1 + 1]", "x[op.arange(1, n) - 1]",
    "x[op.maximum(i, 0)]", "op.where(i >= 0, x[i], 0.0)", "x[op.arange(n)[1:] - 1]", "x[q + 1]",
    "x[op.arange(n - 1) + 1]", "x[n - 1 - op.arange(n)]", "x[-1] * x", "x[:-1]",
)  # fmt: skip


OF_THE_RUN = (
    "x[q - 1]", "x[-1 + q]", "(2.0 * x)[q - 1]", "z[q - 1, :]", "z[:, q - 1]", "z[q - 1, q]",
    "x[q - k]", "x[q[1:] - q[:m - 1]]", "op.take(x, j)", "x[j[:, None]]",
    "op.take_along_axis(z, p - 1, axis=1)", "x[p - 1]", "x[op.arange(n) - k]",
    "x[op.argsort(x) - 1]", "x[q - 1] + x[q + 1]",
)  # fmt: skip
"""Places that may be below 0, and nothing but the run knows."""
OF_THE_RUN_AND_RIGHT = (
    "x[(q - 1) % n]", "x[op.maximum(q - 1, 0)]", "op.where(q > 0, x[q - 1], 0.0)", "x[u - 1]",
    "x[op.clip(q - 1, 0, n - 1)]", "x[n - 1 - q]", "x[q + 1]", "x[q]",
    "x[op.where(q > 0, q - 1, 0)]", "x[op.arange(1, n) - 1]", "x[n - 1 - op.arange(n)]",
    "op.sum(x * (j >= 0)) + x[j]",
)  # fmt: skip


def _of_the_run(value: str) -> list[str]:
    head = "x: f64[n], q: i32[m], k: i32, z: f64[a, b], u: u32[m], p: i64[a, b]"
    text = f"@op.kernel\ndef f({head}):\n    j = q - 1\n    return {value}\n"
    return [d.message for d in Session(overlay={"k": text}).check("k") if d.code == "T0624"]


@pytest.mark.parametrize("value", OF_THE_RUN)
def test_what_only_the_run_knows_is_said(value: str) -> None:
    (said,) = _of_the_run(value)
    assert "may be below 0: what is read there is 0" in said


@pytest.mark.parametrize("value", OF_THE_RUN_AND_RIGHT)
def test_what_is_bounded_compared_or_counted_from_the_end_is_not(value: str) -> None:
    assert not _of_the_run(value)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize(("line", "stores"), [("y = x[q - 1]", False), ("y[q - 1] = 9.0", True)])
def test_a_call_is_told_and_both_helps_are_right(
    line: str, stores: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    x, q = np.arange(1.0, 6.0), np.array([0, 2, 4]).astype(dtype)
    source = f"@op.kernel\ndef f(x, q):\n    y = x.copy()\n    {line}\n    return y\n"
    monkeypatch.setattr(call_diagnostics, "_told", set[str]())  # what is told is told once
    if not stores:
        source = source.replace("    y = x.copy()\n", "")
    with pytest.warns(tessera.TesseraWarning, match="T0624") as told:
        tessera.compile(source, target="cpu").f(x, q)
    text = str(told[0].message)
    wrapped = text.partition("from the end write `")[2].partition("`")[0]
    bounded = text.partition("below 0, `")[2].partition("`")[0]
    for form, places in ((wrapped, (q - 1) % 5), (bounded, np.maximum(q - 1, 0))):
        want = x[places]
        if stores:
            want = x.copy()
            want[places] = 9.0
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = tessera.compile(source.replace("q - 1", form), target="cpu").f(x, q)
        assert not [w for w in seen if "T0624" in str(w.message)]
        np.testing.assert_array_equal(np.asarray(found), want)


def _kernel(value: str) -> str:
    lines = "    i = op.arange(n) - 1\n    j = i - 1\n"
    return f"@op.kernel\ndef f(x: f64[n], q: i32[n]):\n{lines}    return {value}\n"


def _found(text: str) -> list[str]:
    session = Session(overlay={"k.tessera": text})
    found = [d for d in session.check("k.tessera") if d.code == "T0624"]
    return [d.helps[0].removeprefix("to count from the end write ").strip("`") for d in found]


@pytest.mark.parametrize("value", BELOW_0)
def test_a_place_that_is_below_0_is_said_with_what_counts_from_the_end(value: str) -> None:
    assert _found(_kernel(value)) == BELOW_0[value]


@pytest.mark.parametrize("value", NOT_BELOW_0)
def test_nothing_is_said_of_others(value: str) -> None:
    assert not _found(_kernel(value))


def test_a_plain_function_counts_from_the_end() -> None:
    text = "def f(x):\n    return x[op.arange(3) - 1]\n"
    assert not _found(text)
    x = np.array([0.7, -1.2, 0.1])
    found = np.asarray(tessera.compile(text, target="cpu").f(x))
    np.testing.assert_array_equal(found, x[np.arange(3) - 1])


STORE = "@op.kernel\ndef f(x: f64[n]):\n    y = x.copy()\n    y[{}] = 9.0\n    return y\n"


@pytest.mark.parametrize("places", ["op.arange(-1, n - 1)", "op.arange(2) - 1"])
def test_a_store_too_and_the_help_is_what_numpy_does(places: str) -> None:
    (right,) = _found(STORE.format(places))
    x = np.random.default_rng(1).standard_normal(5)
    want = x.copy()
    want[eval(places, {"op": np, "n": 5})] = 9.0
    with pytest.warns(tessera.TesseraWarning, match="T0624"):
        tessera.compile(STORE.format(places), target="cpu").f(x)
    found = tessera.compile(STORE.format(right), target="cpu").f(x)
    np.testing.assert_array_equal(np.asarray(found), want)


@pytest.mark.parametrize("value", ["x[op.arange(n) - 3]", "op.take(x, op.arange(-2, n))"])
def test_a_read_warns_at_the_call_and_the_help_is_what_numpy_does(value: str) -> None:
    (right,) = _found(_kernel(value).replace(", q: i32[n]", ""))
    x = np.random.default_rng(1).standard_normal(5)
    want = eval(value, {"op": np, "n": 5, "x": x})
    with pytest.warns(tessera.TesseraWarning, match="T0624"):
        tessera.compile(_kernel(value).replace(", q: i32[n]", ""), target="cpu").f(x)
    text = f"@op.kernel\ndef f(x: f64[n]):\n    return x[{right}]\n"
    np.testing.assert_array_equal(np.asarray(tessera.compile(text, target="cpu").f(x)), want)
