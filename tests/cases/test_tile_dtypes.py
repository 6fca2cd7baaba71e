"""Products of every dtype, in every order of their operands, from the source to the numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16), "i8": np.dtype(np.int8),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}  # fmt: skip
SIZES = [(130, 200, 272), (64, 72, 33)]
ORDERS = [(1, 1), (1, 0), (0, 1), (0, 0)]  # of a and b: the axis each is contiguous along

SOURCE = """
@op.kernel
def wide(a, b):
    return (a @ b).to(f32)

@op.kernel
def whole(a, b):
    return a @ b

@op.kernel
def tf32(a: f32[m, k], b: f32[k, n]):
    return op.matmul(a, b, precision="tf32")

@op.kernel
def scaled(a, b, s: f32[m], t: f32[n]):
    return ((a @ b) * s[:, None] * t[None, :]).to(f32)

@op.kernel
def weights(a, b, t: f32[n]):
    return (a @ (b.to(f32) * t[None, :]).to(bf16)).to(f32)
"""


@pytest.fixture(scope="module", params=TARGETS)
def kernels(request: pytest.FixtureRequest) -> Any:
    return tessera.compile(SOURCE, target=str(request.param))


def numbers(dtype: str, rows: int, columns: int, along: int, seed: int) -> Array:
    random = np.random.default_rng(seed)
    shape = (rows, columns) if along else (columns, rows)
    made = random.integers(-99, 99, shape) if dtype == "i8" else random.uniform(-1, 1, shape)
    return made.astype(DTYPES[dtype]) if along else made.astype(DTYPES[dtype]).T


def near(got: Array, want: Array, rtol: float) -> None:
    assert got.shape == want.shape
    error = np.linalg.norm(got.astype(np.float64) - want)
    assert error <= rtol * max(float(np.linalg.norm(want)), 1e-30), error


CASES = [
    ("wide", "f8e4m3", "f8e4m3", 2e-3), ("wide", "f8e4m3", "f8e5m2", 2e-3),
    ("wide", "f8e5m2", "f8e4m3", 2e-3), ("whole", "i8", "i8", 0.0), ("tf32", "f32", "f32", 2e-3),
    ("whole", "f32", "f32", 1e-5), ("whole", "f64", "f64", 1e-13),
]  # fmt: skip


@pytest.mark.parametrize(("name", "left", "right", "rtol"), CASES)
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.sample(1)
def test_products(
    kernels: Any, name: str, left: str, right: str, rtol: float, orders: tuple[int, int]
) -> None:
    for m, n, k in SIZES:
        a, b = numbers(left, m, k, orders[0], 1), numbers(right, k, n, orders[1], 2)
        near(getattr(kernels, name)(a, b), a.astype(np.float64) @ b.astype(np.float64), rtol)


@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.sample(1)
def test_scales_of_rows_and_columns(kernels: Any, orders: tuple[int, int]) -> None:
    for m, n, k in SIZES:
        a, b = numbers("f8e4m3", m, k, orders[0], 1), numbers("f8e5m2", k, n, orders[1], 2)
        s = np.linspace(0.5, 2, m, dtype=np.float32)
        t = np.linspace(2, 0.5, n, dtype=np.float32)
        want = (a.astype(np.float64) @ b.astype(np.float64)) * s[:, None] * t[None, :]
        near(kernels.scaled(a, b, s, t), want, 2e-3)


@pytest.mark.parametrize("pair", [("bf16", "f32"), ("f32", "f16")])
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.sample(1)
def test_an_operand_is_rounded_to_the_other(
    kernels: Any, pair: tuple[str, str], orders: tuple[int, int]
) -> None:
    narrow = DTYPES[next(d for d in pair if d != "f32")]
    for m, n, k in SIZES:
        a, b = numbers(pair[0], m, k, orders[0], 1), numbers(pair[1], k, n, orders[1], 2)
        want = a.astype(narrow).astype(np.float64) @ b.astype(narrow).astype(np.float64)
        near(kernels.wide(a, b), want, 1e-5)


@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.sample(1)
def test_weights_of_eight_bits(kernels: Any, orders: tuple[int, int]) -> None:
    for m, n, k in SIZES:
        a, b = numbers("bf16", m, k, orders[0], 1), numbers("i8", k, n, orders[1], 2)
        t = np.linspace(0.01, 0.02, n, dtype=np.float32)
        rounded = (b.astype(np.float32) * t).astype(DTYPES["bf16"])
        want = a.astype(np.float64) @ rounded.astype(np.float64)
        near(kernels.weights(a, b, t), want, 1e-5)
