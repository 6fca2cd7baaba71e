"""``op.reshape`` of what a kernel computes, and places with several axes, which are built on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import TARGETS, module_for

Array = np.ndarray[Any, np.dtype[Any]]

VALUES: dict[str, Callable[[Array, Array], Any]] = {
    "return op.reshape(max(x - op.mean(x, axis=(2, 3), keepdims=True), 0.0), (b, c * h * v)) @ w":
        lambda x, w: np.maximum(x - x.mean((2, 3), keepdims=True), 0).reshape(len(x), -1) @ w,
    "y = op.reshape(x * 2.0, (b, -1))\n    return op.softmax(y, axis=1)":
        lambda x, w: np.exp(2 * x).reshape(len(x), -1)
        / np.exp(2 * x).reshape(len(x), -1).sum(1, keepdims=True),
    "return op.sum(op.reshape(op.exp(x[0]), (c, -1)), axis=0)":
        lambda x, w: np.exp(x[0]).reshape(x.shape[1], -1).sum(0),
    "return op.cumsum(op.ravel(x + 1.0))": lambda x, w: (x + 1).ravel().cumsum(),
    "y = op.reshape(op.reshape(x, (b, c, h * v)) * 2.0, (b, c * h, v))\n"
    "    return op.transpose(y, (0, 2, 1)) + 1.0":
        lambda x, w: np.transpose((x * 2).reshape(len(x), -1, x.shape[3]), (0, 2, 1)) + 1,
    "return op.reshape(op.transpose(x, (0, 2, 3, 1)), (b * h * v, c)) @ w[:c, :]":
        lambda x, w: np.transpose(x, (0, 2, 3, 1)).reshape(-1, x.shape[1]) @ w[: x.shape[1]],
    "return op.sum(flat(x), axis=1)": lambda x, w: (x * x).reshape(len(x), -1).sum(1),
    "return op.reshape(op.argmax(x, axis=3), (-1,))": lambda x, w: x.argmax(3).ravel(),
    "return op.where(op.reshape(x > 0.0, (b, -1)), 1.0, 2.0)":
        lambda x, w: np.where((x > 0).reshape(len(x), -1), 1.0, 2.0),
    "return op.mean(op.reshape(x * 2.0, (b, c, h // 2, 2, v // 2, 2)), axis=(3, 5))":
        lambda x, w: (x * 2).reshape(*x.shape[:2], x.shape[2] // 2, 2, -1, 2).mean((3, 5)),
    "return op.sum(op.reshape(w @ w.T, (2, -1, w.shape[0])), axis=0)":
        lambda x, w: (w @ w.T).reshape(2, -1, len(w)).sum(0),
    "return op.reshape(x + 1.0, x.shape) * 2.0": lambda x, w: (x + 1) * 2,
    "e = op.zeros((b, c * h), f32)\n    e[:, :] = op.reshape(op.sum(x, axis=3), (b, -1))\n"
    "    y = op.reshape(e, (b, c, h))\n    e[:, :] = 1.0\n    return y * 2.0 + e[0, 0]":
        lambda x, w: x.sum(3) * 2 + 1,
    "u = x * 1.0\n    for t in range(3):\n"
    "        u = op.reshape(op.flip(op.reshape(u, (-1,)), axis=0), x.shape) * 2.0\n    return u":
        lambda x, w: x.ravel()[::-1].reshape(x.shape) * 8,
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("body", VALUES)
@pytest.mark.sample(1)
def test_a_computed_value_with_another_shape(body: str, dtype: Any, target: str) -> None:
    text = "\ndef flat(v):\n    return op.reshape(v * v, (v.shape[0], -1))\n\n\n@op.kernel\n"
    text += f"def f(x, w):\n    b, c, h, v = x.shape\n    {body}\n"
    f = module_for(target, text).f
    r = np.random.default_rng(len(body))
    for shape in ((3, 4, 6, 8), (1, 2, 2, 2)):
        x = r.normal(size=shape).astype(dtype)
        w = r.normal(size=(int(np.prod(shape[1:])), 10)).astype(dtype)
        want = VALUES[body](x.astype(np.float64), w.astype(np.float64))
        got = np.asarray(f(x, w))
        assert got.shape == want.shape
        near = 3e-2 if dtype == np.float16 else 1e-4
        np.testing.assert_allclose(got, want, rtol=near, atol=near * np.abs(want).max())


SLICES: dict[str, Callable[[Array, int], Any]] = {
    "op.reshape(y[:, :, :d], (b, s, h, d // h))": lambda y, d: y[:, :, :d],
    "op.reshape(y[:, :, d:2*d], (b, s, h, d // h))": lambda y, d: y[:, :, d : 2 * d],
    "op.reshape(y[:, :, 2*d:], (b, s, h, d // h))": lambda y, d: y[:, :, 2 * d :],
    "op.ravel(y[:, :, 2*d:])": lambda y, d: y[:, :, 2 * d :],
    "op.ravel(y[:, 1:, :-1] * 2.0)": lambda y, d: y[:, 1:, :-1] * 2,
    "op.ravel(y[:, ::2, 1:d])": lambda y, d: y[:, ::2, 1:d],
    "op.ravel(y[:, -2:, :min(d, 5)])": lambda y, d: y[:, -2:, : min(d, 5)],
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("given", ["y = x @ w", "y = x @ w + 1.0 - 1.0"])
@pytest.mark.parametrize("expression", SLICES)
@pytest.mark.sample(1)
def test_a_slice_whose_end_is_a_size_of_the_launch(
    expression: str, given: str, target: str
) -> None:
    text = (
        "\n@op.kernel\ndef f(x: f32[b, s, d], w: f32[d, 3*d], h: int):\n"
        f"    {given}\n    return {expression}\n"
    )
    f = module_for(target, text).f
    r = np.random.default_rng(len(expression))
    for b, s, d in ((2, 5, 8), (1, 3, 4)):
        x, w = (r.normal(size=n).astype(np.float32) for n in ((b, s, d), (d, 3 * d)))
        want = SLICES[expression](x.astype(np.float64) @ w, d)
        got = np.asarray(f(x, w, 2))
        assert got.size == want.size
        np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=1e-4, atol=1e-4)


PLACES: dict[str, Callable[[Array, Array], Any]] = {
    "return t[i]": lambda t, i: t[i],
    "return op.mean(t[i], axis=1)": lambda t, i: t[i].mean(1),
    "return op.take(t, i, axis=0)": lambda t, i: t[i],
    "return op.take(t, i % 12, axis=1)": lambda t, i: np.take(t, i % 12, axis=1),
    "return t[i, :] @ t.T": lambda t, i: t[i] @ t.T,
    "w = op.sum(t, axis=1)\n    return w[i]": lambda t, i: t.sum(1)[i],
    "return t[i % 7] * 2.0": lambda t, i: t[i % 7] * 2,
    "return t[i][:, 0, :]": lambda t, i: t[i][:, 0],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("body", PLACES)
@pytest.mark.sample(3)
def test_places_with_several_axes(body: str, rank: int, target: str) -> None:
    if rank == 3 and "[:, 0, :]" in body:
        body = body.replace("[:, 0, :]", "[:, 0, :, :]")
    f = module_for(target, f"\n@op.kernel\ndef f(t, i):\n    {body}\n").f
    r = np.random.default_rng(rank)
    t = r.normal(size=(50, 12)).astype(np.float32)
    i = r.integers(0, 50, (4, 6, 2)[:rank]).astype(np.int32)
    want = PLACES[body.replace("[:, 0, :, :]", "[:, 0, :]")](t.astype(np.float64), i)
    got = np.asarray(f(t, i))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


REFUSED = {
    "part of a value": "y = op.empty((b, c), f32)\n    for i in op.tile_range(b, step=1):\n"
    "        y[i, :] = op.max(op.reshape(x[i] * 2.0, (c, -1)), axis=1)\n    return y",
    "another number of elements": "return op.reshape(x * 2.0, (b, c, 7))",
    "two sizes to infer": "return op.reshape(x * 2.0, (-1, -1))",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    text = (
        f"@op.kernel\ndef f(x: f32[2, 4, 6, 8]):\n    b, c, h, v = x.shape\n    {REFUSED[name]}\n"
    )
    with pytest.raises(tessera.TesseraError, match=r"T0207|T0601|T0311"):
        tessera.compile(text).f(np.zeros((2, 4, 6, 8), np.float32))


PAIRS: dict[str, Callable[[Array, Array, Array], Any]] = {
    "return x[i, j]": lambda x, i, j: x[i, j],
    "return op.sum(x[i, j], axis=1)": lambda x, i, j: x[i, j].sum(1),
    "return x[i, 2]": lambda x, i, j: x[i, 2],
    "return x[2, j]": lambda x, i, j: x[2, j],
    "return x[op.arange(3)[:, None], j]": lambda x, i, j: np.take_along_axis(x[:3], j, axis=1),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", PAIRS)
@pytest.mark.sample(3)
def test_pairs_of_places_with_several_axes(body: str, target: str) -> None:
    f = module_for(target, f"\n@op.kernel\ndef f(x, i, j):\n    {body}\n").f
    r = np.random.default_rng(7)
    x = r.normal(size=(90, 100)).astype(np.float32)
    i, j = (r.integers(0, n, (3, 4)).astype(np.int32) for n in x.shape)
    want = PAIRS[body](x.astype(np.float64), i, j)
    got = np.asarray(f(x, i, j))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
