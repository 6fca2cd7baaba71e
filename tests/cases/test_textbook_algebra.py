"""Statements that read their own array at other places, with slices that a loop changes: linear
algebra as in textbooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, parameters_of, results_of

Array = np.ndarray[Any, np.dtype[np.float64]]


def lu(a: Array) -> Array:
    a = a.copy()
    for k in range(len(a) - 1):
        a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k + 1 :] = a[k + 1 :, k + 1 :] - a[k + 1 :, k : k + 1] * a[k : k + 1, k + 1 :]
    return a


def lev(b: Array) -> Array:
    x = b.copy()
    for i in range(1, len(x)):
        x[i:] = x[i:] - x[i - 1] * 0.5
    return x


def flips(b: Array) -> Array:
    x = b.copy()
    for i in range(1, len(x)):
        x[:i] = x[:i][::-1].copy()
    return x


def centred(b: Array) -> Array:
    x = b.copy()
    for i in range(len(x) - 1):
        x[i:] = x[i:] - x[i:].mean()
    return x


def shifted(b: Array) -> Array:
    x = np.zeros(len(b) + 1)
    for i in range(len(b)):
        x[1 : i + 2] = x[: i + 1] + b[i]
    return x[1:]


def corners(a: Array) -> Array:
    x, n = a.copy(), len(a)
    for i in range(1, n):
        x[i:, :i] = x[: n - i, n - i :] * 0.5 + x[i:, :i]
    return x


solve, cholesky = np.linalg.solve, np.linalg.cholesky
PROGRAMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "forward": (
        "def f(L, b):\n"
        "    n = b.shape[0]\n"
        "    x = op.zeros((n,), f64)\n"
        "    for i in range(n):\n"
        "        x[i] = (b[i] - op.sum(L[i, :i] * x[:i])) / L[i, i]\n"
        "    return x"
        , solve),
    "forward@": (
        "def f(L, b):\n"
        "    n = b.shape[0]\n"
        "    x = op.zeros((n,), f64)\n"
        "    for i in range(n):\n"
        "        x[i] = (b[i] - L[i, :i] @ x[:i]) / L[i, i]\n"
        "    return x"
        , solve),
    "back": (
        "def f(U, b):\n"
        "    n = b.shape[0]\n"
        "    x = op.zeros((n,), f64)\n"
        "    for i in range(n - 1, -1, -1):\n"
        "        x[i] = (b[i] - op.sum(U[i, i+1:] * x[i+1:])) / U[i, i]\n"
        "    return x"
        , solve),
    "back@": (
        "def f(U, b):\n"
        "    n = b.shape[0]\n"
        "    x = op.zeros((n,), f64)\n"
        "    for i in range(n - 1, -1, -1):\n"
        "        x[i] = (b[i] - U[i, i+1:] @ x[i+1:]) / U[i, i]\n"
        "    return x"
        , solve),
    "forwardB": (
        "def f(L, B):\n"
        "    n, m = B.shape\n"
        "    x = op.zeros((n, m), f64)\n"
        "    for i in range(n):\n"
        "        x[i, :] = (B[i, :] - L[i, :i] @ x[:i, :]) / L[i, i]\n"
        "    return x"
        , solve),
    "forwardBsum": (
        "def f(L, B):\n"
        "    n, m = B.shape\n"
        "    x = op.zeros((n, m), f64)\n"
        "    for i in range(n):\n"
        "        x[i] = (B[i] - op.sum(L[i, :i][:, None] * x[:i], axis=0)) / L[i, i]\n"
        "    return x"
        , solve),
    "chol": (
        "def f(S: f64[n, n]) -> f64[n, n]:\n"
        "    L = op.zeros((n, n), f64)\n"
        "    for j in range(n):\n"
        "        L[j, j] = op.sqrt(S[j, j] - op.sum(L[j, :j] ** 2))\n"
        "        L[j+1:, j] = (S[j+1:, j] - L[j+1:, :j] @ L[j, :j]) / L[j, j]\n"
        "    return L"
        , cholesky),
    "chol2": (
        "def f(S: f64[n, n]) -> f64[n, n]:\n"
        "    L = op.zeros((n, n), f64)\n"
        "    for i in range(n):\n"
        "        for j in range(i + 1):\n"
        "            s = op.sum(L[i, :j] * L[j, :j])\n"
        "            if i == j:\n"
        "                L[i, j] = op.sqrt(S[i, i] - s)\n"
        "            else:\n"
        "                L[i, j] = (S[i, j] - s) / L[j, j]\n"
        "    return L"
        , cholesky),
    "chol3": (
        "def f(S: f64[n, n]) -> f64[n, n]:\n"
        "    L = op.zeros((n, n), f64)\n"
        "    L[:, :] = S\n"
        "    for k in range(n):\n"
        "        L[k, k] = op.sqrt(L[k, k])\n"
        "        L[k+1:, k] = L[k+1:, k] / L[k, k]\n"
        "        L[k+1:, k+1:] = L[k+1:, k+1:] - op.outer(L[k+1:, k], L[k+1:, k])\n"
        "    return op.tril(L)"
        , cholesky),
    "lu": (
        "def f(S: f64[n, n]) -> f64[n, n]:\n"
        "    L = op.zeros((n, n), f64)\n"
        "    L[:, :] = S\n"
        "    for k in range(n - 1):\n"
        "        L[k+1:, k] = L[k+1:, k] / L[k, k]\n"
        "        L[k+1:, k+1:] = L[k+1:, k+1:] - L[k+1:, k:k+1] * L[k:k+1, k+1:]\n"
        "    return L"
        , lu),
    "lu-=": (
        "def f(S: f64[n, n]) -> f64[n, n]:\n"
        "    L = op.zeros((n, n), f64)\n"
        "    L[:, :] = S\n"
        "    for k in range(n - 1):\n"
        "        L[k+1:, k] /= L[k, k]\n"
        "        L[k+1:, k+1:] -= L[k+1:, k:k+1] * L[k:k+1, k+1:]\n"
        "    return L"
        , lu),
    "gauss": (
        "def f(S: f64[n, n], B: f64[n, m]) -> f64[n, m]:\n"
        "    M = op.zeros((n, n), f64)\n"
        "    X = op.zeros((n, m), f64)\n"
        "    M[:, :] = S\n"
        "    X[:, :] = B\n"
        "    for k in range(n):\n"
        "        p = M[k, k]\n"
        "        M[k, :] = M[k, :] / p\n"
        "        X[k, :] = X[k, :] / p\n"
        "        for i in range(n):\n"
        "            if i != k:\n"
        "                w = M[i, k]\n"
        "                M[i, :] = M[i, :] - w * M[k, :]\n"
        "                X[i, :] = X[i, :] - w * X[k, :]\n"
        "    return X"
        , solve),
    "lev": (
        "def f(b: f64[n]) -> f64[n]:\n"
        "    x = op.zeros((n,), f64)\n"
        "    x[:] = b\n"
        "    for i in range(1, n):\n"
        "        x[i:] = x[i:] - x[i-1] * 0.5\n"
        "    return x"
        , lev),
    "sc": (
        "def f(b: f64[n]) -> f64[n]:\n"
        "    x = op.zeros((n,), f64)\n"
        "    x[:] = b\n"
        "    for i in range(1, n):\n"
        "        x[:i] = op.flip(x[:i])\n"
        "    return x"
        , flips),
    "hh": (
        "def f(b: f64[n]) -> f64[n]:\n"
        "    x = op.zeros((n,), f64)\n"
        "    x[:] = b\n"
        "    for i in range(n - 1):\n"
        "        x[i:] = x[i:] - op.mean(x[i:])\n"
        "    return x"
        , centred),
    "lcs": (
        "def f(b: f64[n]) -> f64[n]:\n"
        "    x = op.zeros((n + 1,), f64)\n"
        "    for i in range(n):\n"
        "        x[1:i+2] = x[:i+1] + b[i]\n"
        "    return x[1:]"
        , shifted),
    "two": (
        "def f(A: f64[n, n]) -> f64[n, n]:\n"
        "    x = op.zeros((n, n), f64)\n"
        "    x[:, :] = A\n"
        "    for i in range(1, n):\n"
        "        x[i:, :i] = x[:n-i, n-i:] * 0.5 + x[i:, :i]\n"
        "    return x"
        , corners),
}  # fmt: skip


def given(n: int) -> dict[str, Array]:
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, n))
    s = a @ a.T + n * np.eye(n)
    return {"A": a, "S": s, "L": cholesky(s), "U": cholesky(s).T.copy(),
            "b": rng.normal(size=n), "B": rng.normal(size=(n, 3))}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(1)
def test_values(name: str, target: str) -> None:
    source, numpy = PROGRAMS[name]
    for n in (1, 2, 9, 37):
        if n == 1 and "n - 1" in source:
            continue
        arrays = given(n)
        want = numpy(*(arrays[p] for p in parameters_of(source)))
        agree(results_of(source, arrays, target), want, 1e-9, 1e-9)


def test_a_loop_that_leaves_the_other_array_is_refused() -> None:
    source = PROGRAMS["forward"][0]
    arrays = {**given(9), "b": np.zeros(12)}
    with pytest.raises(tessera.TesseraError, match=r"T0838.*`b.shape\[0\] - 1 <= L.shape\[1\]`"):
        results_of(source, arrays, "cpu")


def test_loops_over_tiles_still_refuse() -> None:
    text = """def f(b: f64[n]) -> f64[n]:
    x = op.zeros((n,), f64)
    for i in op.tile_range(n, step=4):
        x[1:i+2] = x[:i+1] + b[i]
    return x"""
    with pytest.raises(tessera.TesseraError, match="T07"):
        results_of(text, given(8), "cpu")


@pytest.mark.parametrize("name", ["chol", "forwardB", "lu"])
@pytest.mark.sample(1)
def test_code_for_gpus(name: str) -> None:
    assembled(PROGRAMS[name][0], given(16))
