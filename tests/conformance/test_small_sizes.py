"""The kernels of the documents with sizes of 0 to 3 on every axis, also as code for GPUs on the
machine that sees what is read or written outside of an array."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.conformance.test_conformance import CASES, numpy_dtype, source_of

pytestmark = [
    pytest.mark.skipif(not CASES, reason="no conformance folder"),
    pytest.mark.filterwarnings("ignore:.*T0850"),  # many sizes are what is tested here
]
PLACES = ["cpu", "as sm_90a", "as sm_80", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [pytest.param("f32", marks=pytest.mark.slow), "bf16"]
Array = np.ndarray[Any, np.dtype[Any]]


def loaded(source: str, place: str, folder: Path) -> Any:
    file = folder / "case.tessera"
    file.write_text(source)
    if place.startswith("as "):
        return tessera.load(file, target="cpu", arch_as=place[3:])
    return tessera.load(file, target="cuda" if place == "cuda" else "cpu")


def uniform(dtype: str, *shape: int) -> Array:
    rng = np.random.default_rng(len(shape))
    return rng.uniform(-1, 1, shape).astype(np.float32).astype(numpy_dtype(dtype))


def near(found: Array, want: Array, dtype: str, what: object) -> None:
    assert found.shape == want.shape
    most = 1e-5 if dtype == "f32" else 3e-2
    assert np.allclose(found.astype(np.float64), want, rtol=most, atol=most), (what, found, want)


def wide(x: Array) -> Array:
    return x.astype(np.float64)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_vec_add(dtype: str, place: str, tmp_path: Path) -> None:
    kernel = loaded(source_of("vec_add"), place, tmp_path).vec_add
    for shape in [(n,) for n in range(4)] + list(product(range(4), range(4))):
        a, b = uniform(dtype, *shape), uniform(dtype, *shape)
        c = np.full(shape, np.nan, numpy_dtype(dtype))
        kernel(a, b, c)
        near(c, wide(a) + wide(b), dtype, shape)


def returned(kernel: Any, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    return kernel(a, b, c), wide(a) @ wide(b) + wide(c)


def added(kernel: Any, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    want = wide(a) @ wide(b) + wide(c)
    kernel(a, b, c)
    return c, want


def stored(kernel: Any, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    c[...] = np.nan
    kernel(a, b, c)
    return c, wide(a) @ wide(b)


PRODUCTS: dict[str, tuple[str, Callable[..., tuple[Array, Array]]]] = {
    "matmul_schedule": ("matmul", returned),
    "tiled_matmul": ("tiled_matmul", added),
    "pipeline_prefetch_mma": ("gemm", stored),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", PRODUCTS)
@pytest.mark.slow
def test_products(case: str, dtype: str, place: str, tmp_path: Path) -> None:
    name, call = PRODUCTS[case]
    kernel = getattr(loaded(source_of(case), place, tmp_path), name)
    for m, n, k in product(range(4), range(4), range(4)):
        given = uniform(dtype, m, k), uniform(dtype, k, n), uniform(dtype, m, n)
        near(*call(kernel, *given), dtype, (case, m, n, k))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.slow
def test_pipelined_attention(dtype: str, place: str, tmp_path: Path) -> None:
    source = source_of("pipelined_attention").replace("Q, K, V, block", "Q, K, V, O, block")
    source = source.rstrip("\n") + "\n        O[start:start+block] = out\n"
    kernel = loaded(source, place, tmp_path).pipelined_attention
    empty = [uniform(dtype, 3, 0)] * 4
    with pytest.raises(tessera.TesseraError, match="T0608"):  # shared memory for nothing
        kernel(*empty)
    for rows, width in product(range(4), range(1, 4)):
        q, k, v = (uniform(dtype, rows, width) for _ in range(3))
        out = np.full((rows, width), np.nan, numpy_dtype(dtype))
        kernel(q, k, v, out)
        scores = wide(q) @ wide(k).T
        e = np.exp(scores - scores.max(1, keepdims=True, initial=-1e30))
        near(out, e / e.sum(1, keepdims=True) @ wide(v), dtype, (rows, width))
