"""Tuples, lists and dicts of arrays as arguments of functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.traced import traced

TEXT = """
def loss(p, x, y):
    h = op.relu(x @ p["w"][0] + p["b"])
    return op.mean((h @ p["w"][1] * p["scale"] - y) ** 2)


def step(p, x):
    p["b"] = p["b"] + x
    return p["b"]


def turned(xs):
    ys = [x.T for x in xs]
    return ys


def grow(xs):
    xs.append(xs[0].T)
    return xs[1]
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


def _state() -> tuple[dict[str, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(7)
    one, two = rng.random((3, 4), np.float32), rng.random((4, 2), np.float32)
    p = {"w": (one, two), "b": rng.random(4, np.float32), "scale": 0.5}
    return p, rng.random((5, 3), np.float32), rng.random((5, 2), np.float32)


def _loss(p: dict[str, Any], x: Any, y: Any) -> Any:
    h = np.maximum(x @ p["w"][0] + p["b"], 0)
    return np.mean((h @ p["w"][1] * p["scale"] - y) ** 2)


def test_a_state_of_dicts_and_tuples_is_a_parameter(module: Any) -> None:
    p, x, y = _state()
    fused, gradient = tessera.fused(module.loss), tessera.value_and_grad(module.loss)
    for _ in range(3):  # recorded, and played again
        assert fused(p, x, y) == pytest.approx(_loss(p, x, y), rel=1e-5)
        value, g = gradient(p, x, y)
        assert value == pytest.approx(_loss(p, x, y), rel=1e-5)
        assert g["w"][0].shape == (3, 4) and g["w"][1].shape == (4, 2) and g["b"].shape == (4,)
        p["w"] = (p["w"][0] + 1, p["w"][1])
    moved = {**p, "b": p["b"] + np.float32(0.01)}
    change = (_loss(moved, x, y) - _loss(p, x, y)) / 0.01
    _, g = gradient(p, x, y)
    assert g["b"].sum() == pytest.approx(change, rel=0.05)


def test_another_form_is_another_call(module: Any) -> None:
    p, x, y = _state()
    fused = tessera.fused(module.loss)
    first = fused(p, x, y)
    assert fused({**p, "w": list(p["w"])}, x, y) == first
    assert fused({"b": p["b"], "scale": 1.0, "w": p["w"]}, x, y) != first


def test_a_state_is_a_parameter_of_a_call_with_arrays_of_a_device(module: Any) -> None:
    p, x, y = _state()
    found = traced(tessera.fused(module.loss), p, x, y)
    assert found == pytest.approx(_loss(p, x, y), rel=1e-5)
    found = traced(tessera.fused(module.loss), p, x=x, y=y)
    assert found == pytest.approx(_loss(p, x, y), rel=1e-5)
    made = traced(module.turned, [x, y])
    assert np.array_equal(made[0], x.T) and np.array_equal(made[1], y.T)


def test_a_change_that_the_caller_would_not_see_is_refused(module: Any) -> None:
    _, x, _ = _state()
    with pytest.raises(tessera.TesseraError, match=r"T0809.*changes a list or dict"):
        traced(module.grow, [x])


def test_a_list_of_numpy_arrays_is_the_callers_own(module: Any) -> None:
    given = [np.ones((3, 3), np.float32)]
    module.grow(given)
    assert len(given) == 2
    state = {"b": np.ones(3, np.float32)}
    module.step(state, np.ones(3, np.float32))
    assert state["b"].tolist() == [2.0, 2.0, 2.0]
