"""Values that take more steps than they read, used several times: computed once for all uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

Array = np.ndarray[Any, np.dtype[Any]]
Work = tuple[str, str, Callable[..., Any], int]
"""A kernel's body for x f32[n, d], w f32[d, k] and v f32[n], its results, the same in NumPy, and
how many heavy values (products, sums over pairs) a call computes."""
TARGETS = [
    "cpu", pytest.param("as sm_90a", marks=pytest.mark.slow),
    pytest.param("cuda", marks=pytest.mark.gpu),
]  # fmt: skip


def pull(x: Array, v: Array) -> Array:
    d = x[None] - x[:, None]
    return (v[None, :, None] * d).sum(1)


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def two_results(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    h = np.maximum(x @ w, 0)
    return h, h.sum(0)


def number_first(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    h = x @ w
    return np.asarray((h * h).sum()), h * 2


def two_steps(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    y = x + 0.1 * pull(x, v)
    z = y + 0.1 * pull(y, v)
    return y, z, np.asarray((z * z).sum())


def gathered(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    p = softmax(x @ w)
    g = p - (np.arange(w.shape[1])[None] == 0)
    return np.asarray(np.log(p[np.arange(len(x)), 0]).mean()), x.T @ g, g.sum(0)


def in_a_loop(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    y = x
    for _ in range(3):
        y = y + 0.1 * pull(y, v)
    return y, y.sum(0)


def in_a_branch(x: Array, w: Array, v: Array) -> tuple[Array, ...]:
    h = x @ w
    return h + (h.sum() if len(x) > 40 else 0), h


HEADER = """
def pull(x, v):
    d = x[None, :, :] - x[:, None, :]
    return op.sum(v[None, :, None] * d, axis=1)

@op.kernel
def f(x: f32[n, d], w: f32[d, k], v: f32[n]):
"""
WORK: dict[str, Work] = {
    "two results": ("h = op.relu(x @ w)", "h, op.sum(h, axis=0)", two_results, 1),
    "a number first": ("h = x @ w\ns = op.sum(h * h)", "s, h * 2.0", number_first, 1),
    "a number in the return": ("h = x @ w", "op.sum(h * h), h * 2.0", number_first, 1),
    "pairs of points, in two steps": (
        "y = x + 0.1 * pull(x, v)\nz = y + 0.1 * pull(y, v)", "y, z, op.sum(z * z)", two_steps, 2,
    ),
    "a loss and its gradient": (
        "p = op.softmax(x @ w, axis=1)\nloss = op.mean(op.log(p[op.arange(n), op.arange(n) * 0]))\n"
        "g = p - (op.arange(k)[None, :] == 0).to(f32)",
        "loss, x.T @ g, op.sum(g, axis=0)", gathered, 2,
    ),
    "what a loop changes": (
        "y = x\nfor i in range(3):\n    y = y + 0.1 * pull(y, v)", "y, op.sum(y, axis=0)",
        in_a_loop, 1,
    ),
    "a branch that uses it first": (
        "h = x @ w\ns = 0.0\nif n > 40:\n    s = op.sum(h)", "h + s, h", in_a_branch, 2,
    ),
}  # fmt: skip


def kernel(body: str, results: str) -> str:
    return HEADER + "".join(f"    {line}\n" for line in (*body.split("\n"), f"return {results}"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", list(WORK))
@pytest.mark.sample(1)
def test_values(name: str, target: str, tmp_path: Path) -> None:
    body, results, reference, _ = WORK[name]
    path = tmp_path / "k.tessera"
    path.write_text(kernel(body, results))
    how = {"target": "cpu", "arch_as": target[3:]} if target[:2] == "as" else {"target": target}
    f = tessera.load(str(path), **how).f
    for n, d, k in ((70, 33, 40), (1, 3, 2), (130, 4, 65)):
        rng = np.random.default_rng(n)
        x, w, v = (rng.normal(size=s).astype(np.float32) * 0.3 for s in ((n, d), (d, k), n))
        wanted = reference(*(a.astype(np.float64) for a in (x, w, v)))
        for got, want in zip(f(x, w, v), wanted, strict=True):
            room = 2e-4 * max(1.0, float(np.abs(want).max()))
            np.testing.assert_allclose(np.asarray(got), want, rtol=2e-4, atol=room)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", list(WORK))
def test_each_is_computed_once(name: str) -> None:
    body, results, _, heavy = WORK[name]
    session = Session(overlay={"k.tessera": kernel(body, results)})
    signature = session.signature("k.tessera", "f", "x: f32[300, 40], w: f32[40, 50], v: f32[300]")
    made = session.for_machine("k.tessera", "f", signature, session.machine("cpu", "native"))
    found = 0
    for launch in made.launches:
        for o in launch.schedule.operations[0].walk():
            if o.name.endswith("schedule.reduce"):
                shape = o.operands[0].type.shape
                found += len(shape) == 3 and 1 not in shape
            found += o.name.endswith("schedule.dot")
    products = body.count("@") + results.count("@")
    assert found >= max(1, products)
    assert found == heavy
