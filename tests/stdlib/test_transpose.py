"""std.transpose against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import TARGETS, module, numbers, same, some, views

SIZES = (0, 1, 2, 31, 32, 33, 63, 65, 130)


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.transpose", str(request.param))


@pytest.mark.parametrize("dtype", some("bool", "i8", "u16", "i64", "bf16", "f8e4m3", "f32"))
@pytest.mark.sample(1)
def test_every_size(std: Any, dtype: str) -> None:
    for m in SIZES:
        for n in SIZES:
            x = numbers(dtype, (m, n), seed=m)
            found = std.transpose(x)
            assert found.dtype == x.dtype
            same(found, x.T)


def test_long_rows_and_columns(std: Any) -> None:
    for shape in ((3, 70001), (70001, 3), (1, 4097), (515, 1030)):
        x = numbers("f32", shape)
        same(std.transpose(x), x.T)


@pytest.mark.parametrize("dtype", some("bool", "i8", "i64", "bf16", "f32"))
@pytest.mark.sample(1)
def test_in_units(std: Any, dtype: str) -> None:
    """The way of large arrays, with tiles that the edges cut."""
    width = 16 // numbers(dtype, (1,)).itemsize
    for p, q in ((1, 1), (8, 8), (9, 17), (24, 5)):
        x = numbers(dtype, (p * width, q * width))
        out = np.zeros(x.T.shape, x.dtype)
        given = x.reshape(p * width, q, width), out.reshape(q * width, p, width)
        units = 16 if width == 2 else 8
        std._transpose_units(*given, V=width, UR=units, UC=units)
        same(out, x.T)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bool", "i8", "i64", "bf16", "f32"])
def test_large(dtype: str) -> None:
    std = module("std.transpose", "cuda")
    for shape in ((2048, 2048), (4096, 2064), (2064, 4112)):
        x = numbers(dtype, shape)
        same(std.transpose(x), x.T)


@pytest.mark.parametrize("dtype", ["f32", "i64"])
@pytest.mark.sample(1)
def test_layouts(placed: Any, dtype: str) -> None:
    for x in views(numbers(dtype, (67, 90))).values():
        same(placed.transpose(x), x.T)


def test_into_an_array_that_is_there(std: Any) -> None:
    x = numbers("i32", (40, 50))
    out = np.zeros((50, 40), np.int32)
    std.transpose_into(x, out)
    same(out, x.T)


@pytest.mark.parametrize("call", [
    "transpose(row)", "transpose()", "transpose(x, x)", "transpose(None)",
    "transpose_into(x, x)", "transpose_into(x, other)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {"x": np.ones((2, 3), np.float32), "row": np.ones(3, np.float32),
             "other": np.ones((3, 2), np.float64)}  # fmt: skip
    with pytest.raises(tessera.TesseraError):
        eval(f"std.{call}", {"std": std, **names})
