"""std.pool against NumPy: windows of one to three axes, every argument."""

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


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.pool", str(request.param))


def windows(x: Array, a: dict[str, Any], fill: float) -> Array:
    """Each window along the last axis."""
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in a["padding"])], constant_values=fill)
    size = [(n - e * (k - 1) - 1) // s + 1 for n, k, s, e in zip(
        x.shape[2:], a["kernel_size"], a["stride"], a["dilation"], strict=True)]  # fmt: skip
    places = np.ndindex(*a["kernel_size"])
    return np.stack([
        x[(..., *(slice(e * i, e * i + (m - 1) * s + 1, s)
                  for i, e, m, s in zip(at, a["dilation"], size, a["stride"], strict=True)))]
        for at in places
    ], axis=-1)  # fmt: skip


def drawn(r: np.random.Generator, rank: int, row: int, dilated: bool) -> dict[str, Any]:
    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(v) for v in r.integers(low, high, rank))

    k, e = each(1, 5), each(1, 4) if dilated else (1,) * rank
    reach = [d * (n - 1) + 1 for d, n in zip(e, k, strict=True)]
    p = tuple(int(r.integers(0, m // 2 + 1)) for m in reach)
    n = (*each(1, 9)[1:], int(r.integers(1, row)))
    n = tuple(max(m, j - 2 * q, 1) for m, j, q in zip(n, reach, p, strict=True))
    return {"kernel_size": k, "stride": each(1, 5), "padding": p, "dilation": e,
            "shape": (int(r.choice([0, 1, 3], p=[0.1, 0.5, 0.4])), 2, *n)}  # fmt: skip


def named(a: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: a[name] for name in ("kernel_size", "stride", "padding", *names)}


def check_max(std: Any, dtype: str, rank: int, r: np.random.Generator, row: int) -> None:
    a = drawn(r, rank, row, True)
    x = numbers(dtype, a["shape"], seed=row)
    if x.size > 7:
        x.reshape(-1)[::7] = -np.inf
        x.reshape(-1)[3] = np.nan
    found = getattr(std, f"max_pool{rank}d")(x, **named(a, "dilation"))
    assert np.asarray(found).dtype == x.dtype
    same(found, windows(wide(x), a, -np.inf).max(-1).astype(x.dtype))


def check_avg(std: Any, dtype: str, rank: int, r: np.random.Generator, row: int) -> None:
    a = drawn(r, rank, row, False)
    x = numbers(dtype, a["shape"], seed=row)
    parts, here = windows(wide(x), a, 0.0), windows(np.ones(x.shape), a, 0.0)
    e = EPSILON["f64" if dtype == "f64" else "f32"]
    rounded = 0.0 if dtype in ("f32", "f64") else EPSILON[dtype] * 1.01
    for more, count in (
        ({}, parts.shape[-1]), ({"count_include_pad": False}, here.sum(-1)),
        ({"divisor_override": 3}, 3),
    ):  # fmt: skip
        found = getattr(std, f"avg_pool{rank}d")(x, **named(a), **more)
        exact, size = parts.sum(-1) / count, np.abs(parts).sum(-1) / count
        assert np.asarray(found).dtype == DTYPES[dtype]
        error = (parts.shape[-1] + 2) * e * size * (4 if dtype == "f64" else 1)
        near(found, exact, error + rounded * np.abs(exact) + 2.0**-25)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("how", [check_max, check_avg])
@pytest.mark.sample(1)
def test_pooling_at_random(std: Any, how: Any, rank: int, dtype: str) -> None:
    r = np.random.default_rng(rank)
    for seed in range(4):
        how(std, dtype, rank, r, 290 if seed % 2 else 20)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("how", [check_max, check_avg])
def test_much_pooling_at_random(std: Any, how: Any, rank: int) -> None:
    r = np.random.default_rng(10 + rank)
    for _ in range(20):
        how(std, "f32", rank, r, 300)


def test_a_stride_is_the_window_if_none_is_given(std: Any) -> None:
    x = numbers("f32", (2, 3, 9, 11))
    same(std.max_pool2d(x, (2, 3)), x[:, :, :8, :9].reshape(2, 3, 4, 2, 3, 3).max((3, 5)))


@pytest.mark.slow
def test_layouts(placed: Any) -> None:
    x = numbers("f32", (4, 6, 8, 10))
    for a in (x[:, ::2], x[:, :, ::-1], x.swapaxes(2, 3), x[..., ::2]):
        same(placed.max_pool2d(a, 3, stride=2, padding=1), placed.max_pool2d(
            a.copy(), 3, stride=2, padding=1))  # fmt: skip
        same(placed.avg_pool2d(a, 3, stride=2), placed.avg_pool2d(a.copy(), 3, stride=2))


def test_windows_of_nothing(std: Any) -> None:
    """A window that a dilation leads past its only element; one of an axis without elements."""
    x = np.ones((1, 1, 1), np.float32)
    same(std.max_pool1d(x, 2, stride=1, padding=2, dilation=3), np.float32([[[-np.inf, -np.inf]]]))
    found = std.avg_pool1d(x[:, :, :0], 2, padding=1, count_include_pad=False)
    assert np.isnan(found).all() and found.shape == (1, 1, 1)


KERNELS = {"_greatest": "SW=2", "_mean": "SW=2, A={A}"}


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.sample
def test_ptxas_takes_it(kernel: str, dtype: str, arch: str) -> None:
    more = KERNELS[kernel].format(A="f64" if dtype == "f64" else "f32")
    form = f"x: {dtype}[b, d, h, w], y: mut {dtype}[b, od, oh, ow], {more}"
    assembles("pool", kernel, form, arch)


@pytest.mark.parametrize(("call", "said"), [
    ("max_pool1d(x, 2)", "has a batch, channels and 1 more axes, not 4"),
    ("max_pool2d(x, 0)", "kernel_size is at least 1, not 0"),
    ("max_pool2d(x, (1, 2, 3))", "kernel_size is a number or a tuple of 2"),
    ("max_pool2d(x, 2, stride=0)", "stride is at least 1, not 0"),
    ("max_pool2d(x, 2, padding=-1)", "padding is at least 0, not -1"),
    ("max_pool2d(x, 2, padding=2)", "padding 2 is more than half of a window"),
    ("max_pool2d(x, 3, dilation=2)", "the window reaches over 5 elements of an axis that has 4"),
    ("avg_pool2d(x, 5)", "take a smaller window"),
    ("avg_pool2d(x, 2, divisor_override=0)", "divisor_override is at least 1, not 0"),
    ("avg_pool2d(x.astype('i4'), 2)", "pooling takes f16, bf16, f32 and f64, not i32"),
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str, said: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, "x": np.ones((2, 2, 4, 4), np.float32)})
    assert [d.code for d in caught.value.diagnostics] == ["T0805"]
    assert said in str(caught.value)
