"""Gradients and fused functions called from Python again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.source import Anchor, Span

allclose: Any = np.testing.assert_allclose
TEXT = """
def loss(w, x): return op.mean(op.tanh(x @ w) ** 2)
def of_dict(p, x): return op.mean((op.tanh(x @ p["w"]) + p["b"]) ** 2)
def gives(x): return {"a": x + 1.0, "b": (x * 2.0, 3)}
def scaled(w, s): return op.sum(w * s), w + s
step = value_and_grad(loss)
both = grad(loss, wrt=("w", "x"))
quick = fused(loss)
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return tessera.compile(TEXT, target="cpu")


def _arrays(k: float) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return k * rng.standard_normal((5, 3)), rng.standard_normal((7, 5))


@pytest.mark.parametrize("k", [1.0, -2.0, 0.5])
@pytest.mark.sample(2)
def test_numbers_of_repeated_calls(m: Any, k: float) -> None:
    w, x = _arrays(k)
    value, dw = tessera.value_and_grad(m.loss)(w, x)
    assert type(value) is float
    z: Any = np.tanh(x @ w)
    allclose(value, (z**2).mean(), rtol=1e-12)
    again, slope = m.step(w, x)
    assert (again, slope.tobytes()) == (value, dw.tobytes())
    assert m.quick(w, x) == tessera.fused(m.loss)(w, x)
    allclose(m.quick(w, x), value, rtol=1e-12)
    np.testing.assert_array_equal(m.both(w, x)[0], dw)


def test_a_call_is_not_evaluated_again(m: Any) -> None:
    w, x = _arrays(1.0)
    step = tessera.value_and_grad(m.loss)
    step(w, x)
    step.evaluate = None  # an evaluation would call it
    assert type(step(w, x)[0]) is float


@pytest.mark.parametrize("k", [1.0, 2.0, 3.0])
def test_dicts_of_repeated_calls(m: Any, k: float) -> None:
    x = np.full(2, k)
    found = m.gives(x)
    np.testing.assert_array_equal(found["a"], x + 1.0)
    np.testing.assert_array_equal(found["b"][0], x * 2.0)
    assert found["b"][1] == 3
    w, x = _arrays(k)
    slopes = tessera.grad(m.of_dict)({"w": w, "b": k}, x)
    z: Any = np.tanh(x @ w)
    allclose(slopes["b"], (2.0 * (z + k)).mean(), rtol=1e-12)
    outer = 2.0 * (z + k) * (1.0 - z * z) / z.size
    allclose(slopes["w"], x.T @ outer, rtol=1e-10, atol=1e-14)


def test_numbers_that_are_arguments(m: Any) -> None:
    w, _ = _arrays(1.0)
    f = tessera.fused(m.scaled)
    for s in (1.0, 2.0, 2.5, 1.0):
        total, moved = f(w, s)
        allclose(total, np.sum(w * s), rtol=1e-12)
        np.testing.assert_array_equal(moved, w + s)


def test_a_warning_names_the_line_that_somebody_wrote(m: Any, tmp_path: Any) -> None:
    """Of a kernel that was made, also where its code, and what was told, is from the cache."""
    w, x = _arrays(1.0)
    tessera.fused(m.loss)(w, x)
    provider = m.loss._provider
    origins: dict[str, Span] = provider.session().origins
    path, origin = next(iter(origins.items()))
    assert isinstance(origin.anchor, Anchor)
    with pytest.warns(tessera.TesseraWarning) as told:
        provider.beside(path)._tell([["T0750", "`call` runs in one group", "of another program"]])
    (text,) = (str(t.message) for t in told)
    assert "the kernel of this line runs in one group" in text
    assert "op.mean(op.tanh(x @ w) ** 2)" in text
    assert "another" not in text


def test_numbers_in_kernels_of_rows_and_loops() -> None:
    """A number of the call is no array, wherever a kernel reads it."""
    m = tessera.compile(
        "def rows(x, s): return op.softmax(x * s, axis=1) + s\n"
        "def loop(q, k, s): return op.softmax(q @ k.T * s, axis=1) @ k\n", target="cpu",
    )  # fmt: skip
    x: Any = np.random.default_rng(5).standard_normal((9, 6))
    for s in (0.5, -1.5):
        allclose(tessera.fused(m.rows)(x, s), m.rows(x, s), rtol=1e-12)
        allclose(tessera.fused(m.loop)(x, x[:5], s), m.loop(x, x[:5], s), rtol=1e-12)
