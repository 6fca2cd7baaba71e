"""Numbers of a program keep their bits: floats of Python's that a kernel gets, arrays that are made
of numbers alone, and what is stored into arrays without a dtype. Counts meet floats on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
R = np.random.default_rng(0)
X = R.normal(size=(5, 4))
KERNELS = """
@op.kernel
def tiles(u, a):
    return u * a + (1.0 - a)

@kernel tile[(32,)] grid[(1,)]
def lanes(u, a, out):
    i = grid_tile_linear_id()
    if i < len(u): out[i] = u[i] * a

@op.kernel
def two(u, w, a):
    return u * a, w

def host(u, a):
    return tiles(u, a), tiles(u, op.max(u))
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_of_python_have_the_bits_of_the_arrays(dtype: str, target: Any) -> None:
    m, u = tessera.compile(KERNELS, target=target), X[0].astype(dtype)
    want = u * u.dtype.type(0.1)
    assert m.tiles(u, 0.1).dtype == dtype
    out = np.zeros(4, dtype)
    m.lanes(u, 0.1, out)
    np.testing.assert_array_equal(out, want)
    tolerance = float(np.finfo(dtype).eps) * 4
    for a, found in zip((0.1, u.max()), m.host(u, 0.1), strict=True):
        np.testing.assert_allclose(found, u * a + (1 - a), tolerance, tolerance)
    mixed = m.two(X[0].astype(np.float32), X[0], 0.1)[0]  # of two dtypes: the narrower
    np.testing.assert_array_equal(mixed, X[0].astype(np.float32) * np.float32(0.1))


A, B = np.array([[1.0, 0.1], [0.7, 1.3]]), np.array([0.1, 0.2, 0.7])
OF_NUMBERS: dict[str, tuple[str, Any]] = {
    "product": ("A @ A @ u", A @ A @ X[:2]),
    "functions": ("op.outer(A[0], op.sqrt(A[1])) @ u", np.outer(A[0], np.sqrt(A[1])) @ X[:2]),
    "power": ("(A.T @ A + op.eye(2) * 0.1) @ u", (A.T @ A + np.eye(2) * 0.1) @ X[:2]),
    "sum": ("op.sum(B) * u", B.sum() * X[:2]),
    "mean": ("op.mean(B) * u", B.mean() * X[:2]),
    "along": ("op.sum(A, axis=0)[:, None] * u", A.sum(0)[:, None] * X[:2]),
    "norm": ("op.norm(B) * u", np.linalg.norm(B) * X[:2]),
    "sorted": ("op.sort(B)[:2, None] * u", np.sort(B)[:2, None] * X[:2]),
    "list": ("op.sum(op.array([0.1 * k for k in range(3)])) * u", 0.1 * 3 * X[:2]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.sample(5)
def test_what_is_computed_of_numbers_keeps_their_bits(name: str, target: Any) -> None:
    text, want = OF_NUMBERS[name]
    source = (f"def f(u):\n    A = op.array([[1.0, 0.1], [0.7, 1.3]])\n"
              f"    B = op.array([0.1, 0.2, 0.7])\n    return {text}\n")  # fmt: skip
    m = tessera.compile(source, target=target)
    for _ in range(2):  # the second call may be a replay
        np.testing.assert_allclose(m.f(X[:2]), want, 1e-14)
    assert m.f(X[:2].astype(np.float32)).dtype == np.float32


COUNTS: dict[str, Any] = {
    "x.sum(axis=0) / (x > 0).sum(axis=0)": X.sum(0) / (X > 0).sum(0),
    "x.sum(axis=0) / op.maximum((x > 9).sum(axis=0), 1)": X.sum(0),
    "x * op.argmax(x, axis=1)[:, None]": X * X.argmax(1)[:, None],
    "x / op.sum(x > -9, axis=1, keepdims=True)": X / (X > -9).sum(1, keepdims=True),
    "x[0] * op.argsort(x[0])": X[0] * X[0].argsort(),
    "op.cumsum(x[0] > 0) * 0.5 + x[0]": (X[0] > 0).cumsum() * 0.5 + X[0],
    "x / (1 + op.count_nonzero(x))": X / 21,
    "x[0] / (1 + op.searchsorted(op.sort(x[1]), x[2]))": X[0]
    / (1 + np.searchsorted(np.sort(X[1]), X[2])),
    "x[0][op.argsort(x[0])][::-1] * 2.0": np.sort(X[0])[::-1] * 2,
    "x[0] * (op.sum(x > 0, axis=0) - 1)": X[0] * ((X > 0).sum(0) - 1),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", COUNTS)
@pytest.mark.sample(6)
def test_counts_meet_floats(text: str, dtype: str) -> None:
    found = tessera.compile(f"def f(x):\n    return {text}\n", target="cpu").f(X.astype(dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, COUNTS[text], float(np.finfo(dtype).eps) * 16, 1e-5)
    with pytest.raises(tessera.TesseraError, match="T0818"):
        tessera.compile("def f(x, k):\n    return x * k\n", target="cpu").f(
            X[0].astype(np.float32), np.arange(4)
        )


@pytest.mark.parametrize("made", ["op.zeros(4)", "op.ones(4)", "op.empty(4)", "op.full(4, 2.5)"])
def test_a_number_of_f64_is_not_rounded_by_a_store(made: str) -> None:
    """It is f64 in a function that got arrays of f64 alone; beside others it is refused."""
    text = "def f(x, w):\n    y = {}\n    y[0] = 1.5\n    y[1] = x[1] * 2.0\n    return y\n"
    narrow = X[0].astype(np.float32)
    m = tessera.compile(text.replace("{}", made), target="cpu")
    for _ in range(2):
        found = m.f(X[0], X[0])
        assert found.dtype == np.float64
        assert found[1] == X[0, 1] * 2
    assert m.f(narrow, narrow).dtype == np.float32
    with pytest.raises(tessera.TesseraError, match=r"T0818[\s\S]*dtype=f64"):
        m.f(X[0], narrow)
    right = made.replace(")", ", dtype=f64)")
    m = tessera.compile(text.replace("{}", right), target="cpu")
    assert m.f(X[0], narrow)[1] == X[0, 1] * 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["", "@op.kernel\n"])
@pytest.mark.parametrize("order", ["xy", "ij"])
def test_grids(order: Any, kind: str, target: Any) -> None:
    source = (f"{kind}def f(v: f64[n], w: f64[m]):\n"
              f'    a, b = op.meshgrid(v, w, indexing="{order}")\n    return a, b\n')  # fmt: skip
    found = tessera.compile(source, target=target).f(X[0], X[:, 0].copy())
    numpy: Any = np
    for g, w in zip(found, numpy.meshgrid(X[0], X[:, 0], indexing=order), strict=True):
        np.testing.assert_array_equal(g, w)
