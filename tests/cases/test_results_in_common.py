"""Values that several results of a kernel need: computed once, as a training step has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tests.cases.test_scratch_arrays import module_for

Array = np.ndarray[Any, np.dtype[Any]]


def step(layers: int) -> str:
    """Forward, backward and update of a perceptron, in whole arrays."""
    names = [f"w{i}: f32[n{i}, n{i + 1}], b{i}: f32[n{i + 1}]" for i in range(layers)]
    head = f"x: f32[m, n0], t: f32[m, n{layers}], {', '.join(names)}, lr: f32"
    lines: list[str] = []
    h = "x"
    for i in range(layers):
        z = f"{h} @ w{i} + b{i}[None, :]"
        last = i == layers - 1
        lines.append(f"h{i + 1} = op.softmax({z}, axis=1)" if last else f"h{i + 1} = op.relu({z})")
        h = f"h{i + 1}"
    lines.append(f"d{layers} = ({h} - t) / m")
    for i in reversed(range(layers)):
        h = f"h{i}" if i else "x"
        lines.append(f"dw{i} = {h}.T @ d{i + 1}")
        if i:
            lines.append(f"d{i} = op.where({h} > 0.0, d{i + 1} @ w{i}.T, 0.0)")
    both = (f"w{i} - lr * dw{i}, b{i} - lr * op.sum(d{i + 1}, axis=0)" for i in range(layers))
    body = "".join(f"    {line}\n" for line in (*lines, f"return {', '.join(both)}"))
    return f"@op.kernel\ndef f({head}):\n{body}"


def in_numpy(x: Array, t: Array, parts: list[Array], lr: float) -> list[Array]:
    layers = len(parts) // 2
    h = [x]
    for i in range(layers):
        z = h[-1] @ parts[2 * i] + parts[2 * i + 1]
        e = np.exp(z - z.max(1, keepdims=True))
        h.append(e / e.sum(1, keepdims=True) if i == layers - 1 else np.maximum(z, 0))
    d, made = (h[-1] - t) / len(x), list(parts)
    for i in reversed(range(layers)):
        made[2 * i] = parts[2 * i] - lr * h[i].T @ d
        made[2 * i + 1] = parts[2 * i + 1] - lr * d.sum(0)
        d = d @ parts[2 * i].T * (h[i] > 0)
    return made


def arguments(layers: int) -> list[Array]:
    rng = np.random.default_rng(layers)
    sizes = [*(12, 20, 17, 9, 5)[:layers], 4]
    shapes: list[tuple[int, ...]] = [(30, sizes[0]), (30, 4)]
    for i in range(layers):
        shapes += [(sizes[i], sizes[i + 1]), (sizes[i + 1],)]
    return [rng.normal(size=s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("layers", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_values(layers: int, target: str) -> None:
    x, t, *parts = arguments(layers)
    got = module_for(target, step(layers)).f(x, t, *parts, 0.1)
    wide = [a.astype(np.float64) for a in (x, t, *parts)]
    for a, b in zip(got, in_numpy(wide[0], wide[1], wide[2:], 0.1), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("layers", [2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_each_product_is_there_once(layers: int) -> None:
    """Forward one for each layer, backward two but for the first."""
    session = Session(overlay={"k.tessera": step(layers)})
    made = session.scheduled("k.tessera", "f", session.signature("k.tessera", "f", ""))
    dots = [o for one in made for o in one.walk() if o.name.endswith("schedule.dot")]
    assert len(dots) == 3 * layers - 1
