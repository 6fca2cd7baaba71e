"""Layers, losses, windows and transforms of `op`: in the host program, fused and differentiated,
beside NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tessera_lang as tessera
from tests.on_device import call
from tests.stdlib.arrays import TARGETS
from tests.stdlib.test_conv import met, spread


class Case(NamedTuple):
    """``text`` of arrays ``x``, ``w`` and ``v`` of these shapes; ``places``: an array ``t`` of so
    many integers below a number."""

    text: str
    exact: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    places: tuple[tuple[int, ...], int] | None = None


def _crossed(x: Any, w: Any, v: Any) -> Any:
    y = np.maximum(met(x, w, (1, 1), (1, 1), (1, 1), 1), 0.0)
    return met(y, v, (2, 2), (0, 0), (1, 1), 1)


def _cut(x: Any, padding: int, more: int) -> Any:
    """What is left of a transposed convolution of one axis."""
    x = np.pad(x, ((0, 0), (0, 0), (0, more)))
    return x[:, :, padding : x.shape[2] - padding]


def _windows(x: Any, k: int, s: int, p: int, fill: float) -> Any:
    """Of two axes: all elements of each window along the last axis."""
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::s, ::s]
    return found.reshape(*found.shape[:4], k * k)


def _norm(x: Any, axes: tuple[int, ...]) -> Any:
    apart = x - x.mean(axes, keepdims=True)
    return apart / np.sqrt((apart * apart).mean(axes, keepdims=True) + 1e-5)


def _grouped(x: Any, w: Any, v: Any) -> Any:
    y = _norm(x.reshape(x.shape[0], 2, -1), (2,)).reshape(x.shape)
    return y * w[:, None, None] + v[:, None, None]


def _logarithms(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    with np.errstate(divide="ignore"):
        return np.log(e / e.sum(axis, keepdims=True))


def _entropy(x: Any, t: Any, smoothing: float = 0.0) -> Any:
    y, counts = _logarithms(x, 1), t != 3
    picked = np.take_along_axis(y, np.where(counts, t, 0)[:, None], 1)[:, 0]
    losses = (1.0 - smoothing) * picked + smoothing * y.mean(1)
    return -losses[counts].sum() / counts.sum()


def _attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    s = np.where(np.arange(s.shape[-2])[:, None] >= np.arange(s.shape[-1]), s, -np.inf)
    return np.exp(_logarithms(s, -1)) @ v


def _both(z: Any) -> Any:
    return np.stack((z.real, z.imag))


_PAD = "((1, 2), (0, 3))"
_IN_TWO = ((2, 4, 6, 7), (3, 4, 3, 3), (5, 3, 2, 2))
CASES = [
    Case("op.conv1d(x, w, padding=1)", lambda x, w: met(x, w, (1,), (1,), (1,), 1),
         ((2, 3, 7), (4, 3, 3))),
    Case("op.conv2d(op.relu(op.conv2d(x, w, padding=1)), v, stride=2)", _crossed, _IN_TWO),
    Case("op.conv1d(x, w, v, stride=2, padding=(3,), dilation=2, groups=2)",
         lambda x, w, v: met(x, w, (2,), (3,), (2,), 2) + v[:, None], ((2, 4, 9), (6, 2, 3), (6,))),
    Case("op.conv3d(x, w, padding=(1, 0, 2), stride=(1, 2, 3))",
         lambda x, w: met(x, w, (1, 2, 3), (1, 0, 2), (1, 1, 1), 1),
         ((2, 2, 3, 5, 4), (3, 2, 2, 3, 2))),
    Case("op.conv_transpose1d(x, w, v, stride=3, padding=1, output_padding=2, groups=2)",
         lambda x, w, v: _cut(spread(x, w, (3,), (1,), 2), 1, 2) + v[:, None],
         ((2, 4, 5), (4, 3, 4), (6,))),
    Case("op.conv_transpose2d(x, w, stride=(2, 1), dilation=(1, 2))",
         lambda x, w: spread(x, w, (2, 1), (1, 2), 1), ((2, 3, 4, 5), (3, 2, 3, 2))),
    Case("op.max_pool2d(x, 2)", lambda x: _windows(x, 2, 2, 0, -np.inf).max(-1), ((2, 3, 6, 7),)),
    Case("op.max_pool2d(x, 3, stride=2, padding=1)",
         lambda x: _windows(x, 3, 2, 1, -np.inf).max(-1), ((2, 3, 6, 7),)),
    Case("op.avg_pool2d(x, 3, stride=1, padding=1)",
         lambda x: _windows(x, 3, 1, 1, 0.0).mean(-1), ((2, 3, 6, 7),)),
    Case("op.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)",
         lambda x: np.nanmean(_windows(x, 3, 2, 1, np.nan), -1), ((2, 3, 6, 7),)),
    Case("op.avg_pool1d(x, 3)", lambda x: x[:, :, :6].reshape(2, 3, 2, 3).mean(3), ((2, 3, 8),)),
    Case("op.max_pool3d(x, (1, 2, 3))",
         lambda x: x.reshape(1, 2, 3, 2, 2, 2, 3).max((4, 6)), ((1, 2, 3, 4, 6),)),
    Case("op.batch_norm(x, weight=w, bias=v)",
         lambda x, w, v: _norm(x, (0, 2, 3)) * w[:, None, None] + v[:, None, None],
         ((4, 3, 2, 5), (3,), (3,))),
    Case("op.batch_norm(x, w, v * v + 1.0)",
         lambda x, w, v: (x - w[:, None]) / np.sqrt(v[:, None] ** 2 + 1.0 + 1e-5),
         ((4, 3, 2), (3,), (3,))),
    Case("op.group_norm(x, 2, w, v)", _grouped, ((3, 4, 2, 5), (4,), (4,))),
    Case("op.instance_norm(x)", lambda x: _norm(x, (2,)), ((3, 4, 7),)),
    Case("op.layernorm(x, w, v)", lambda x, w, v: _norm(x, (1,)) * w + v, ((5, 9), (9,), (9,))),
    Case("op.rmsnorm(x, w, eps=0.1)",
         lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + 0.1) * w, ((5, 9), (9,))),
    Case("op.log_softmax(x, axis=1)", lambda x: _logarithms(x, 1), ((3, 7, 2),)),
    Case("op.cross_entropy(x, t, ignore_index=3)", _entropy, ((9, 5),), ((9,), 5)),
    Case("op.cross_entropy(x, t, ignore_index=3, label_smoothing=0.2)",
         lambda x, t: _entropy(x, t, 0.2), ((9, 5),), ((9,), 5)),
    Case("op.nll_loss(x, t, reduction='sum')",
         lambda x, t: -np.take_along_axis(x, t[:, None], 1).sum(), ((2, 5, 3),), ((2, 3), 5)),
    Case("op.mse_loss(x, w)", lambda x, w: ((x - w) ** 2).mean(), ((4, 5), (4, 5))),
    Case("op.l1_loss(x, w, reduction='none')", lambda x, w: np.abs(x - w), ((4, 5), (4, 5))),
    Case("op.one_hot(t, 6, dtype=f64) @ x", lambda x, t: x[t], ((6, 3),), ((2, 4), 6)),
    Case("op.gather(x, 1, t)", lambda x, t: np.take_along_axis(x, t, 1), ((3, 5),), ((3, 7), 5)),
    Case("op.scaled_dot_product_attention(x, w, v, is_causal=True)", _attention,
         ((2, 5, 4), (2, 5, 4), (2, 5, 3))),
    *(Case(f"op.pad(x, {_PAD}, mode='{mode}')",
           lambda x, mode=mode: np.pad(x, ((1, 2), (0, 3)), mode=mode), ((4, 3),))
      for mode in ("edge", "reflect", "symmetric", "wrap")),
    *(Case("op.stack(op.fft(x, w))", lambda x, w: _both(np.fft.fft(x + 1j * w)), ((3, n), (3, n)))
      for n in (1, 7, 64, 67, 90, 134)),
    Case("op.stack(op.ifft(x, w, axes=(2, 0)))",
         lambda x, w: _both(np.fft.ifftn(x + 1j * w, axes=(2, 0))), ((3, 2, 5), (3, 2, 5))),
    *(Case("op.stack(op.rfft(x, axes=(1, -1)))",
           lambda x: _both(np.fft.rfftn(x, axes=(1, 2))), ((2, 3, n),)) for n in (1, 6, 71)),
    *(Case(f"op.irfft(x, w, {n}, axes=(0, 1))",
           lambda x, w, n=n: np.fft.irfftn(x + 1j * w, (4, n), axes=(0, 1)),
           ((4, n // 2 + 1), (4, n // 2 + 1))) for n in (130, 9, 2)),
    Case("op.embedding(t, x)", lambda x, t: x[t], ((6, 3),), ((2, 4), 6)),
]  # fmt: skip
IDS = [f"{c.text}-{c.shapes[0][-1]}" for c in CASES]


def _given(case: Case, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    arrays: list[Any] = [rng.uniform(-1.0, 1.0, s) for s in case.shapes]
    if case.places:
        arrays.append(rng.integers(0, case.places[1], case.places[0]))
    return arrays


def _module(case: Case, target: str) -> Any:
    names = [*"xwv"[: len(case.shapes)], *("t" if case.places else "")]
    head = ", ".join(names)
    return tessera.compile(
        f"def value({head}):\n    return {case.text}\n\n"
        f"def loss({head}, weights):\n    return op.sum(value({head}) * weights)\n",
        target=target,
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(3)
def test_values_are_those_of_numpy(case: Case, target: str) -> None:
    """As the host program runs it, and fused; of device arrays fused alone (T0809)."""
    arrays, m = _given(case, 1), _module(case, target)
    wanted = case.exact(*arrays)
    for function in (m.value, tessera.fused(m.value))[target == "cuda" :]:
        found = np.asarray(call(function, arrays, target))
        assert found.shape == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(3)
def test_gradients_are_differences(case: Case, target: str) -> None:
    """Along a random direction in all arrays together."""
    arrays, m, h = _given(case, 2), _module(case, target), 1e-6
    rng = np.random.default_rng(3)
    weights: Any = rng.uniform(-1.0, 1.0, np.shape(case.exact(*arrays)))
    floats = arrays[: len(case.shapes)]
    ways = [rng.uniform(-1.0, 1.0, a.shape) for a in floats]
    sides = [
        np.sum(case.exact(*(a + s * d for a, d in zip(floats, ways, strict=True)),
                          *arrays[len(floats) :]) * weights)
        for s in (h, -h)
    ]  # fmt: skip
    wanted = (sides[0] - sides[1]) / (2 * h)
    wrt = tuple("xwv"[: len(floats)])
    given = [*arrays, weights if weights.ndim else float(weights)]
    found: Any = call(tessera.grad(m.loss, wrt=wrt), given, target)
    several = found if isinstance(found, tuple) else (found,)
    slope = sum(np.sum(np.asarray(g) * d) for g, d in zip(several, ways, strict=True))
    np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-6)


WRONG = [
    ("op.conv2d(x, x, stride=0)", "stride is at least 1, not 0"),
    ("op.conv2d(x, x[:, :1])", "meet 1 input channels of a group, and the input has 2 in 1"),
    ("op.conv2d(x, x, groups=3)", "2 input channels are not 3 equal groups"),
    ("op.conv2d(x, x, dilation=2)", "the kernel reaches over 7 elements of an axis that has 4"),
    ("op.conv2d(x, x, x[:, 0, 0, 0][:1])", "one number for each of 2 channels"),
    ("op.conv2d(x, x.to(f64))", "an input of f32 with weights of f64"),
    ("op.conv_transpose2d(x, x[:1])", "meet 1 input channels, and the input has 2"),
    ("op.conv1d(x, x)", "a batch, channels and 1 more axes, not 4 axes"),
    ("op.max_pool2d(x, 5)", "the window reaches over 5 elements of an axis that has 4"),
    ("op.group_norm(x, 3)", "2 channels are not 3 equal groups"),
    ("op.cross_entropy(x, x)", "takes classes of shape (2, 4, 4), not (2, 2, 4, 4)"),
    ("op.fft(x, x[:1])", "real part has shape (2, 2, 4, 4), and the imaginary part (1, 2, 4, 4)"),
    ("op.fft(x, axes=(0, 1, 2, 3))", "of one to three axes, not 4"),
    ("op.irfft(x, x, 5)", "5 real numbers have 3 places in their transform, not 4"),
    ("op.dropout(x, 1.0)", "p is from 0 to below 1, not 1.0"),
    ("op.pad(x, 1, mode='mean')", "has no mode"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_a_wrong_call_in_a_graph_says_what_fits(text: str, says: str) -> None:
    m = tessera.compile(f"def f(x):\n    return {text}\n", target="cpu")
    with pytest.raises(tessera.TesseraError) as error:
        tessera.fused(m.f)(np.ones((2, 2, 4, 4), np.float32))
    assert says in str(error.value)


def test_what_has_a_gradient_is_named_for_kernels_of_the_library() -> None:
    m = tessera.compile("def f(x):\n    return op.sum(std.pool.max_pool1d(x, 2))\n", target="cpu")
    with pytest.raises(tessera.TesseraError) as error:
        tessera.grad(m.f)(np.ones((1, 2, 4), np.float32))
    (fault,) = error.value.diagnostics
    assert fault.code == "T0761" and "`op.max_pool2d`" in fault.helps[0]


def test_a_kernel_whose_dtype_is_a_parameter_has_a_gradient() -> None:
    """And compile-time values that the call does not say."""
    m = tessera.compile(
        "@op.kernel\ndef twice[T: dtype, N: int = 2](x: T[n, m]) -> T[n, m]:\n"
        "    return op.exp(x) * N\n\n"
        "def f(x):\n    return op.sum(twice(x))\n",
        target="cpu",
    )
    x = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
    np.testing.assert_allclose(tessera.grad(m.f)(x), 2.0 * np.exp(x), rtol=1e-12)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.slow
def test_convolutions_as_the_code_of_a_device(dtype: str, arch: str, tmp_path: Path) -> None:
    """With both gradients, on the CPU operation by operation."""
    text = f"""
def loss(x, w, v, weights):
    y = op.conv2d(x.to({dtype}), w.to({dtype}), stride=(1, 2), padding=1)
    y = op.conv_transpose2d(y, v.to({dtype}), stride=2, groups=2)
    return op.sum(y.to(f32) * weights)
"""
    rng = np.random.default_rng(4)
    near = 1e-5 if dtype == "f32" else 2e-2
    x, w, v = (rng.integers(-4, 5, s) / 4.0 for s in ((2, 3, 5, 18), (4, 3, 3, 3), (4, 3, 2, 2)))
    y = met(x, w, (1, 2), (1, 1), (1, 1), 1)
    exact = spread(y, v, (2, 2), (1, 1), 2)
    weights = rng.integers(-4, 5, exact.shape) / 4.0
    (tmp_path / "net.tessera").write_text(text)
    m = tessera.load(str(tmp_path / "net.tessera"), arch_as=arch)
    given = [a.astype(np.float32) for a in (x, w, v, weights)]
    value, found = tessera.value_and_grad(m.loss, wrt=("x", "w", "v"))(*given)
    np.testing.assert_allclose(value, np.sum(exact * weights), rtol=near, atol=near)
    for at, (a, g) in enumerate(zip((x, w, v), found, strict=True)):
        way = rng.uniform(-1.0, 1.0, a.shape)
        moved = [b + way if i == at else b for i, b in enumerate((x, w, v))]
        y = met(moved[0], moved[1], (1, 2), (1, 1), (1, 1), 1)
        there = spread(y, moved[2], (2, 2), (1, 1), 2)
        slope = np.sum((there - exact) * weights)  # it is linear in each
        limit = near * np.sum(np.abs(g) * np.abs(way))
        np.testing.assert_allclose(np.sum(np.asarray(g, np.float64) * way), slope, atol=limit)
