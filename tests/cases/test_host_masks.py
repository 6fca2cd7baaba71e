"""What bools and lists choose in the host program, and quotients of integers there, as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.cases.test_host_edges import TARGETS

READ = [
    "x[x > 0.0]", "A[A > 0.0]", "A[r]", "A[r, 1]", "A[:, c]", "A[1, c]", "A[~r]", "x[x > 9.0]",
    "A[A > 9.0]", "A[r, 1:3]", "A[A[:, 0] > 0.0]", "x[[0, 2]]", "A[[2, 0], :]", "A[places, :]",
    "A[:, [1, 1]]", "x[places]",
]  # fmt: skip
STORED = [
    "u[u < 0.0] = 0.0", "u[~(u < 0.0)] += 1.0", "u[u < 0.0] = op.abs(u[u < 0.0])",
    "u[r] = 2.0", "u[r] *= 3.0", "u[:, c] -= 1.0", "u[0, c] = 5.0", "u[r] = u[r] + 1.0",
    "u[places, :] = u[[0, 1], :]", "u[u > 9.0] = 1.0", "u[u > 0.0] = u[u > 0.0] * 2.0 - 1.0",
    "u[r, 2] += 1.0", "u[A > 0.5] = A[A > 0.5] + 1.0",
]  # fmt: skip


def given() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    A = rng.standard_normal((3, 4)).astype(np.float32)
    return {"A": A, "x": A[1].copy(), "r": np.array([True, False, True]),
            "c": np.array([False, True, True, False])}  # fmt: skip


def numpy_of(names: dict[str, Any]) -> dict[str, Any]:
    return {**names, "op": np, "places": [2, 1]}


@pytest.mark.parametrize("expression", READ)
@pytest.mark.parametrize("target", TARGETS)
def test_what_bools_and_lists_choose(expression: str, target: Any) -> None:
    text = f"def f(A, x, r, c):\n    places = [2, 1]\n    return {expression}\n"
    m: Any = tessera.compile(text, target=target)
    names = given()
    want = eval(expression, numpy_of(names))
    found = np.asarray(m.f(*names.values()))
    assert found.shape == want.shape and found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("statement", STORED)
@pytest.mark.parametrize("target", TARGETS)
def test_stores_where_bools_and_lists_choose(statement: str, target: Any) -> None:
    head = "def f(A, x, r, c):\n    places = [2, 1]\n    u = A.copy()\n"
    text = f"{head}    {statement}\n    return u\n"
    m: Any = tessera.compile(text, target=target)
    names = given()
    u = names["A"].copy()
    exec(statement, numpy_of({**names, "u": u}))
    np.testing.assert_allclose(m.f(*names.values()), u, 1e-6)


def test_what_is_chosen_has_a_size_and_sums() -> None:
    text = (
        "def f(x):\n    m = x > 0.0\n"
        "    return len(x[m]), op.sum(x[m]), x[m].mean(), op.max(x[m]), sorted(x[m])\n"
    )
    m: Any = tessera.compile(text, target="cpu")
    x = given()["x"]
    chosen = x[x > 0]
    want = (len(chosen), chosen.sum(), chosen.mean(), chosen.max())
    *found, ordered = m.f(x)
    np.testing.assert_allclose(found, want, 1e-6)
    assert list(ordered) == sorted(map(float, chosen))


WRONG = {
    "x[r]": r"bools of shape \(3,\) for an array of shape \(4,\)",
    "A[x > 0.0]": "bools of shape",
    "x[A > 0.0]": "bools of shape",
}


@pytest.mark.parametrize("expression", WRONG)
def test_bools_of_another_shape_are_refused(expression: str) -> None:
    m: Any = tessera.compile(f"def f(A, x, r, c):\n    return {expression}\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match=WRONG[expression]):
        m.f(*given().values())


def test_as_many_are_stored_as_are_chosen() -> None:
    m: Any = tessera.compile("def f(x, y):\n    x[x > 0.0] = y\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match="which the bools choose"):
        m.f(np.array([1.0, -1.0, 2.0], np.float32), np.ones(3, np.float32))


def test_check_knows_what_is_chosen() -> None:
    text = """
x = op.random((6,))
A = op.random((6, 4))
u = A[x > 0.0]
print(u[0, 3], x[x > 0.0].sum() / 2, op.sum(A > 0.5, axis=0) / 6 * op.ones((4,), dtype=f64))
print(u[0, 4])
"""
    found = Session(overlay={"main.tessera": text}).check("main.tessera")
    assert [d.code for d in found] == ["T0807"]


QUOTIENTS = {
    "i / j": np.float64, "i / 2": np.float64, "3 / j": np.float64, "i / 2.0": np.float64,
    "u / u": np.float64, "u / j": np.float64, "op.sum(i > 1, axis=0) / len(i)": np.float64,
    "(x > 0.0).sum() / x.shape[0]": None, "op.sum(i, axis=0) / i.shape[0]": np.float64,
    "x / 2": np.float32, "i[0, 0] / 0.0": None, "i / 0": np.float64,
}  # fmt: skip


@pytest.mark.parametrize("expression", QUOTIENTS)
@pytest.mark.parametrize("target", TARGETS)
def test_quotients_of_integers_are_floats(expression: str, target: Any) -> None:
    m: Any = tessera.compile(f"def f(i, j, u, x):\n    return {expression}\n", target=target)
    rng = np.random.default_rng(3)
    i, j = rng.integers(-9, 9, (3, 4), np.int32), rng.integers(1, 9, (3, 4), np.int32)
    u, x = np.arange(1, 5, dtype=np.uint8)[None], rng.standard_normal(4).astype(np.float32)
    with np.errstate(all="ignore"):
        want = eval(expression, {"op": np, "i": i, "j": j, "u": u, "x": x})
    found = m.f(i, j, u, x)
    np.testing.assert_allclose(found, want, 1e-6)
    dtype = QUOTIENTS[expression]
    assert dtype is None or np.asarray(found).dtype == dtype


@pytest.mark.parametrize("operator", ["+", "-", "*"])
def test_a_bool_beside_an_array_is_a_number(operator: str) -> None:
    text = f"def f(x, b):\n    return x {operator} b, b {operator} x, x {operator} True\n"
    m: Any = tessera.compile(text, target="cpu")
    for x in (np.arange(3, dtype=np.float32), np.arange(3, dtype=np.int32)):
        for found, want in zip(m.f(x, True), eval(
            f"(x {operator} 1, 1 {operator} x, x {operator} 1)", {"x": x}
        ), strict=True):  # fmt: skip
            np.testing.assert_array_equal(found, want)
