"""std.loss against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, EPSILON, TARGETS, module, near, numbers, same, wide
from tests.stdlib.assembled import ARCHS, assembles, needs_ptxas

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS: list[Any] = [
    "f32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("f64", "f16", "bf16")),
]  # fmt: skip
SHAPES = [(1,), (5, 7), (3, 1000), (20001,), (2, 3, 4, 5), (0, 3)]


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.loss", str(request.param))


def log(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(x)


def huber(delta: float) -> Any:
    def loss(x: Array, t: Array) -> Array:
        d = np.abs(x - t)
        return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))

    return loss


def kl(x: Array, t: Array) -> Array:
    return np.where(t == 0, 0, t * (log(np.where(t == 0, 1, t)) - x))


LOSSES: dict[str, tuple[str, dict[str, Any], Any, Any]] = {
    "mse": ("mse_loss", {}, lambda x, t: (x - t) ** 2, lambda x, t: (x - t) ** 2),
    "l1": ("l1_loss", {}, lambda x, t: np.abs(x - t), lambda x, t: np.abs(x - t)),
    "huber": ("huber_loss", {}, huber(1.0), huber(1.0)),
    "huber of 0.25": ("huber_loss", {"delta": 0.25}, huber(0.25), huber(0.25)),
    "bce": ("binary_cross_entropy_with_logits", {},
            lambda x, t: np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x))),
            lambda x, t: 1 + np.abs(x) * (1 + np.abs(t))),
    "kl": ("kl_div", {}, kl,
           lambda x, t: t * (1 + np.abs(x) + np.abs(log(np.where(t == 0, 1, t))))),
    "kl of logarithms": ("kl_div", {"log_target": True}, lambda x, t: np.exp(t) * (t - x),
                         lambda x, t: np.exp(t) * (1 + np.abs(x) + np.abs(t))),
}  # fmt: skip


def rounding(dtype: str, want: Any) -> Any:
    return 0.0 if dtype in ("f32", "f64") else EPSILON[dtype] * 1.01 * np.abs(want)


def unit(dtype: str) -> float:
    """e, and what the reference itself loses in f64."""
    return 4 * 2.0**-53 if dtype == "f64" else 2.0**-24


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.sample(1)
def test_losses_of_elements(std: Any, name: str, dtype: str) -> None:
    call, more, loss, size = LOSSES[name]
    for i, shape in enumerate(SHAPES):
        x, t = numbers(dtype, shape, seed=i) * 3, numbers(dtype, shape, seed=i + 9)
        if name in ("bce", "kl"):
            t = np.maximum(t, 0).astype(t.dtype)
        x = x.astype(DTYPES[dtype])
        want, e = loss(wide(x), wide(t)), unit(dtype)
        lost = 8 * e * size(wide(x), wide(t))
        found = np.asarray(getattr(std, call)(x, t, reduction="none", **more))
        assert found.dtype == x.dtype
        near(found, want, lost + rounding(dtype, want) + 2.0**-25)
        sums = lost.sum() + want.size * e * np.abs(want).sum()
        divisors = {"sum": 1, "mean": want.size}
        if name[:2] == "kl":
            divisors["batchmean"] = shape[0]
        for reduction, divisor in divisors.items():
            found = np.asarray(getattr(std, call)(x, t, reduction=reduction, **more))
            assert found.shape == () and found.dtype == x.dtype
            if divisor and np.abs(want.sum()) < 6e4:
                exact = want.sum() / divisor
                near(found, exact, sums / divisor + rounding(dtype, exact) + 2.0**-25)
            else:
                assert divisor or np.isnan(found)


def test_logits_do_not_overflow(std: Any) -> None:
    x, t = np.float32([-1e30, -200, 0, 200, 1e30]), np.float32([0, 1, 0.5, 0, 1])
    found = std.binary_cross_entropy_with_logits(x, t, reduction="none")
    near(found, np.array([0, 200, np.log(2), 200, 0]), 1e-4)


def entropy(x: Array, t: Array, smoothing: float) -> Array:
    """Of rows."""
    top = x.max(1, keepdims=True)
    logs = x - top - np.log(np.exp(x - top).sum(1, keepdims=True))
    return -(1 - smoothing) * logs[np.arange(len(x)), t] - smoothing * logs.mean(1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("smoothing", [0.0, 0.125])
@pytest.mark.sample(1)
def test_entropies(std: Any, smoothing: float, dtype: str) -> None:
    r = np.random.default_rng(0)
    for m, n in ((1, 1), (7, 3), (40, 129), (3, 5000), (2, 20000)):
        x = (numbers(dtype, (m, n), seed=n) * 5).astype(DTYPES[dtype])
        t = r.integers(0, n, m)
        want, z = entropy(wide(x), t, smoothing), wide(x)
        error = (2 * n + 16) * unit(dtype) * (1 + np.ptp(z, axis=1))
        found = std.cross_entropy(x, t, reduction="none", label_smoothing=smoothing)
        near(found, want, error + rounding(dtype, want) + 2.0**-25)
        for ignored in (-100, int(t[0])):
            kept = t != ignored
            sums = std.cross_entropy(x, t.astype(np.int32), "sum", ignored, smoothing)
            total = want[kept].sum()
            if total < 6e4:
                near(sums, total, error.sum() * 2 + rounding(dtype, total) + 2.0**-25)
            mean = std.cross_entropy(x, t, "mean", ignored, smoothing)
            if kept.any():
                near(mean, want[kept].mean(), error.max() * 2 + rounding(dtype, 6.0 + want.max()))
            else:
                assert np.isnan(mean)


def test_classes_stand_along_axis_1(std: Any) -> None:
    """Images of logits; and one row without a batch."""
    x, r = numbers("f32", (2, 5, 3, 4)), np.random.default_rng(1)
    t = r.integers(0, 5, (2, 3, 4)).astype(np.uint8)
    rows, flat = np.moveaxis(wide(x), 1, -1).reshape(-1, 5), t.reshape(-1)
    near(std.cross_entropy(x, t, "none"), entropy(rows, flat, 0).reshape(t.shape), 1e-5)
    picked = -rows[np.arange(len(flat)), flat].reshape(t.shape)
    same(std.nll_loss(x, t, "none"), picked.astype(np.float32))
    one = np.asarray(np.int64(3))
    near(std.cross_entropy(x[0, :, 0, 0], one), entropy(rows[:1], np.array([3]), 0)[0], 1e-5)


def test_nll(std: Any) -> None:
    x, t = numbers("f32", (4, 6)), np.array([0, 5, -100, 2])
    picked = -wide(x)[np.arange(4), t % 6]
    picked[2] = 0
    same(std.nll_loss(x, t, "none"), picked.astype(np.float32))
    near(std.nll_loss(x, t), picked.sum() / 3, 1e-6)
    near(std.nll_loss(x, t, "sum"), picked.sum(), 1e-6)


@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_a_class_that_is_not_there_is_a_fault(std: Any, name: str) -> None:
    for t in (6, -1):
        x = numbers("f32", (2, 6))
        with pytest.raises(tessera.TesseraError) as caught:
            np.asarray(getattr(std, name)(x, np.array([0, t])))
        assert [d.code for d in caught.value.diagnostics] == ["T0845"]


FORMS = {
    "_elements": "x: {T}[n], t: {T}[n], p: {A}, how=\"bce\", A={A}",
    "_summed": "x: {T}[1000000], t: {T}[1000000], p: {A}, divisor: {A}, how=\"huber\", A={A}",
    "_picked": "x: {T}[m, n], target: i64[m], y: mut {A}[m], ignored: i64, A={A}",
    "_entropies": "x: {T}[m, n], target: i64[m], y: mut {A}[m], ignored: i64, A={A}",
    "_over_classes": "y: {A}[1000000], target: i64[1000000], ignored: i64, MEAN=True, A={A}, T={T}",
}  # fmt: skip


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", FORMS)
@pytest.mark.sample(1)
def test_ptxas_takes_it(kernel: str, dtype: str, arch: str) -> None:
    form = FORMS[kernel].format(T=dtype, A="f64" if dtype == "f64" else "f32")
    assembles("loss", kernel, form, arch)


@pytest.mark.parametrize(("call", "said"), [
    ("mse_loss(x, x[:1])", "an input of shape (2, 3) with a target of (1, 3)"),
    ("l1_loss(x, x.astype('f8'))", "an input of f32 with a target of f64"),
    ("mse_loss(x.astype('i4'), x)", "a loss takes f16, bf16, f32 and f64, not i32"),
    ("mse_loss(x, x, 'median')", 'the reduction is "none", "sum" or "mean", not "median"'),
    ("huber_loss(x, x, delta=0.0)", "delta is above 0, not 0"),
    ("cross_entropy(x, three)", "takes classes of shape (2,), not (3,)"),
    ("cross_entropy(x, x[:, 0])", "classes are integers, not f32"),
    ("cross_entropy(x, three[:2], label_smoothing=2.0)", "label_smoothing is from 0 to 1, not 2"),
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str, said: str) -> None:
    names = {"x": np.ones((2, 3), np.float32), "three": np.arange(3)}
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert [d.code for d in caught.value.diagnostics] == ["T0805"]
    assert said in str(caught.value)
