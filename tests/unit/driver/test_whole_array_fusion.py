"""Tile kernels of whole arrays that become one loop give what they say, and say what is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

HEADS: dict[str, str] = {
    "plain": "Q, K, V",
    "sized": "Q: f32[m, d], K: f32[n, d], V: f32[n, e]",
    "result": "Q: f32[m, d], K: f32[n, d], V: f32[n, e]) -> (f32[m, e]",
    "clashes": "i, j, o0",
    "swapped": "x1, x2, x0",
}
BODIES: dict[str, str] = {
    "attention": "return op.softmax({0} @ {1}.T) @ {2}",
    "named": "s = {0} @ {1}.T * 0.5\n    p = op.softmax(s, axis=1)\n    return p @ {2}",
    "scaled": "return op.softmax({0} @ {1}.T * (1.0 / math.sqrt({0}.shape[1]))) @ {2}",
    "sums": "return op.exp(op.tanh({0} @ {1}.T)) @ {2}",
    "causal": (
        "a, b = op.arange({0}.shape[0]), op.arange({1}.shape[0])\n"
        "    s = op.where(a[:, None] >= b[None, :], {0} @ {1}.T, -inf)\n"
        "    return op.softmax(s, axis=1) @ {2}"
    ),
}
SIZES = ((40, 70, 16, 8), (130, 300, 32, 24), (1, 5, 3, 1), (64, 1, 16, 16))
"""Rows, places, elements of a row of the first two, and of a row of the third."""


def _wanted(body: str, q: Any, k: Any, v: Any) -> Any:
    z = q @ k.T
    if body == "sums":
        return np.exp(np.tanh(z)) @ v
    z *= {"named": 0.5, "scaled": q.shape[1] ** -0.5}.get(body, 1.0)
    if body == "causal":
        z = np.where(np.arange(len(q))[:, None] >= np.arange(len(k))[None, :], z, -np.inf)
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ v


def _source(head: str, body: str) -> str:
    text = HEADS[head]
    names = re.findall(r"\w+", re.sub(r": \w+\[[^]]*\]", "", text.split(")")[0]))
    result = text.partition(")")[2].replace("(", "")
    return f"@op.kernel\ndef f({text.split(')')[0]}){result}:\n    {BODIES[body].format(*names)}\n"


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.sample(1)
def test_results(head: str, body: str) -> None:
    f = tessera.compile(_source(head, body), target="cpu").f
    rng = np.random.default_rng(0)
    for m, n, d, e in SIZES:
        arrays = [rng.uniform(-1, 1, s).astype(np.float32) for s in ((m, d), (n, d), (n, e))]
        wanted = _wanted(body, *(a.astype(np.float64) for a in arrays))
        np.testing.assert_allclose(f(*arrays), wanted, atol=2e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("body", [b for b in BODIES if b != "causal"])
def test_scores_are_not_in_memory(body: str) -> None:
    session = Session(overlay={"f.tessera": _source("plain", body)})
    shapes = "Q: f32[4096, 64], K: f32[4000, 64], V: f32[4000, 32]"
    wanted = session.signature("f.tessera", "f", shapes)
    made = session.for_machine("f.tessera", "f", wanted, session.machine("cpu", "native"))
    assert made.lowered is not None
    assert len(made.launches) == 1
    assert not [s for s in made.lowered[1].slots if s.kind == "scratch"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.sample(1)
def test_numbers_and_a_bias(dtype: str) -> None:
    text = (
        f"@op.kernel\ndef f(q, k, bias: {dtype}[m, n], scale: {dtype}, v):\n"
        "    return op.softmax(q @ k.T * scale + bias, axis=1) @ v\n"
    )
    f = tessera.compile(text, target="cpu").f
    rng, kind = np.random.default_rng(0), np.dtype({"f32": "float32", "f64": "float64"}[dtype])
    for m, n, d, e in SIZES:
        q, k, bias, v = (rng.uniform(-1, 1, s).astype(kind) for s in
                         ((m, d), (n, d), (m, n), (n, e)))  # fmt: skip
        z = np.exp(q.astype(np.float64) @ k.T * 0.25 + bias)
        np.testing.assert_allclose(
            f(q, k, bias, 0.25, v), z / z.sum(axis=1, keepdims=True) @ v, atol=2e-5
        )


@pytest.mark.parametrize(("axis", "name"), [(0, "K"), (1, "K")])
def test_sizes_that_differ_are_refused_as_written(axis: int, name: str) -> None:
    f = tessera.compile(_source("plain", "attention"), target="cpu").f
    shapes = {"Q": [64, 16], "K": [90, 16], "V": [90, 8]}
    shapes[name][axis] += 1
    arrays = [np.zeros(s, np.float32) for s in shapes.values()]
    with pytest.raises(tessera.TesseraError) as caught:
        f(*arrays)
    text = str(caught.value)
    assert f"`{name}.shape[{axis}]`" in text and "t0" not in text, text
