"""``u[...] += e`` in a loop that reads ``u``: each round needs what the one before made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import TARGETS, module_for

Array = np.ndarray[Any, np.dtype[Any]]


def heat(u0: Array) -> Array:
    u = u0.copy()
    for _ in range(7):
        lap = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += 0.2 * lap
    return u


def two(u0: Array) -> Array:
    u = u0.copy()
    for _ in range(5):
        u[1:, :] += u[:-1, :] * 0.5
        u[:-1, :] -= 0.25 * u[1:, :]
    return u


def quotient(u0: Array) -> Array:
    u = u0.copy()
    for _ in range(5):
        u[:, :] /= 1.5
    return u


def mixed(u0: Array) -> Array:
    u = u0.copy()
    for _ in range(5):
        u[:, :] += 1.0
        u[0, :] = 2.0
        u[:, 1:3] *= 0.5
    return u


def nested(u0: Array) -> Array:
    u = u0.copy()
    for _ in range(3):
        for _ in range(2):
            u[1:, 1:] += 0.1 * u[:-1, :-1]
        u[:, 0] -= u[:, 1]
    return u


def one_sum(u0: Array) -> Array:
    u = u0.copy()
    for _ in range(4):
        u[:, :] += u0
    return u


def moving(u0: Array) -> Array:
    u = u0.copy()
    for t in range(4):
        u += 0.5 * u0
        u[t:, :] += 1.0
    return u


def moving_first(u0: Array) -> Array:
    u = u0.copy()
    for t in range(4):
        u[:, t] -= 0.25
        u += u0
    return u


def chosen(u0: Array) -> Array:
    u = u0.copy()
    for t in range(4):
        if t == 0:
            u += u0
        else:
            u[t:, :] += 0.5 * u0[: u0.shape[0] - t, :]
    return u


def computed(u0: Array) -> Array:
    u = u0.copy()
    for t in range(5):
        s = t % 3
        u *= 0.5
        u[s:, 1:] += u0[s:, 1:]
    return u


def counted(u0: Array) -> Array:
    u = u0.copy()
    s = 0
    while s < 4:
        u[s, :] += 2.0
        u -= 0.5 * u0
        s += 1
    return u


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", [
    heat, two, quotient, mixed, nested, one_sum, moving, moving_first, chosen, computed, counted,
])  # fmt: skip
@pytest.mark.sample(2)
def test_as_numpy(function: Callable[[Array], Array], dtype: Any, target: str) -> None:
    lines = inspect.getsource(function).splitlines()
    body = "\n".join(lines[1:]).replace("for _ in", "for t in", 1).replace("for _ in", "for k in")
    body = body.replace("u = u0.copy()", "u = op.empty_like(u0)\n    u[:, :] = u0")
    f = module_for(target, f"\n@op.kernel\ndef f(u0):\n{body}\n").f
    for shape in ((9, 7), (33, 65)):
        x = np.random.default_rng(3).normal(size=shape).astype(dtype)
        want = function(x)
        places = 1e-5 if dtype == np.float32 else 1e-13
        np.testing.assert_allclose(np.asarray(f(x)), want, rtol=places, atol=places)


def test_a_loop_over_tiles_is_one_sum() -> None:
    text = """@op.kernel
def k(x: f32[m, n], s: mut f32[n], y: mut f32[m, n]):
    for i in op.tile_range(m, step=32):
        s[0:n] += op.sum(x[i:i+32, :], axis=0)
        y[i:i+32, :] = x[i:i+32, :] + s[0:n][None, :]
"""
    x = np.ones((64, 8), np.float32)
    with pytest.raises(tessera.TesseraError, match="T0621"):
        tessera.compile(text).k(x, np.zeros(8, np.float32), np.zeros_like(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("row", ["x[t, :]", "x[t, 0:y.shape[0]]", "x[t, 0:len(y)]"])
@pytest.mark.sample(3)
def test_what_only_asks_for_sizes_is_no_use(row: str, target: str) -> None:
    """One sum, rounded once: the same bits however its places are written."""
    text = f"""
@op.kernel
def f(x: f16[m, 8]):
    y = op.zeros((8,), f16)
    for t in range(40):
        y[0:8] += {row}
    return y
"""
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float16)
    want = np.zeros(8, np.float32)
    for line in x:
        want += line
    np.testing.assert_array_equal(
        np.asarray(module_for(target, text).f(x)), want.astype(np.float16)
    )
