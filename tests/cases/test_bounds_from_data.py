"""Slices whose bounds are read from arrays: rows of sparse matrices, parts of ragged ones, in every
form that NumPy takes; a bound below 0 is a fault."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS

HEAD = "def f(data: f64[z], col: {}[z], ptr: {}[r], x: f64[n]):\n    y = op.zeros(len(ptr) - 1)\n"
LOOP = "    for i in range(len(ptr) - 1):\n"
ROWS = {
    "at once": "y[i] = op.sum(data[ptr[i]:ptr[i + 1]] * x[col[ptr[i]:ptr[i + 1]]])",
    "named": "lo, hi = ptr[i], ptr[i + 1]; y[i] = op.sum(data[lo:hi] * x[col[lo:hi]])",
    "a product": "y[i] = data[ptr[i]:ptr[i + 1]] @ x[col[ptr[i]:ptr[i + 1]]]",
    "parts named": "cols = col[ptr[i]:ptr[i + 1]]; vals = data[ptr[i]:ptr[i + 1]]; "
    "y[i] = op.sum(vals * x[cols])",
    "a loop": "s = 0.0; for j in range(ptr[i], ptr[i + 1]):|s += data[j] * x[col[j]]; y[i] = s",
    "one by one": "for j in range(ptr[i], ptr[i + 1]):|y[i] += data[j] * x[col[j]]",
}


def _source(row: str, dtype: str) -> str:
    lines: list[str] = []
    for part in row.split("; "):
        head, _, inner = part.partition("|")
        lines += [f"        {head}", *([f"            {inner}"] if inner else [])]
    return HEAD.format(dtype, dtype) + LOOP + "\n".join(lines) + "\n    return y\n"


def _given(seed: int, dtype: Any) -> tuple[Any, ...]:
    r = np.random.default_rng(seed)
    counts = r.integers(0, 5, r.integers(1, 9))
    ptr = np.concatenate(([0], np.cumsum(counts))).astype(dtype)
    x = r.normal(size=r.integers(1, 12))
    col = r.integers(0, len(x), ptr[-1]).astype(dtype)
    return r.normal(size=ptr[-1]), col, ptr, x


def _wanted(data: Any, col: Any, ptr: Any, x: Any) -> np.ndarray:
    pairs = pairwise(ptr)
    return np.array([np.sum(data[a:b] * x[col[a:b]]) for a, b in pairs])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["i32", "i64", "u32"])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.sample(5)
def test_rows_of_sparse_matrices(row: str, dtype: str, target: str) -> None:
    module = module_for(target, f"@op.kernel\n{_source(ROWS[row], dtype)}")
    kind = {"i": "int", "u": "uint"}[dtype[0]] + dtype[1:]
    for seed in range(4):
        given = _given(seed, kind)
        np.testing.assert_allclose(module.f(*given), _wanted(*given), 1e-12, 1e-12)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.sample(3)
def test_functions(row: str) -> None:
    module: Any = tessera.compile(_source(ROWS[row], "i64"), target="cpu")
    given = _given(3, "int64")
    np.testing.assert_allclose(module.f(*given), _wanted(*given), 1e-12, 1e-12)


X, S = np.arange(5.0) + 1, np.array([0, 3, 2])
PARTS: dict[str, Any] = {
    "y[k] = op.sum(x[s[k]:s[k] + 2])": lambda: [X[k : k + 2].sum() for k in S],
    "y[k] = op.sum(x[s[k]:])": lambda: [X[k:].sum() for k in S],
    "y[k] = op.max(x[s[k]:s[k] + 3]) - x[s[k]]": lambda: [X[k : k + 3].max() - X[k] for k in S],
    "y[k] = op.mean(x[s[0]:s[k] + 1])": lambda: [X[: k + 1].mean() for k in S],
    "y[k] = op.sum(x[s[k]:s[k] + 2] ** 2 / x[s[k]:s[k] + 2]) if s[k] < 4 else 0.0":
        lambda: [X[k : k + 2].sum() for k in S],
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.sample(4)
def test_parts(part: str, target: str) -> None:
    body = f"    y = op.zeros(len(s))\n    for k in range(len(s)):\n        {part}\n    return y"
    module = module_for(target, f"@op.kernel\ndef f(x: f64[n], s: i64[m]):\n{body}\n")
    np.testing.assert_allclose(module.f(X, S), PARTS[part](), 1e-12)


def test_two_loops_have_their_own_elements() -> None:
    """A bound that one loop has left is not that of the next, though both are `p[i]`."""
    text = (
        "@op.kernel\ndef f(x: f64[n], p: i64[m]):\n    y = op.zeros(len(p))\n    a = p[0]\n"
        "    for i in range(len(p)):\n        a = p[i]\n"
        "    for i in range(len(p)):\n"
        "        y[i] = op.sum(x[max(a, 0):max(a, 0) + 2]) + op.sum(x[p[i]:p[i] + 1])\n"
        "    return y\n"
    )
    want = [X[2:4].sum() + X[k] for k in S]
    np.testing.assert_allclose(tessera.compile(text, target="cpu").f(X, S), want)


@pytest.mark.parametrize("use", ["y[0] = op.sum(x[s[0]:])", "y[s[0]:s[0] + 2] = 0.0"])
def test_below_0_is_a_fault(use: str) -> None:
    text = f"@op.kernel\ndef f(x: f64[n], s: i64[m]):\n    y = x.copy()\n    {use}\n    return y\n"
    module: Any = tessera.compile(text, target="cpu")
    module.f(X, S)
    with pytest.raises(tessera.TesseraError, match=r"T0845[\s\S]*begins below 0, at `s\[0\]`"):
        module.f(X, np.array([-2, 1]))
