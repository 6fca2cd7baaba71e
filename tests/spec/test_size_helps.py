"""Sizes that are numbers of the call: what is told, followed literally, is right."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tessera_lang as tessera

X = np.arange(1, 6, dtype=np.float64)
BODIES = {
    "y = op.zeros((k,))\n    y[0:2] = x[0:2]\n    return y": [1.0, 2.0, 0.0],
    "y = op.zeros((k + 1, 2 * k))\n    y[0, 0:2] = x[0:2]\n    return y":
        np.pad(X[None, :2], ((0, 3), (0, 4))),
    "y = op.zeros((k,))\n    return y + op.sum(x)": [15.0] * 3,
    "return op.sum(x) * op.arange(k)": [0.0, 15.0, 30.0],
    "return x[0] + op.linspace(0.0, 1.0, k)": [1.0, 1.5, 2.0],
    "return x[0:k]": X[:3],
    "return op.full((k, 2), x[0])": np.ones((3, 2)),
    "return x[1] * op.eye(k)": 2 * np.eye(3),
    "return op.tile(x[:2], k)": np.tile(X[:2], 3),
}  # fmt: skip


@pytest.mark.parametrize("declared", ["k", "k: i32", "k: i64"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sample(9)
def test_a_number_of_the_call(body: str, declared: str) -> None:
    source = f"@op.kernel\ndef f(x: f64[n], {declared}):\n    {body}\n"
    with pytest.raises(tessera.TesseraError) as error:
        tessera.compile(source, target="cpu").f(X, 3)
    told = re.search(r"declare `(k: int)`", str(error.value))
    assert told is not None, str(error.value)
    right = source.replace(f", {declared}):", f", {told[1]}):")
    found = tessera.compile(right, target="cpu").f(X, 3)
    np.testing.assert_allclose(np.asarray(found), BODIES[body])


NUMBERS = {
    "return op.sum(x[:, None] * x[None, :], axis=k)": ("k: int", 1, np.outer(X, X).sum(1)),
    "return op.sort(x[:, None] * x[None, :], axis=k)": ("k: int", 0, np.outer(X, X)),
    "return op.repeat(x, k)": ("k: int", 2, np.repeat(X, 2)),
    "return op.sum(x[:, None], axis=0, keepdims=k)": ("k: bool", True, [[15.0]]),
    "return op.var(x, ddof=k)": ("k: int", 1, 2.5),
    "return op.quantile(x, k)": ("k: float", 0.25, 2.0),
    "return op.roll(x, k)": ("", 2, np.roll(X, 2)),
}  # fmt: skip


@pytest.mark.parametrize("body", NUMBERS)
@pytest.mark.sample(3)
def test_a_number_that_is_to_be_known(body: str) -> None:
    want, value, result = NUMBERS[body]
    source = f"@op.kernel\ndef f(x: f64[n], k):\n    {body}\n"
    if want:
        with pytest.raises(tessera.TesseraError) as error:
            tessera.compile(source, target="cpu").f(X, value)
        assert f"declare `{want}`" in str(error.value)
        source = source.replace(", k):", f", {want}):")
    found = tessera.compile(source, target="cpu").f(X, value)
    np.testing.assert_allclose(np.asarray(found), result)


@pytest.mark.parametrize("size", ["p[0]", "op.max(p)"])
def test_a_number_that_the_kernel_computes(size: str) -> None:
    """It is computed in the host program and passed as a parameter."""
    source = f"@op.kernel\ndef f(x: f64[n], p: i64[m]):\n    return op.zeros(({size},)) + x[0]\n"
    with pytest.raises(tessera.TesseraError):
        tessera.compile(source, target="cpu").f(X, np.array([3, 2]))
    source = source.replace("return op.zeros", "y = op.zeros").replace(" + x[0]", "")
    source = f"{source}    y[0] = x[0]\n    return y\n"
    with pytest.raises(tessera.TesseraError, match="T0613") as error:
        tessera.compile(source, target="cpu").f(X, np.array([3, 2]))
    told = re.search(r"as a parameter `(size: int)`", str(error.value))
    assert told is not None
    right = source.replace("p: i64[m]", told[1]).replace(size, "size")
    right += f"\n\ndef g(x, p):\n    return f(x, {size})\n"
    found = tessera.compile(right, target="cpu").g(X, np.array([3, 2]))
    np.testing.assert_array_equal(np.asarray(found), [1.0, 0.0, 0.0])
