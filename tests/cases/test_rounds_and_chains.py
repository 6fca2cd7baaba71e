"""Reductions over the items of a comprehension, and chains of assignments, on both targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import agree, results_of

_R = np.random.default_rng(5)
GIVEN: dict[str, Any] = {
    "x": _R.normal(size=17).astype(np.float32), "a": _R.normal(size=(5, 4)).astype(np.float32),
    "k": _R.integers(0, 5, 17).astype(np.int32),
}  # fmt: skip
BODIES = (
    "return sum(x[i] * i for i in range(len(x)))",
    "return sum(a[i, j] for i in range(5) for j in range(4) if i > j)",
    "return max(x[i] + x[i + 1] for i in range(len(x) - 1)), min(v * v for v in x)",
    "return max(sum(abs(v) for v in r) for r in a)",
    "return any(v > 1 for v in x), all(v > -9 for v in x)",
    "return sum(1 for v in k if v == 1) + sum(v > 1 for v in k)",
    "v = 3.0\nt = sum(v * v for v in x)\nreturn t + v",
    "if sum(v for v in x) > 0.0:\n    return 1.0\nreturn 2.0",
    "lo = hi = x[0]\nfor v in x:\n    lo, hi = min(lo, v), max(hi, v)\nreturn lo, hi",
    "s = t = 0.0\ni = j = 0\nfor v in x:\n    if v > 0.0:\n        s, i = s + v, i + 1\n"
    "    else:\n        t, j = t + v, j + 1\nreturn s, t, i, j",
    "y = x.copy()\ny[0] = y[3] = 2.0 * y[1]\ny[2] = m = y[4]\nreturn y, m",
)


def _python(body: str) -> Any:
    scope: dict[str, Any] = {}
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    exec(f"def f({', '.join(GIVEN)}):\n{lines}", scope)
    return scope["f"](*(GIVEN[n].copy() for n in GIVEN))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("body", BODIES)
def test_in_a_kernel(body: str, target: str) -> None:
    _agree(results_of(body, GIVEN, target), _python(body))


@pytest.mark.parametrize("body", BODIES)
def test_in_the_host_program(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    f = tessera.compile(f"def f({', '.join(GIVEN)}):\n{lines}", target="cpu").f
    _agree(f(*(GIVEN[n].copy() for n in GIVEN)), _python(body))


@pytest.mark.parametrize("body", BODIES[::4])
def test_some_in_a_kernel(body: str) -> None:
    _agree(results_of(body, GIVEN, "cpu"), _python(body))


def _agree(got: Any, want: Any) -> None:
    """Numbers have any dtype of their kind here."""
    several = want if isinstance(want, tuple) else (want,)
    plain = tuple(x if isinstance(x, np.ndarray) else np.asarray(x).item() for x in several)
    agree(got, plain if isinstance(want, tuple) else plain[0])
