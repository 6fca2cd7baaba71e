"""Values whose lengths change from round to round of a loop: what is stored in between does not
change them, as in NumPy with copies."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for

PARTS = (
    "x[k:]", "x[k + 1:]", "x[:n - k]", "x[:k]", "x[k % 2::2]", "x[k % 2:n - 1:3]", "x[k // 2:]",
    "x[k:n - 1]", "x[k // 3:n - k // 2]", "x[n - 1 - k:]",
)  # fmt: skip
VALUES = ("{p}", "{p} * 0.5 + x[k]", "op.cumsum({p})", "op.abs({p}) - op.max(x)")
LOOPS = ("for k in range(n):", "for k in range(1, n - 1, 2):", "for k in reversed(range(n)):")
USES = (
    "x[k] = 2.0\n        {p} -= a * 0.5\n        r[k] = op.sum(a)",
    "x *= 0.5\n        {p} = a + 1.0\n        r[k] = op.max(a, initial=0.0)",
    "b = {p} + 1.0\n        {p} = b * 0.5\n        {p} += a * b * 0.125\n        r[k] = op.sum(b)",
    "if k % 2 == 0:\n            x[:] = x * 0.5\n        {p} += a\n        r[k] = a @ a",
)
ALGEBRA = {
    "elimination": """
    for k in range(n):
        f = A[k+1:, k] / A[k, k]
        A[k+1:, k:] -= f[:, None] * A[k, k:]
        b[k+1:] -= f * b[k]
    return A, b""",
    "assigned": """
    for k in range(n):
        f = A[k+1:, k] / A[k, k]
        A[k+1:, k:] = A[k+1:, k:] - f[:, None] * A[k, k:]
        b[k+1:] = b[k+1:] - f * b[k]
    return A, b""",
    "pivots": """
    for k in range(n):
        p = k + op.argmax(op.abs(A[k:, k]))
        if p != k:
            A[[k, p]] = A[[p, k]]
            b[[k, p]] = b[[p, k]]
        f = A[k+1:, k] / A[k, k]
        A[k+1:, k:] -= f[:, None] * A[k, k:]
        b[k+1:] -= f * b[k]
    return A, b""",
    "scaled": """
    for k in range(n):
        f = A[k, k]
        A[k, k:] /= f
        b[k] /= f
        g = A[k+1:, k]
        A[k+1:, k:] -= g[:, None] * A[k, k:]
        b[k+1:] -= g * b[k]
    return A, b""",
    "cholesky": """
    for k in range(n):
        A[k, k] = op.sqrt(op.abs(A[k, k]) + 1.0)
        c = A[k+1:, k] / A[k, k]
        A[k+1:, k] = c
        A[k+1:, k+1:] -= c[:, None] * c[None, :]
        b[k+1:] += c
    return A, b""",
    "householder": """
    for k in range(n - 1):
        v = A[k:, k] + 0.0
        v = op.where(op.arange(n)[k:] == k, v + op.sign(v) * op.sqrt(op.sum(v * v)), v)
        v = v / op.sqrt(op.sum(v * v) + 1e-9)
        A[k:, k:] -= 2.0 * v[:, None] * (v @ A[k:, k:])[None, :]
        b[k:] -= 2.0 * v * (v @ b[k:])
    return A, b""",
    "rounds": """
    for k in range(n):
        v = A[k:, k]
        w = A[k, k:]
        for j in range(k):
            v = w + 1.0 - v * 0.5
        A[k, k:] = v
        b[k:] += v - w
    return A, b""",
}  # fmt: skip
EDGES = (0, 1, 2, 9)


def _reference(text: str, given: dict[str, Any]) -> Any:
    """With NumPy, where slices that have names are copies."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        left, sign, right = line.partition(" = ")
        if sign and left.strip() in "abcdfgvw" and "A[" in right + left + "A[":
            lines[i] = f"{left}{sign}+({right})" if "," not in left else line
    names: dict[str, Any] = {"op": np}
    with np.errstate(all="ignore"):
        exec("\n".join(lines), names)
        return names["f"](**given)


def _same(text: str, given: dict[str, Any], target: str) -> None:
    want = _reference(text, {k: v.copy() for k, v in given.items()})
    module = module_for(target, f"@op.kernel\n{text}\n")
    got = on_device.call(module.f, [v.copy() for v in given.values()], target)
    for mine, other in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, other, 1e-8, 1e-9)


def _vector(loop: str, part: str, value: str, use: str) -> str:
    return (
        f"def f(x):\n    n = len(x)\n    r = op.zeros(n)\n    {loop}\n"
        f"        a = {value.format(p=part)}\n        {use.format(p=part)}\n    return x, r"
    )


ALL = list(itertools.product(LOOPS, PARTS, VALUES, USES))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", range(4))
def test_parts_of_a_vector(first: int, target: str) -> None:
    """Every eighth program on the CPU."""
    step = {"cpu": 32, "cuda": 32}.get(target, 160)
    for case in ALL[first * 5 + 1 :: step]:
        for n in EDGES if target in ("cpu", "cuda") else EDGES[-1:]:
            x = np.random.default_rng(n).uniform(-1, 1, n)
            _same(_vector(*case), {"x": x}, target)


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS)
def test_some_parts_of_a_vector(target: str) -> None:
    for case in ALL[7 :: 160 if target == "cpu" else 480]:
        _same(_vector(*case), {"x": np.linspace(-1, 2, 9)}, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ALGEBRA)
def test_parts_of_a_matrix(name: str, target: str) -> None:
    text = f"def f(A, b):\n    n = len(A)\n    {ALGEBRA[name].strip()}"
    for n in EDGES[1:] if target == "cpu" else EDGES[-1:]:
        random = np.random.default_rng(n)
        _same(text, {"A": random.normal(size=(n, n)), "b": random.normal(size=n)}, target)


def test_elimination() -> None:
    test_parts_of_a_matrix("pivots", "cpu")
