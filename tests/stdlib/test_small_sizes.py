"""Sizes of 0 to 3 on every axis: every function of std.linalg and std.nn, on the CPU, a GPU, and
in code for a GPU on the machine that sees what is read outside of an array."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.sampling import few
from tests.stdlib.arrays import DTYPES

Array = np.ndarray[Any, np.dtype[Any]]
PLACES = ["cpu", "as sm_90a", "as sm_80", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = range(4)
BF16 = DTYPES["bf16"]


@cache
def loaded(name: str, place: str) -> Any:
    if place.startswith("as "):
        return tessera.load(name, target="cpu", arch_as=place[3:])
    return tessera.load(name, target="cuda" if place == "cuda" else "cpu")


def uniform(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(dtype)


def near(found: Any, want: Array, what: object, most: float = 1e-4) -> None:
    found = np.asarray(found).astype(np.float64)
    assert found.shape == want.shape, what
    assert np.allclose(found, want, rtol=most, atol=most, equal_nan=True), (what, found, want)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True, initial=-1e30))
    return e / e.sum(axis, keepdims=True)


def wide(x: Array) -> Array:
    return x.astype(np.float64)


def layernorm(x: Array, w: Array, b: Array) -> Array:
    if not x.shape[1]:
        return x
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def rmsnorm(x: Array, w: Array) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w if x.shape[1] else x


ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "softmax": (lambda s, x, w, b: s.softmax(x), lambda x, w, b: softmax(x, -1)),
    "softmax, axis 0": (lambda s, x, w, b: s.softmax(x, axis=0), lambda x, w, b: softmax(x, 0)),
    "log_softmax": (
        lambda s, x, w, b: s.log_softmax(x), lambda x, w, b: np.log(softmax(x, -1))
    ),
    "log_softmax, axis 0": (
        lambda s, x, w, b: s.log_softmax(x, axis=0), lambda x, w, b: np.log(softmax(x, 0))
    ),
    "layernorm": (lambda s, x, w, b: s.layernorm(x, w, b), layernorm),
    "rmsnorm": (lambda s, x, w, b: s.rmsnorm(x, w), lambda x, w, b: rmsnorm(x, w)),
    "transpose": (lambda s, x, w, b: s.transpose(x), lambda x, w, b: x.T),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.sample(1)
def test_rows(name: str, place: str) -> None:
    std = loaded("std.nn", place)
    call, want = ROWS[name]
    for m, n in product(SIZES, SIZES):
        x, w, b = uniform(m, n), uniform(n), uniform(n) + np.float32(1)
        near(call(std, x, w, b), want(wide(x), wide(w), wide(b)), (name, m, n))


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", PLACES)
def test_a_matrix_by_a_vector(place: str) -> None:
    std = loaded("std.linalg", place)
    for m, n in product(SIZES, SIZES):
        a, x = uniform(m, n), uniform(n)
        near(std.gemv(a, x), wide(a) @ wide(x), (m, n))


PRODUCTS: dict[str, Callable[..., tuple[Any, Array]]] = {
    "matmul": lambda s, a, b, c: (s.matmul(a, b), wide(a) @ wide(b)),
    "matmul, bf16": lambda s, a, b, c: (
        s.matmul(a.astype(BF16), b.astype(BF16), dtype="f32"),
        wide(a.astype(BF16)) @ wide(b.astype(BF16)),
    ),
    "matmul_tf32": lambda s, a, b, c: (s.matmul_tf32(a, b), wide(a) @ wide(b)),
    "matmul_f32x3": lambda s, a, b, c: (s.matmul_f32x3(a, b), wide(a) @ wide(b)),
    "addmm": lambda s, a, b, c: (
        s.addmm(c, a, b, alpha=2.0, beta=0.5), 2 * wide(a) @ wide(b) + 0.5 * wide(c)
    ),
    "linear": lambda s, a, b, c: (
        s.linear(a, np.ascontiguousarray(b.T), b.sum(0), activation="relu"),
        np.maximum(wide(a) @ wide(b) + wide(b).sum(0), 0),
    ),
    "matmul_f8": lambda s, a, b, c: (
        s.matmul_f8(a.astype(DTYPES["f8e4m3"]), b.astype(DTYPES["f8e4m3"]),
                    np.ones(a.shape[0], np.float32), np.ones(b.shape[1], np.float32)),
        wide(a.astype(DTYPES["f8e4m3"])) @ wide(b.astype(DTYPES["f8e4m3"])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.sample(1)
def test_products(name: str, place: str, whole: bool) -> None:
    std = loaded("std.linalg", place)
    for m, n, k in few(product(SIZES, SIZES, SIZES), 24, whole):
        found, want = PRODUCTS[name](std, uniform(m, k), uniform(k, n), uniform(m, n))
        near(found, want, (name, m, n, k), 1e-2 if name in ("matmul_tf32", "matmul_f8") else 1e-4)
