"""std.norm against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, EPSILON, TARGETS, module, near, numbers, wide
from tests.stdlib.assembled import ARCHS, assembles, needs_ptxas

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS: list[Any] = [
    "f32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("f64", "f16", "bf16")),
]  # fmt: skip
SHAPES = [(2, 6), (3, 6, 50), (1, 6, 1), (2, 6, 9, 40), (5, 6, 3, 4, 5), (1, 6, 9000), (0, 6, 4)]


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.norm", str(request.param))


def normalized(x: Array, weight: Array, bias: Array, groups: int, eps: float) -> tuple[Array, ...]:
    """The exact result, the factor of e in its stated error; ``groups`` of 0: by channel."""
    b, c = x.shape[:2]
    n = int(np.prod(x.shape[2:], dtype=np.int64))
    parts = x.reshape(b, groups, c // groups * n) if groups else x.reshape(b, c, n)
    axes = -1 if groups else (0, 2)
    count = parts.shape[-1] * (1 if groups else b)
    if not x.size:
        return x, x
    centred = parts - parts.mean(axes, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axes, keepdims=True) + eps)
    far = np.abs(centred).max(axes, keepdims=True, initial=0)
    far = far + (count + 2) * 2.0**-24 * np.abs(parts).max(axes, keepdims=True, initial=0)
    shape = (1, c, *[1] * (x.ndim - 2))
    w, v = weight.reshape(shape), bias.reshape(shape)
    y = (centred * scale).reshape(x.shape) * w + v
    size = np.broadcast_to(far * scale, parts.shape).reshape(x.shape) * np.abs(w) + np.abs(y)
    return y, (count + 20) * size


NORMS: dict[str, tuple[Callable[..., Any], Callable[[int], int]]] = {
    "batch": (lambda s, x, w, v: s.batch_norm(x, weight=w, bias=v), lambda c: 0),
    "group": (lambda s, x, w, v: s.group_norm(x, 3, w, v), lambda c: 3),
    "instance": (lambda s, x, w, v: s.instance_norm(x, w, v), lambda c: c),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.sample(1)
def test_norms(std: Any, name: str, dtype: str) -> None:
    call, groups = NORMS[name]
    e = EPSILON["f64" if dtype == "f64" else "f32"]
    for i, shape in enumerate(SHAPES):
        x = (numbers(dtype, shape, seed=i) * 3 + 5).astype(DTYPES[dtype])
        w, v = numbers(dtype, shape[1], seed=1), numbers(dtype, shape[1], seed=2)
        want, error = normalized(wide(x), wide(w), wide(v), groups(shape[1]), 1e-5)
        found = np.asarray(call(std, x, w, v))
        assert found.dtype == x.dtype
        rounded = 0.0 if dtype in ("f32", "f64") else EPSILON[dtype] * 1.01
        near(found, want, error * e * (4 if dtype == "f64" else 1)
             + rounded * np.abs(want) + 2.0**-25)  # fmt: skip


def test_far_from_zero_and_weights_of_another_dtype(std: Any) -> None:
    x = (numbers("f32", (3, 4, 700)) * 1e-3 + 1000).astype(np.float32)
    one, zero = np.ones(4), np.zeros(4)
    for name, (call, groups) in NORMS.items():
        if name != "group":
            want, _ = normalized(wide(x), one, zero, groups(4), 1e-5)
            near(call(std, x, None, None), want, 1e-4)
    narrow, w = numbers("bf16", (2, 3, 40)), numbers("f32", 3, seed=1)
    want, _ = normalized(wide(narrow), wide(w), np.zeros(3), 3, 1e-5)
    near(std.instance_norm(narrow, w), want, 2.0**-8 * np.abs(want) + 1e-5)


def test_running_moments(std: Any) -> None:
    x, r = numbers("f32", (2, 5, 33)), np.random.default_rng(0)
    mean, variance = (r.uniform(1, 2, 5).astype(np.float32) for _ in range(2))
    want = (wide(x) - mean[:, None]) / np.sqrt(wide(variance)[:, None] + 0.5)
    near(std.batch_norm(x, mean, variance, eps=0.5), want, 1e-5)
    found = std.batch_moments(x)
    near(found[0], wide(x).mean((0, 2)), 1e-6)
    near(found[1], wide(x).var((0, 2)), 1e-5)


def test_layouts(placed: Any) -> None:
    x = numbers("f32", (4, 6, 8, 10))
    for a in (x[:, ::2], x[:, :, ::-1], x.swapaxes(2, 3), x.swapaxes(0, 1)[::2]):
        near(placed.group_norm(a, a.shape[1] // 3 or 1), wide(np.asarray(
            placed.group_norm(a.copy(), a.shape[1] // 3 or 1))), 1e-5)  # fmt: skip


KERNELS = {
    "_moments": "x: {T}[p, r, n], mean: mut {A}[r], rest: mut {A}[r], variance: mut {A}[r], A={A}",
    "_normalized": "x: {T}[b, c, n], mean: {A}[r], rest: {A}[r], variance: {A}[r], weight: {T}[c],"
                   " bias: {T}[c], A={A}",
}  # fmt: skip


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.sample
def test_ptxas_takes_it(kernel: str, dtype: str, arch: str) -> None:
    wider = "f64" if dtype == "f64" else "f32"
    assembles("norm", kernel, KERNELS[kernel].format(T=dtype, A=wider), arch)


@pytest.mark.parametrize(("call", "said"), [
    ("group_norm(x, 3)", "4 channels are not 3 equal groups"),
    ("group_norm(x, 0)", "num_groups is at least 1, not 0"),
    ("group_norm(x, 2, three)", "the weight has one number for each of 4 channels, not shape (3,)"),
    ("instance_norm(x, None, three)", "the bias has one number for each of 4 channels"),
    ("instance_norm(three)", "the input has a batch and channels, not shape (3,)"),
    ("batch_norm(x.astype('i4'))", "a norm takes f16, bf16, f32 and f64, not i32"),
    ("batch_norm(x, four)", "without a running variance: give both or none"),
    ("batch_norm(x, None, four)", "without a running mean: give both or none"),
    ("batch_norm(x, three, four)", "the running mean has one number for each of 4 channels"),
    ("batch_norm(x, None, None, four, four.astype('f8'))", "a weight of f32 with a bias of f64"),
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str, said: str) -> None:
    names = {"x": np.ones((2, 4, 5), np.float32), "three": np.ones(3, np.float32),
             "four": np.ones(4, np.float32)}  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert [d.code for d in caught.value.diagnostics] == ["T0805"]
    assert said in str(caught.value)
