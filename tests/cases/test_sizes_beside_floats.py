"""Sizes of arrays beside floats, as NumPy has them; numbers of an array say what they become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

Array = np.ndarray[Any, np.dtype[Any]]
TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
RIGHT: dict[str, Callable[[Array, int, int], Any]] = {
    "op.sum(x, axis=0) / m": lambda x, m, n: x.sum(0) / m,
    "op.sum(x) / (m * n)": lambda x, m, n: x.sum() / (m * n),
    "x * (m - 1) + n": lambda x, m, n: x * (m - 1) + n,
    "m - x": lambda x, m, n: m - x,
    "m / (op.abs(x) + 1.0)": lambda x, m, n: m / (np.abs(x) + 1),
    "op.mean(x) * m / (m + 1)": lambda x, m, n: x.mean() * m / (m + 1),
    "op.where(x > n, m, x)": lambda x, m, n: np.where(x > n, m, x),
    "op.maximum(x, n // 2)": lambda x, m, n: np.maximum(x, n // 2),
    # beside a literal: of the type that the result meets
    "x * (1.0 / n)": lambda x, m, n: x * (1.0 / n),
    "op.sum(x, axis=1) * (0.5 * m)": lambda x, m, n: x.sum(1) * (0.5 * m),
    "op.exp(1.0 / n) * x": lambda x, m, n: np.exp(1 / n) * x,
    "x * math.sqrt(1.0 / n)": lambda x, m, n: np.sqrt(1 / n) * x,
    "x ** 2 * (1.0 - 0.5 / n)": lambda x, m, n: x**2 * (1 - 0.5 / n),
    "op.where(x > 1.0 / n, x, 0.5 / m)": lambda x, m, n: np.where(x > 1 / n, x, 0.5 / m),
    "max(x, 2.0 / n)": lambda x, m, n: np.maximum(x, 2 / n),
    "x * (2.0 * 3.14159 * n / m)": lambda x, m, n: x * (2 * 3.14159 * n / m),
    "x / op.sqrt(n)": lambda x, m, n: x / np.sqrt(n),
    "x * op.log(n + 1)": lambda x, m, n: x * np.log(n + 1),
    "x / op.sqrt(2.0)": lambda x, m, n: x / np.sqrt(2),
    "x * op.exp(1.0) * op.abs(-1.5)": lambda x, m, n: x * np.e * 1.5,
    "x * op.abs(op.sum(x)) * op.relu(x[0, 0] + 9.0)": lambda x, m, n: (
        x * np.abs(x.sum()) * max(x[0, 0] + 9, 0)
    ),
    "x * math.log(n + 1) / math.sqrt(m)": lambda x, m, n: x * np.log(n + 1) / np.sqrt(m),
    "x * math.exp(1.0) / math.sqrt(2)": lambda x, m, n: x * np.e / np.sqrt(2),
    "op.where(x > math.pi, op.e * x, -op.pi)": lambda x, m, n: np.where(
        x > np.pi, np.e * x, -np.pi
    ),
    "op.zeros_like(x) + 1.0 / n": lambda x, m, n: np.zeros_like(x) + 1 / n,
}
LITERALS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "of full": ("op.full((n,), 1.0 / n)", lambda n: np.full(n, 1 / n)),
    "of ones": ("op.ones((n,)) / n", lambda n: np.full(n, 1 / n)),
    "alone": ("1.0 / n", lambda n: np.float64(1 / n)),
    "cast": ("f64(1.0 / n)", lambda n: 1 / n),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LITERALS)
def test_what_meets_nothing_is_as_the_arrays(name: str, dtype: str, target: Any) -> None:
    expression, numpy = LITERALS[name]
    text = f"@op.kernel\ndef f(x):\n    n = x.shape[0]\n    return {expression}\n"
    got = np.asarray(tessera.compile(text, target=target).f(np.ones(7, dtype)))
    want = numpy(7)
    assert got.dtype == (np.float64 if name == "cast" else dtype)
    np.testing.assert_allclose(got, want, rtol=1e-6 if got.dtype == np.float32 else 1e-15)


@pytest.mark.parametrize("target", TARGETS)
def test_a_value_that_a_loop_over_rounds_changes(target: Any) -> None:
    """It begins as a filled tile and becomes what a product is: a whole value from its begin on."""
    text = """@op.kernel
def f(a: f32[n, n]):
    links = a / op.sum(a, axis=0, keepdims=True)
    r = op.full((n,), 1.0 / n, f32)
    for t in range(9):
        r = 0.85 * links @ r + 0.15 / n
    return r
"""
    for n in (5, 60):
        a = (np.random.default_rng(n).random((n, n)) > 0.5).astype(np.float32) + np.eye(n)
        links, r = a / a.sum(0), np.full(n, 1 / n)
        for _ in range(9):
            r = 0.85 * links @ r + 0.15 / n
        got = np.asarray(tessera.compile(text, target=target).f(a.astype(np.float32)))
        np.testing.assert_allclose(got, r, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("head", ["m, n = x.shape", "m = x.shape[0]\n    n = x.shape[-1]"])
@pytest.mark.parametrize("expression", RIGHT)
@pytest.mark.sample(2)
def test_values(expression: str, head: str, dtype: Any, target: Any) -> None:
    text = f"@op.kernel\ndef f(x):\n    {head}\n    return {expression}\n"
    f = tessera.compile(text, target=target).f
    for m, n in ((6, 4), (1, 1), (300, 17)):
        x = np.random.default_rng(m).normal(size=(m, n)).astype(dtype) * 5
        got = np.asarray(f(x))
        assert got.dtype == dtype
        want = RIGHT[expression](x, m, n)
        places = 1e-5 if dtype == np.float32 else 1e-13  # a size in f32 would be off by 1e-8
        near = places * max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(got, want, rtol=places, atol=near)


@pytest.mark.parametrize("head", [
    "f(x: f32[m, 16]):\n    n = x.shape[1]", "f(x: f32[6, n]):\n    m = x.shape[0]",
    "f(x):\n    n = x.shape[1]\n    x2 = op.where(op.arange(n)[None, :] >= 0, x, 0.0)",
])  # fmt: skip
def test_a_size_that_the_code_is_made_for_is_a_size(head: str) -> None:
    """Whether it is known, by an annotation or as the kernel asks for it, changes nothing."""
    text = f"@op.kernel\ndef {head}\n    return op.sum(x, axis=1) / n\n"
    x = np.random.default_rng(1).normal(size=(6, 16)).astype(np.float32)
    found = np.asarray(tessera.compile(text, target="cpu").f(x))
    np.testing.assert_allclose(found, x.sum(1) / 16, rtol=1e-5, atol=1e-5)
    session = Session(overlay={"k.tessera": text})
    for sizes in ((), ("x: f32[6, 16]",)):
        assert not [d for d in session.check("k.tessera", sizes) if d.severity == "error"]


@pytest.mark.parametrize("dtype", [np.float16])
def test_sums_of_narrow_floats(dtype: Any) -> None:
    """They are f32, which takes a size; the narrow dtype itself might not."""
    f = tessera.compile("@op.kernel\ndef f(x):\n    return op.sum(x) / x.shape[0]\n").f
    x = np.full(70000, 0.5, dtype)
    assert float(np.asarray(f(x))) == 0.5


REFUSED = {
    "a narrow float": ("x: f16[n]", "return x * n"),
    "numbers of an array": ("x: f32[n], q: i64[n]", "return x * q"),
    "places of numbers": ("x: f32[n], q: i32[n]", "return x * (q + op.arange(8))"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_size_is_converted_in_words(name: str) -> None:
    parameters, body = REFUSED[name]
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"@op.kernel\ndef f({parameters}):\n{lines}"
    found = Session(overlay={"k.tessera": text}).check("k.tessera")
    assert [d.code for d in found if d.severity == "error"] == ["T0201"], found


TAKEN: dict[str, Callable[[Array, Array], Array]] = {
    "t = op.exp(x)\nreturn t[i]": lambda x, i: np.exp(x)[i],
    "t = op.exp(x)\nreturn t[:, i]": lambda x, i: np.exp(x)[:, i],
    "s = op.sum(x, axis=1)\nreturn s[op.argsort(s)]": lambda x, i: np.sort(x.sum(1)),
    "c = op.concat((op.zeros((1,), f32), op.cumsum(x[:, 0])))\nreturn c[i[1:]] - c[i[:-1]]":
        lambda x, i: np.diff(np.concatenate([[0], np.cumsum(x[:, 0])])[i]),
    "return op.argmax(x > 0.5, axis=1)": lambda x, i: (x > 0.5).argmax(1),
    "return op.argmin(x > 0.5)": lambda x, i: np.asarray((x > 0.5).argmin()),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", TAKEN)
@pytest.mark.sample(3)
def test_rows_of_what_is_computed(body: str, target: Any) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    f = tessera.compile(f"@op.kernel\ndef f(x: f32[m, n], i: i64[k]):\n{lines}", target=target).f
    x = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    i = np.array([2, 0, 4, 4])
    wanted = TAKEN[body](x, i)
    np.testing.assert_allclose(np.asarray(f(x, i)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_plain_function_that_is_given_a_size(dtype: Any, target: Any) -> None:
    text = """def share(v):
    return 1.0 / v


def mean_of(s, n):
    return s / n


@op.kernel
def f(x):
    m, n = x.shape
    return x * SHARE + mean_of(op.sum(x), m * n)
"""
    text = text.replace("SHARE", "share(n)" if dtype == np.float32 else "(1.0 / n)")
    x = np.random.default_rng(5).normal(size=(6, 5)).astype(dtype)
    got = np.asarray(tessera.compile(text, target=target).f(x))
    assert got.dtype == dtype
    places = 1e-5 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(got, x / 5 + x.mean(), rtol=places, atol=places)
