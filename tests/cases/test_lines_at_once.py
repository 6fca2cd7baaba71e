"""Reductions along an axis that is not the last: a CPU takes several lines into one result in a
pass, and what is left over one by one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera

Array = np.ndarray[Any, np.dtype[Any]]
SOURCE = """
@op.kernel
def total(x: T[m, n], y: mut T[n]):
    y[:] = op.sum(x, axis=0)

@op.kernel
def made(x: T[m, n], y: mut T[n]):
    y[:] = op.sum(op.abs(x) * 2 - x, axis=0)

@op.kernel
def most(x: T[m, n], y: mut T[n]):
    y[:] = op.max(x, axis=0)

@op.kernel
def middle(x: T[b, m, n], y: mut T[b, n]):
    y[:, :] = op.sum(x, axis=1)

@op.kernel
def steps(x: T[m, n], y: mut T[n]):
    for i, j in op.tile_range(m, n, step=(100, 64)):
        y[j:j+64] += op.sum(x[i:i+100, j:j+64], axis=0)
"""


@pytest.fixture(scope="module", params=["f32", "f64", "i32", "bf16"])
def kernels(request: pytest.FixtureRequest) -> tuple[Any, str]:
    dtype = str(request.param)
    made = tessera.compile(SOURCE.replace("T[", f"{dtype}["), target="cpu")
    return made, dtype


def array(dtype: str, shape: tuple[int, ...]) -> Array:
    names: dict[str, Any] = {"f32": "f4", "f64": "f8", "i32": "i4", "bf16": ml_dtypes.bfloat16}
    return np.random.default_rng(shape[-2]).integers(-2, 3, shape).astype(names[dtype])


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 71, 129, 300])
@pytest.mark.sample(1)
def test_lines_left_over(kernels: tuple[Any, str], rows: int) -> None:
    k, dtype = kernels
    for columns in (1, 3, 64, 200):
        x = array(dtype, (rows, columns))
        wide = x.astype(np.float64)
        out = np.zeros(columns, x.dtype)
        k.total(x, out)
        np.testing.assert_array_equal(out, wide.sum(0).astype(x.dtype))
        k.made(x, out)
        np.testing.assert_array_equal(out, (np.abs(wide) * 2 - wide).sum(0).astype(x.dtype))
        k.most(x, out)
        np.testing.assert_array_equal(out, wide.max(0).astype(x.dtype))
        out[:] = 0
        k.steps(x, out)
        if dtype != "bf16":  # whose steps are rounded
            np.testing.assert_array_equal(out, wide.sum(0).astype(x.dtype))
    x = array(dtype, (3, rows, 40))
    both = np.zeros((3, 40), x.dtype)
    k.middle(x, both)
    np.testing.assert_array_equal(both, x.astype(np.float64).sum(1).astype(x.dtype))


@pytest.mark.sample(1)
def test_not_a_number_in_any_line() -> None:
    k = tessera.compile(SOURCE.replace("T[", "f32["), target="cpu")
    for at in range(19):
        x = np.zeros((19, 5), np.float32)
        x[at, 2], x[at, 3] = np.nan, -0.0
        out = np.zeros(5, np.float32)
        k.most(x, out)
        np.testing.assert_array_equal(out, [0, 0, np.nan, 0, 0])
        k.total(x, out)
        np.testing.assert_array_equal(out, [0, 0, np.nan, 0, 0])
