"""Lists, dicts and arrays of numbers in the host program, as Python and NumPy have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

_R = np.random.default_rng(3)
GIVEN: dict[str, Any] = {"x": _R.normal(size=9), "k": _R.integers(0, 4, 12)}
BODIES = (
    "out = op.zeros((4, 3))\nfor i in range(4):\n    out[i] = [x[i], 2.0, i]\nreturn out",
    "x[2:5] = [1, 2, 3]\nx[5:7] = (7.5, 8)\nreturn x.copy()",
    "b = op.arange(6) * 1.0\nb[1] -= x[0] * b[2]\nreturn b / 3",
    "c = op.linspace(0, 1, 4) * 2\nc[0] = x[1] / 3\nreturn c",
    "return op.array([3 in k, 99 in k, 1 not in k])",
    "d = {}\nfor v in k:\n    d[v] = d.get(v, 0) + 1\nreturn op.array([d[1], len(d)])",
    "d = {1: 2, 3: 4}\nreturn op.array([a * b for a, b in d.items()])",
    "d = {1: 2, 3: 4}\nreturn op.array([sum(d.keys()), sum(d.values())])",
    "B = x.reshape(3, 3)\nreturn op.array([r.sum() for r in B] + [a.max() for a, b in zip(B, B)])",
    "B = x.reshape(3, 3)\nh = lambda q: q.mean() + q.max()\nreturn op.array([h(B[0]), h(B.T[1])])",
    "B = x.reshape(3, 3)\nrows = sorted([r for r in B], key=lambda q: q.sum())\nreturn rows[0] * 1",
    "B = x.reshape(3, 3)\nreturn op.array([sum(r.min() for r in B), max(r.std() for r in B)])",
)


@pytest.mark.parametrize("body", BODIES)
def test_as_numpy(body: str) -> None:
    text = "def f(x, k):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    scope: dict[str, Any] = {"op": np}
    exec(text, scope)
    f = tessera.compile(text, target="cpu").f
    for _ in range(3):  # later calls repeat what the first ones did
        want = np.asarray(scope["f"](*(v.copy() for v in GIVEN.values())))
        got = np.asarray(f(*(v.copy() for v in GIVEN.values())))
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(float), want.astype(float), 1e-13)
