"""Numbers of the host program know whether they have the bits of an f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

X = np.array([0.1, 0.2, 16777217.0])
OF_THE_ARRAY = (
    "op.array([op.sum(x), op.max(x)])", "op.array([x[0], x[1]])", "op.array([x[0] * 3.0, 2.0])",
    "op.array([v * v for v in x])", "op.full((2,), x[0])", "op.full((2,), -x[2])",
    "op.array([math.sqrt(x[0]), 1.0])", "op.array([abs(x[0]), max(x[1], 0.0)])",
    "op.array([1.0 / x[0], x[0] ** 2, 2.0 ** x[0], x[2] % 3.0, x[2] // 3.0])",
    "op.array([op.mean(x), op.min(x)])", "op.linspace(x[0], x[1], 3)", "op.array([float(x[2])])",
    "op.array(made(x))", "x - op.array([op.sum(x), op.max(x), x[0]])", "op.array([[x[0]], [1.0]])",
)  # fmt: skip
ALONE: dict[str, Any] = {
    "op.full((2,), 7)": np.full(2, 7, np.int32),
    "op.full((2,), 16777217)": np.full(2, 16777217, np.int32),
    "op.full((2,), True)": np.full(2, True),
    "op.full((2,), 0.5)": np.full(2, 0.5),
    "op.array([True, False])": np.array([True, False]),
    "op.array([])": np.zeros(0),
    "op.array([1, 2.5])": np.array([1, 2.5]),
    "op.array([f64(0.1)])": np.array([0.1]),
    "op.array([f32(x[0])])": np.array([np.float32(0.1)], np.float64),
    "op.array([op.argmax(x), len(x)])": np.array([2, 3], np.int32),
    "op.full((2,), x[0], dtype=f32)": np.full(2, 0.1, np.float32),
    "op.max(x > 0.15)": True,
    "op.min(x > 0.15)": False,
}  # fmt: skip
HEAD = "def made(x):\n    l = []\n    for v in x:\n        l.append(v * 0.5)\n    return l\n\n"


def _found(text: str, x: Any) -> Any:
    return tessera.compile(f"{HEAD}def f(x):\n    return {text}\n", target="cpu").f(x)


def _halves(x: Any) -> list[Any]:
    return [v * 0.5 for v in x]


@pytest.mark.parametrize("text", OF_THE_ARRAY)
def test_what_is_made_of_numbers_of_an_array(text: str) -> None:
    """All digits of f64 arrays; f32 of others, which never had more."""
    names: dict[str, Any] = {"op": np, "math": np, "made": _halves}
    for dtype in (np.float64, np.float32):
        x = X.astype(dtype)
        found, want = _found(text, x), np.asarray(eval(text, {**names, "x": x}))
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found, want.astype(dtype), 1e-15 if dtype == np.float64 else 1e-6
        )


@pytest.mark.parametrize("text", ALONE)
def test_what_is_made_of_others(text: str) -> None:
    """Returned to Python by a function that got arrays of f64: f64."""
    found = _found(text, X)
    assert np.asarray(found).dtype == np.asarray(ALONE[text]).dtype
    np.testing.assert_array_equal(found, ALONE[text])


def test_the_caller_gets_a_number_of_python() -> None:
    for text in ("op.sum(x)", "(op.sum(x), 1)[0]", "x[0] * 2.0"):
        assert type(_found(text, X)) is float
