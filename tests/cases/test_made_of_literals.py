"""``op.linspace``, ``op.array`` and ``op.eye`` of literals: of the floats they meet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, results_of

R = np.random.default_rng(5)
d = R.random(7)
D = R.random((7, 7))
s, h = d.astype(np.float32), d.astype(np.float16)
GIVEN = {"d": d, "s": s, "h": h, "D": D}
L, A, f32 = np.linspace(0.1, 0.9, 7), np.array([0.1, 0.2]), np.float32
E: Any = cast("Any", np).eye(7)
EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "op.array([0.1, 0.2])[1] * d": lambda: A[1] * d,
    "d * op.cos(op.linspace(0.1, 0.9, 7))": lambda: d * np.cos(L),
    "d[:2] * op.array([0.1, 0.2])": lambda: d[:2] * A,
    "D + 0.1 * op.eye(7)": lambda: D + 0.1 * E,
    "2 * op.eye(7) - D": lambda: 2 * E - D,
    "s * op.linspace(0.1, 0.9, 7)": lambda: (s * L).astype(f32),
    "h * op.linspace(0.1, 0.9, 7)": lambda: (h * L).astype(f32),
    "op.linspace(0.1, 0.9, 7)": lambda: L.astype(f32),
    "op.array([0.1, 2])": lambda: np.array([0.1, 2], f32),
    "op.eye(7)": lambda: E.astype(f32),
    "op.eye(7) @ d": lambda: d,
    "D @ op.linspace(0.1, 0.9, 7)": lambda: D @ L,
    "op.linspace(op.sum(d), 0.3, 7)": lambda: np.linspace(d.sum(), 0.3, 7),
    "op.linspace(op.sum(s), 0.3, 7)": lambda: np.linspace(s.sum(), 0.3, 7).astype(f32),
    "op.array([[0.1, 0.2], [0.3, -0.4]]) @ D[:2, :]":
        lambda: np.array([[0.1, 0.2], [0.3, -0.4]]) @ D[:2],
    "op.where(d > 0.5, op.linspace(0.1, 0.9, 7), d)": lambda: np.where(d > 0.5, L, d),
    "op.outer(op.linspace(0.1, 0.9, 7), d)": lambda: np.outer(L, d),
    "op.sort(op.array([0.2, 0.1])) * d[:2]": lambda: A[::-1][::-1] * d[:2],
    "op.stack((op.linspace(0.1, 0.9, 7), d))": lambda: np.stack((L, d)),
    "op.cumsum(op.linspace(0.1, 0.9, 7)) * d": lambda: L.cumsum() * d,
    "op.linspace(0.1, 0.9, 7)[::2] * d[:4]": lambda: L[::2] * d[:4],
    "op.maximum(op.linspace(0.1, 0.9, 7), d)": lambda: np.maximum(L, d),
    "op.mean(op.linspace(0.1, 0.9, 7)) * d": lambda: L.mean() * d,
    "op.norm(op.array([0.1, 0.2])) * d": lambda: np.linalg.norm(A) * d,
    "op.linspace(0.1, 0.9, 7).to(f64) * d": lambda: L * d,
    "f64(op.cos(op.linspace(0.1, 0.9, 7))) * d": lambda: np.cos(L) * d,
    "op.linspace(0.1, 0.9, 7) >= d": lambda: d <= L,
    "op.array([op.sum(d), 0.1]) * d[:2]": lambda: np.array([d.sum(), 0.1]) * d[:2],
    "op.array([0.1, 0.2], dtype=f64) * d[:2]": lambda: A * d[:2],
    "t = op.linspace(0.1, 0.9, 7)\nu = t * t\nreturn u + d": lambda: L * L + d,
    "t = op.array([0.1, 0.2])\nfor i in range(3):\n    t = t * d[:2]\nreturn t":
        lambda: A * d[:2] ** 3,
    "def f(d: f64[n]) -> f64[7]:\n    return op.linspace(0.1, 0.9, 7)": lambda: L,
    "def f(d: f64[n]):\n    y = op.zeros((7,), f64)\n    y[:] = op.linspace(0.1, 0.9, 7)\n"
    "    return y": lambda: L,
}  # fmt: skip
HELPED = {
    "op.median(op.linspace(0.1, 0.9, 7)) * d": lambda: np.median(L) * d,
    "op.reshape(op.linspace(0.1, 0.6, 6), (2, 3)) + D[:2, :3]": lambda: (
        np.linspace(0.1, 0.6, 6).reshape(2, 3) + D[:2, :3]
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", EXPRESSIONS)
@pytest.mark.sample(5)
def test_of_the_dtype_they_meet(source: str, target: str) -> None:
    want = np.asarray(EXPRESSIONS[source]())
    rtol = 1e-6 if want.dtype == f32 else 1e-14
    agree(results_of(source, GIVEN, target), want, rtol, 1e-15)


@pytest.mark.parametrize("source", HELPED)
def test_where_they_meet_nothing_at_once_they_lose_no_digit(source: str) -> None:
    agree(results_of(source, GIVEN, "cpu"), HELPED[source](), 1e-14, 0)


@pytest.mark.parametrize("source", HELPED)
def test_beside_arrays_of_both_the_help_loses_no_digit(source: str) -> None:
    head = "@op.kernel\ndef f(d: f64[n], D: f64[m, n], s: f32[k]):\n    return "
    given = GIVEN["d"], GIVEN["D"], GIVEN["s"]
    with pytest.raises(tessera.TesseraError, match=r"T0201[\s\S]*dtype=f64") as found:
        tessera.compile(f"{head}{source}, s\n", target="cpu")
    (fixed,) = re.findall(r"^\d* *3 \+ +return (.*), s$", str(found.value), re.MULTILINE)
    got = tessera.compile(f"{head}{fixed}, s\n", target="cpu").f(*given)[0]
    agree(got, HELPED[source](), 1e-14, 0)


@pytest.mark.parametrize("source", ["d * op.linspace(0.1, 0.9, 7)", "D + 0.1 * op.eye(7)"])
def test_code_for_gpus(source: str) -> None:
    assembled(source, GIVEN)


def test_rounding_to_decimals_names_the_form() -> None:
    source = "return op.round(d, op.argmax(d))"
    with pytest.raises(tessera.TesseraError, match=r"T0105[\s\S]*op.round\(x, 2\)"):
        results_of(source, GIVEN, "cpu")
    found = results_of("op.round(d, 2)", GIVEN, "cpu")
    agree(found, np.round(d, 2), 1e-14, 0)
