"""std.conv against sums in float64: every argument of a layout, one to three axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES, EPSILON, TARGETS, module, near, numbers, wide
from tests.stdlib.assembled import ARCHS, assembles, needs_ptxas

Array = np.ndarray[Any, np.dtype[Any]]
FLOATS: list[Any] = [
    "f32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("f64", "f16", "bf16", "f8e4m3")),
]  # fmt: skip


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.conv", str(request.param))


def spread(x: Array, weight: Array, stride: Any, dilation: Any, groups: int) -> Array:
    """Every product where a transposed convolution adds it, nothing cut off."""
    (b, ci), n, k = x.shape[:2], x.shape[2:], weight.shape[2:]
    size = [(m - 1) * s + e * (j - 1) + 1
            for m, s, e, j in zip(n, stride, dilation, k, strict=True)]  # fmt: skip
    out = np.zeros((b, groups, weight.shape[1], *size))
    parts = x.reshape(b, groups, ci // groups, *n)
    weights = weight.reshape(groups, ci // groups, *weight.shape[1:])
    for at in np.ndindex(*k):
        place = tuple(slice(e * a, e * a + (m - 1) * s + 1 if m else e * a, s)
                      for a, e, m, s in zip(at, dilation, n, stride, strict=True))  # fmt: skip
        f = weights[(slice(None),) * 3 + at]
        out[(slice(None),) * 3 + place] += np.einsum("gio,bgi...->bgo...", f, parts)
    return out.reshape(b, groups * weight.shape[1], *size)


def met(x: Array, weight: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """A convolution, a place of the kernel after the other."""
    (b, ci), k, co = x.shape[:2], weight.shape[2:], weight.shape[0]
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    size = [(m - e * (j - 1) - 1) // s + 1
            for m, s, e, j in zip(x.shape[2:], stride, dilation, k, strict=True)]  # fmt: skip
    out = np.zeros((b, groups, co // groups, *size))
    parts = x.reshape(b, groups, ci // groups, *x.shape[2:])
    weights = weight.reshape(groups, co // groups, *weight.shape[1:])
    for at in np.ndindex(*k):
        place = tuple(slice(e * a, e * a + (m - 1) * s + 1, s)
                      for a, e, m, s in zip(at, dilation, size, stride, strict=True))  # fmt: skip
        f, part = weights[(slice(None),) * 3 + at], parts[(slice(None),) * 3 + place]
        out += np.einsum("goi,bgi...->bgo...", f, part)
    return out.reshape(b, co, *size)


def allowed(dtype: str, terms: int, size: Array, exact: Array) -> Array:
    """The error that the page states, and the rounding to the dtype of the result."""
    e = EPSILON["f64" if dtype == "f64" else "f32"]
    rounded = 0.0 if dtype in ("f32", "f64") else EPSILON[dtype] * 1.01
    least = {"f16": 2.0**-25, "f8e4m3": 2.0**-10}.get(dtype, 1e-40)
    # the reference adds in f64 itself
    return (terms + 1) * e * size * (4 if dtype == "f64" else 1) + rounded * np.abs(exact) + least


def drawn(r: np.random.Generator, rank: int, row: int) -> dict[str, Any]:
    """Arguments at random; some are a number for all axes."""

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(v) for v in r.integers(low, high, rank))

    groups = int(r.choice([1, 1, 2, 3]))
    found = {
        "groups": groups, "batch": int(r.choice([0, 1, 2], p=[0.1, 0.5, 0.4])),
        "ci": groups * int(r.choice([1, 2, 5, 33])), "co": groups * int(r.choice([1, 3, 37])),
        "k": each(1, 5), "stride": each(1, 4), "padding": each(0, 4), "dilation": each(1, 4),
        "n": (*each(1, 6)[1:], int(r.integers(1, row))),
    }  # fmt: skip
    reach = [e * (k - 1) + 1 for e, k in zip(found["dilation"], found["k"], strict=True)]
    found["n"] = tuple(
        max(n, m - 2 * p) for n, m, p in zip(found["n"], reach, found["padding"], strict=True)
    )
    return found


def operands(dtype: str, shapes: list[Any], seed: int) -> list[Array]:
    made = [numbers(dtype, s, seed=seed + i) for i, s in enumerate(shapes)]
    if dtype.startswith("f8"):
        return [(wide(x) / 4).astype(x.dtype) for x in made]
    return made


def check(std: Any, dtype: str, rank: int, a: dict[str, Any], seed: int) -> None:
    shapes = [(a["batch"], a["ci"], *a["n"]), (a["co"], a["ci"] // a["groups"], *a["k"]), a["co"]]
    x, f, bias = operands(dtype, shapes, seed)
    given = (a["stride"], a["padding"], a["dilation"], a["groups"])
    names = dict(zip(("stride", "padding", "dilation", "groups"), given, strict=True))
    found = np.asarray(getattr(std, f"conv{rank}d")(x, f, bias, **names))
    last = wide(bias).reshape(-1, *[1] * rank)
    exact = met(wide(x), wide(f), *given) + last
    size = met(np.abs(wide(x)), np.abs(wide(f)), *given) + np.abs(last)
    assert found.dtype == DTYPES[dtype]
    terms = a["ci"] // a["groups"] * int(np.prod(a["k"]))
    near(found, exact, allowed(dtype, terms, size, exact))


def check_transposed(std: Any, dtype: str, rank: int, a: dict[str, Any], seed: int) -> None:
    shapes = [(a["batch"], a["ci"], *a["n"]), (a["ci"], a["co"] // a["groups"], *a["k"]), a["co"]]
    x, f, bias = operands(dtype, shapes, seed)
    more = tuple(seed % s for s in a["stride"])
    of_axes = zip(a["n"], a["stride"], a["dilation"], a["k"], strict=True)
    whole = [(n - 1) * s + e * (k - 1) + 1 for n, s, e, k in of_axes]
    padding = tuple(min(p, w // 2) for p, w in zip(a["padding"], whole, strict=True))
    names = {"stride": a["stride"], "padding": padding, "output_padding": more,
             "groups": a["groups"], "dilation": a["dilation"]}  # fmt: skip
    found = np.asarray(getattr(std, f"conv_transpose{rank}d")(x, f, bias, **names))
    last = wide(bias).reshape(-1, *[1] * rank)

    def cut(x: Array, f: Array) -> Array:
        y = spread(x, f, a["stride"], a["dilation"], a["groups"])
        y = np.pad(y, [(0, 0), (0, 0), *((0, m) for m in more)])
        return y[(..., *(slice(p, w - p + m)
                         for p, w, m in zip(padding, whole, more, strict=True)))]  # fmt: skip

    exact = cut(wide(x), wide(f)) + last
    size = cut(np.abs(wide(x)), np.abs(wide(f))) + np.abs(last)
    assert found.dtype == DTYPES[dtype]
    terms = a["ci"] // a["groups"] * int(np.prod(a["k"]))
    near(found, exact, allowed(dtype, terms, size, exact))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("how", [check, check_transposed])
@pytest.mark.sample(1)
def test_convolutions_at_random(std: Any, how: Any, rank: int, dtype: str) -> None:
    r = np.random.default_rng(rank)
    for seed in range(5):
        how(std, dtype, rank, drawn(r, rank, 150 if seed % 2 else 20), seed)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("how", [check, check_transposed])
def test_many_convolutions_at_random(std: Any, how: Any, rank: int) -> None:
    r = np.random.default_rng(10 + rank)
    for seed in range(20):
        how(std, "f32", rank, drawn(r, rank, 200), seed)


X = "{T}[bg, ci, d, h, w]"
STEPS = "SW=2, A={A}"
KERNELS = {
    "_convolve": f"x: {X}, f: {{T}}[g, co, ci, kd, kh, kw], bias: {{T}}[g, co],"
                 f" y: mut {{T}}[bg, co, od, oh, ow], {STEPS}",
    "_transposed": f"x: {X}, f: {{T}}[g, ci, co, kd, kh, kw], bias: {{T}}[g, co],"
                   f" y: mut {{T}}[bg, co, od, oh, n, 2], {STEPS}, CI={{CI}}",
}  # fmt: skip


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.slow
def test_ptxas_takes_it(kernel: str, dtype: str, arch: str) -> None:
    line = {"f32": 32, "f64": 32, "f8e4m3": 128}.get(dtype, 64)
    form = KERNELS[kernel].format(T=dtype, A="f64" if dtype == "f64" else "f32", CI=line)
    assembles("conv", kernel, form, arch, spills=dtype not in ("f32", "f64"))


def test_no_bias_and_one_number_for_all_axes(std: Any) -> None:
    x, f = numbers("f32", (2, 3, 9, 9)), numbers("f32", (4, 3, 3, 3), seed=1)
    exact = met(wide(x), wide(f), (2, 2), (1, 1), (2, 2), 1)
    near(std.conv2d(x, f, stride=2, padding=1, dilation=2), exact, 1e-4)
    near(std.conv_transpose2d(x, f[:3], stride=3),
         spread(wide(x), wide(f[:3]), (3, 3), (1, 1), 1), 1e-4)  # fmt: skip


@pytest.mark.slow
def test_layouts(placed: Any) -> None:
    """Arrays in steps, backwards and turned round: the same numbers."""
    x, f = numbers("f32", (4, 6, 8, 10)), numbers("f32", (4, 6, 4, 4), seed=1)
    for a, b in ((x[:, ::2], f[:, ::2]), (x[:, :, ::-1], f[..., ::-1]), (x.swapaxes(2, 3), f)):
        near(placed.conv2d(a, b, padding=2), met(wide(a), wide(b), (1, 1), (2, 2), (1, 1), 1), 1e-4)


@pytest.mark.parametrize(("call", "said"), [
    ("conv1d(x, x)", "has a batch, channels and 1 more axes, not 4"),
    ("conv2d(x, x[0])", "the weights have 4 axes, not 3"),
    ("conv2d(x, f)", "meet 3 input channels of a group, and the input has 2 in 1"),
    ("conv2d(x, x, groups=3)", "2 input channels are not 3 equal groups"),
    ("conv2d(x, x[:1, :1], groups=2)", "1 output channels are not 2 equal groups"),
    ("conv2d(x, x, groups=0)", "groups is at least 1, not 0"),
    ("conv2d(x, x, padding=-1)", "padding is at least 0, not -1"),
    ("conv2d(x, x, stride=0)", "stride is at least 1, not 0"),
    ("conv2d(x, x, dilation=(1, 2, 3))", "dilation is a number or a tuple of 2"),
    ("conv2d(x, x, dilation=2)", "the kernel reaches over 7 elements of an axis that has 4"),
    ("conv2d(x, x, bias)", "one number for each of 2 channels, not shape (3,)"),
    ("conv2d(x, x.astype('f8'))", "an input of f32 with weights of f64"),
    ("conv2d(x.astype('i4'), x.astype('i4'))", "a convolution takes floats, not i32"),
    ("conv2d(x, x[:, :, :0])", "have no places"),
    ("conv_transpose2d(x, f)", "meet 3 input channels, and the input has 2"),
    ("conv_transpose2d(x, x, output_padding=1)", "output_padding 1 is less than the stride, 1"),
    ("conv_transpose2d(x, x, padding=9)", "pad less"),
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str, said: str) -> None:
    names = {"x": np.ones((2, 2, 4, 4), np.float32), "f": np.ones((3, 3, 3, 3), np.float32),
             "bias": np.ones(3, np.float32)}  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert [d.code for d in caught.value.diagnostics] == ["T0805"]
    assert said in str(caught.value)
