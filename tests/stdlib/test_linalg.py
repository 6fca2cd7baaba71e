"""std.linalg against NumPy in float64: every dtype, sizes around tiles, every layout."""

from __future__ import annotations

from itertools import product
from math import erf
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.sampling import few
from tests.stdlib.arrays import DTYPES, EPSILON, TARGETS, module, near, same, wide

Array = np.ndarray[Any, np.dtype[Any]]
Sizes = list[tuple[int, int, int]]
SLOW = pytest.mark.slow
PAIRS: list[Any] = [
    ("f32", "f32", "f32"), ("bf16", "bf16", "bf16"), ("f32", "bf16", "bf16"),
    ("f8e4m3", "f8e5m2", "bf16"),
    *(pytest.param(*pair, marks=SLOW) for pair in (
        ("f64", "f64", "f64"), ("f16", "f16", "f16"), ("f16", "f32", "f16"),
        ("f8e4m3", "f8e4m3", "bf16"), ("f8e5m2", "f8e4m3", "bf16"), ("f8e5m2", "f8e5m2", "bf16"),
    )),
]  # fmt: skip
FLOATS: list[Any] = ["f32", "bf16", *(pytest.param(d, marks=SLOW) for d in ("f64", "f16"))]
SMALLEST = {"f16": 2.0**-25, "f8e4m3": 2.0**-10, "f8e5m2": 2.0**-17}
"""Half the step of subnormal numbers, below which no rounding is relative."""
EDGES = (0, 1, 2, 3, 31, 32, 33, 67, 127, 128, 129)
SIZES = [
    (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (2, 3, 2), (3, 2, 1), (1, 257, 3), (31, 32, 33),
    (32, 32, 32), (33, 31, 67), (63, 64, 65), (64, 65, 63), (127, 128, 129), (128, 131, 128),
    (101, 7, 211), (5, 300, 1),
]  # fmt: skip


@pytest.fixture(params=["some", pytest.param("all", marks=SLOW)])
def sizes(request: pytest.FixtureRequest) -> Sizes:
    """Every third each time; all of them are slow."""
    return SIZES if request.param == "all" else SIZES[::3]


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.linalg", str(request.param))


def uniform(dtype: str, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(DTYPES[dtype])


def bound(a: Array, b: Array, out: str) -> Array:
    """What the page promises of a sum of products, and its one rounding to ``out``."""
    short = 2.0**-11 if a.dtype.itemsize == 1 else 0.0  # a unit's sums of uniform f8 numbers
    a, b = wide(a), wide(b)
    exact = EPSILON["f64" if out == "f64" else "f32"]
    rounding = 0.0 if out in ("f32", "f64") else EPSILON[out]
    terms = max(1, a.shape[-1])
    sums = np.abs(a) @ np.abs(b)
    result = np.abs(a @ b) + terms * exact * sums
    rounded = np.maximum(rounding * result, SMALLEST.get(out, 1e-45))
    return (short + terms * exact) * sums + rounded


def as_product(a: Array, b: Array) -> tuple[Array, Array]:
    """An f32 operand beside 16 bits is rounded to them."""
    if a.dtype == np.float32 and b.dtype.itemsize < 4:
        a = a.astype(b.dtype)
    if b.dtype == np.float32 and a.dtype.itemsize < 4:
        b = b.astype(a.dtype)
    return a, b


@pytest.mark.parametrize(("left", "right", "out"), PAIRS)
@pytest.mark.sample(1)
def test_every_dtype_and_size(std: Any, left: str, right: str, out: str, sizes: Sizes) -> None:
    for m, n, k in sizes:
        a, b = uniform(left, m, k, seed=m), uniform(right, k, n, seed=n + 1)
        found = std.matmul(a, b)
        assert found.dtype == DTYPES[out]
        x, y = as_product(a, b)
        near(found, wide(x) @ wide(y), bound(x, y, out))
        if out not in ("f32", "f64"):
            near(std.matmul(a, b, dtype="f32"), wide(x) @ wide(y), bound(x, y, "f32"))


def test_bytes_are_exact(std: Any, sizes: Sizes) -> None:
    r = np.random.default_rng(0)
    for m, n, k in sizes:
        a = r.integers(-128, 128, (m, k)).astype(np.int8)
        b = r.integers(-128, 128, (k, n)).astype(np.int8)
        same(std.matmul(a, b), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.sample(1)
def test_edges_along_each_axis(std: Any, axis: int) -> None:
    for size in EDGES:
        m, n, k = (size if i == axis else 40 for i in range(3))
        a, b = uniform("f32", m, k), uniform("f32", k, n, seed=1)
        near(std.matmul(a, b), wide(a) @ wide(b), bound(a, b, "f32"))


def layouts(dtype: str, m: int, n: int, seed: int) -> dict[str, Array]:
    """Matrices of one shape, laid out otherwise."""
    base = uniform(dtype, 2 * m + 2, 2 * n + 2, seed=seed)
    return {
        "rows": base[:m, :n].copy(),
        "columns": np.asfortranarray(base[:m, :n]),
        "part": base[1 : m + 1, 1 : n + 1],
        "stepped": base[: 2 * m : 2, : 2 * n : 2],
        "stepped columns": base[: 2 * m : 2, : 2 * n : 2].T.copy().T,
        "reversed": base[m - 1 :: -1, n - 1 :: -1] if m and n else base[:m, :n],
        "one row": np.broadcast_to(base[0, :n], (m, n)),
        "one column": np.broadcast_to(base[:m, :1], (m, n)),
        "one number": np.broadcast_to(base[0, 0], (m, n)),
    }


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.sample(1)
def test_every_layout_with_every_layout(placed: Any, dtype: str, whole: bool) -> None:
    pairs = product(layouts(dtype, 33, 37, 1).values(), layouts(dtype, 37, 35, 2).values())
    for a, b in few(pairs, 8, whole):
        near(placed.matmul(a, b), wide(a) @ wide(b), bound(a, b, dtype))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (0,), (1, 1)])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.sample(2)
def test_batches(std: Any, dtype: str, shape: tuple[int, ...]) -> None:
    a, b = uniform(dtype, *shape, 33, 17), uniform(dtype, *shape, 17, 5, seed=1)
    near(std.matmul(a, b), wide(a) @ wide(b), bound(a, b, dtype))
    swapped = np.swapaxes(np.swapaxes(b, -1, -2).copy(), -1, -2)
    near(std.matmul(a, swapped), wide(a) @ wide(b), bound(a, b, dtype))


def test_odd_and_long(std: Any) -> None:
    for m, n, k in ((257, 263, 4095), (4097, 3, 5), (3, 4097, 5)):
        a, b = uniform("f32", m, k), uniform("f32", k, n, seed=1)
        near(std.matmul(a, b), wide(a) @ wide(b), bound(a, b, "f32"))


def test_tf32(std: Any, sizes: Sizes) -> None:
    for m, n, k in sizes:
        a, b = uniform("f32", m, k), uniform("f32", k, n, seed=1)
        near(std.matmul_tf32(a, b), wide(a) @ wide(b), 2**-9 * (np.abs(a) @ np.abs(b)) + 1e-45)


def test_f32x3(std: Any, sizes: Sizes) -> None:
    for m, n, k in sizes:
        a, b = uniform("f32", m, k), uniform("f32", k, n, seed=1)
        left_out = 2**-21 * (np.abs(a) @ np.abs(b))
        near(std.matmul_f32x3(a, b), wide(a) @ wide(b), bound(a, b, "f32") + left_out)


@pytest.mark.parametrize("right", ["f8e4m3", "f8e5m2"])
@pytest.mark.sample(1)
def test_scales(std: Any, right: str, sizes: Sizes) -> None:
    for m, n, k in sizes:
        a, b = uniform("f8e4m3", m, k), uniform(right, k, n, seed=1)
        rows, columns = uniform("f32", m, seed=2), uniform("f32", n, seed=3)
        scale = wide(rows)[:, None] * wide(columns)[None, :]
        want = (wide(a) @ wide(b)) * scale
        error = bound(a, b, "bf16") * np.abs(scale) + np.abs(want) * 2.0**-22
        near(std.matmul_f8(a, b, rows, columns), want, error)
        exact = bound(a, b, "f32") * np.abs(scale) + np.abs(want) * 2.0**-22
        near(std.matmul_f8(a, b, rows, columns, dtype="f32"), want, exact)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.sample(1)
def test_sum_with_a_matrix(std: Any, dtype: str, sizes: Sizes) -> None:
    for m, n, k in sizes:
        a, b = uniform(dtype, m, k), uniform(dtype, k, n, seed=1)
        c = uniform(dtype, m, n, seed=2)
        for alpha, beta in ((1.0, 1.0), (0.5, -2.0), (1.0, 0.0)):
            want = alpha * (wide(a) @ wide(b)) + beta * wide(c)
            error = bound(a, b, dtype) + 4 * EPSILON[dtype] * (np.abs(want) + 2 * np.abs(wide(c)))
            near(std.addmm(c, a, b, alpha, beta), want, error)


def gelu(z: Array) -> Array:
    return z * 0.5 * (1 + np.vectorize(erf, otypes=[float])(z / 2**0.5))


def silu(z: Array) -> Array:
    return z / (1 + np.exp(-z))


def relu(z: Array) -> Array:
    return np.maximum(z, 0)


def nothing(z: Array) -> Array:
    return z


ACTIVATIONS = {"none": nothing, "relu": relu, "gelu": gelu, "silu": silu}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("how", sorted(ACTIVATIONS))
@pytest.mark.sample(1)
def test_layers(std: Any, how: str, dtype: str, sizes: Sizes) -> None:
    for m, n, k in sizes:
        x, w = uniform(dtype, m, k), uniform(dtype, n, k, seed=1)
        bias = uniform(dtype, n, seed=2)
        z = wide(x) @ wide(w).T + wide(bias)
        want = ACTIVATIONS[how](z)
        error = 1.2 * bound(x, w.T, dtype) + 8 * EPSILON[dtype] * (np.abs(z) + 1)
        found = std.linear(x, w, bias, activation=how)
        assert found.dtype == x.dtype
        near(found, want, error)


def test_a_layer_of_narrow_floats_in_f32(std: Any) -> None:
    x, w, bias = uniform("f8e4m3", 9, 40), uniform("f8e4m3", 12, 40, seed=1), uniform("f32", 12)
    want = np.maximum(wide(x) @ wide(w).T + wide(bias), 0)
    found = std.linear(x, w, bias, activation="relu", dtype="f32")
    near(found, want, bound(x, w.T, "f32") + 4 * EPSILON["f32"])


@pytest.mark.parametrize("dtype", [*FLOATS, "f8e4m3"])
@pytest.mark.slow
def test_matrix_times_vector(std: Any, dtype: str, whole: bool) -> None:
    for m, k in few(product((0, 1, 7, 8, 9, 19), (0, 1, 3, 127, 128, 129, 9001)), 11, whole):
        a, x = uniform(dtype, m, k), uniform(dtype, k, seed=1)
        error = bound(a, x[:, None], dtype)[:, 0]
        near(std.gemv(a, x), wide(a) @ wide(x), error)
    a, x = uniform(dtype, 40, 300), uniform(dtype, 300, seed=1)
    for view in (np.asfortranarray(a), np.broadcast_to(a[:1], a.shape), a[::-1, ::-1]):
        near(std.gemv(view, x), wide(view) @ wide(x), bound(view, x[:, None], dtype)[:, 0])


def test_infinities_and_nan_go_through(std: Any) -> None:
    a, b = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    a[1, 2], b[0, 3] = np.inf, np.nan
    same(np.isnan(std.matmul(a, b)), np.isnan(a @ b))
    assert np.isinf(std.matmul(a, b)[1, 0])


@pytest.mark.parametrize("call", [
    "matmul(x, x)", "matmul(x, v)", "matmul(i, x.T)", "matmul(x, y64)",
    "matmul(x, None)", "gemv(x, x)", "gemv(x, v)", "linear(x, x, v, activation='tanh')",
    "linear(x, x, x[0])", "linear(x, x.T, v)", "addmm(x, x, x.T)", "matmul(batch, x)",
    "matmul_f8(x, x.T, x, x)",
])  # fmt: skip
@pytest.mark.sample(8)
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {
        "x": np.ones((2, 3), np.float32), "v": np.ones(2, np.float32), "batch": np.ones((4, 3, 2)),
        "i": np.ones((2, 3), np.int32), "y64": np.ones((3, 2)),
    }  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)
