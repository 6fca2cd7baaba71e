"""Functions of floats take integers in graphs as they do in kernels and in functions that Python
calls, and lists stand for arrays there."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

NAMES = """sqrt exp log sin cos tan exp2 expm1 log2 log10 log1p rsqrt tanh sigmoid softplus gelu
silu erf atan sinh cosh asinh var std norm softmax logsumexp mean""".split()
DTYPES = {"i32": np.int32, "i64": np.int64, "u8": np.uint8, "i16": np.int16}


@pytest.mark.parametrize(("dtype", "names"), [
    ("i32", NAMES[::6]), ("u8", NAMES[1::9]),
    *(pytest.param(d, NAMES, marks=pytest.mark.slow) for d in DTYPES),
])  # fmt: skip
def test_functions_of_floats_take_integers(dtype: str, names: list[str]) -> None:
    text = ", ".join(f"op.{n}(x)" for n in names)
    plain = tessera.compile(
        f"def f(x):\n    return ({text}, op.atan2(x, x + 1), op.hypot(x, 2 * x))\n", target="cpu"
    )
    x = np.array([1, 4, 9], DTYPES[dtype])
    got, want = tessera.fused(plain.f)(x), plain.f(x)
    for name, g, w in zip([*names, "atan2", "hypot"], got, want, strict=True):
        assert np.asarray(g).dtype == np.asarray(w).dtype, name
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), 1e-6, err_msg=name)


@pytest.mark.parametrize("operator", ["==", "<", ">="])
def test_integers_that_no_dtype_has_are_compared_exactly(operator: str) -> None:
    pairs = ("w", "s"), ("s", "w"), ("w", -1), (-1, "w"), ("u", "op.sum(u)"), ("w", "op.min(s)")
    text = ", ".join(f"{a} {operator} {b}" for a, b in pairs)
    module = tessera.compile(f"def f(w, s, u):\n    return {text}\n", target="cpu")
    w = np.array([2**63 + 5, 2**63, 1, 2**64 - 1, 0], np.uint64)
    s = np.array([-5, 2**63 - 1, 1, -1, -(2**63)], np.int64)
    u = np.array([44, 200, 56, 0, 0], np.uint8)
    scope = {"w": w, "s": s, "u": u, "op": np}
    for (a, b), got in zip(pairs, tessera.fused(module.f)(w, s, u), strict=True):
        want = eval(f"({a}) {operator} {b}", scope)
        np.testing.assert_array_equal(np.asarray(got), want, err_msg=f"{a} {operator} {b}")


def test_integers_beside_what_has_a_gradient() -> None:
    module = tessera.compile(
        "def f(x, n):\n    return op.sum(x * op.sqrt(n) + op.var(n) * x / op.log(n + 1))\n",
        target="cpu",
    )
    x, n = np.array([1.0, 2.0, 3.0]), np.array([1, 4, 9])
    np.testing.assert_allclose(tessera.grad(module.f)(x, n), np.sqrt(n) + n.var() / np.log(n + 1))


def test_lists_stand_for_arrays() -> None:
    text = """def f(x):
    y = x + [1.0, 2.0, 3.0]
    z = [x[0], 2.0, x[1]] * x
    w = x @ [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [4.0, 2.0, 3.0]]
    e = op.exp([x[0], 1.0]) * [x[1], x[2]] + op.maximum(x[:2], [0.5, 2.0])
    c = op.where(x > 1.5, [1, 2, 3], x) + op.sum([x, x], axis=0)
    return op.sum(y * y) + op.sum(z) + op.sum(w) + op.sum(e) + op.sum(c)
"""
    f = tessera.compile(text, target="cpu").f
    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(tessera.fused(f)(x), f(x))
    g = tessera.grad(f)(x)
    for i in range(3):
        step = np.eye(3)[i] * 1e-6
        np.testing.assert_allclose(g[i], (f(x + step) - f(x - step)) / 2e-6, 1e-6)
