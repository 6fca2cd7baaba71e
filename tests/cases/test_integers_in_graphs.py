"""Functions of floats take integers in graphs as they do in kernels and in functions that Python
calls, and lists stand for arrays there."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

NAMES = """sqrt exp log sin cos tan exp2 expm1 log2 log10 log1p rsqrt tanh sigmoid softplus gelu
silu erf atan sinh cosh asinh var std norm softmax logsumexp mean""".split()
DTYPES = {"i32": np.int32, "i64": np.int64, "u8": np.uint8, "i16": np.int16}


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_floats_take_integers(dtype: str) -> None:
    text = ", ".join(f"op.{n}(x)" for n in NAMES)
    plain = tessera.compile(
        f"def f(x):\n    return ({text}, op.atan2(x, x + 1), op.hypot(x, 2 * x))\n", target="cpu"
    )
    x = np.array([1, 4, 9], DTYPES[dtype])
    got, want = tessera.fused(plain.f)(x), plain.f(x)
    for name, g, w in zip([*NAMES, "atan2", "hypot"], got, want, strict=True):
        assert np.asarray(g).dtype == np.asarray(w).dtype, name
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), 1e-6, err_msg=name)


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
