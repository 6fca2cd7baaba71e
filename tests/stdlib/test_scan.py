"""std.scan against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import (
    DTYPES,
    EPSILON,
    FLOATS,
    INTEGERS,
    SIZES,
    TARGETS,
    module,
    near,
    numbers,
    one_thread,
    same,
    some,
    views,
    wide,
)

MOST = some("bool", "i8", "u32", "i64", "bf16", "f32")


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.scan", str(request.param))


def check_sums(found: Any, x: Any, dtype: str, exclusive: bool) -> None:
    """Integers wrap; a float is off by a rounding for each of the additions on its way."""
    acc = "i32" if dtype in ("bool", "i8", "i16") else "u32" if dtype in ("u8", "u16") else dtype
    acc = "f32" if dtype in FLOATS and dtype != "f64" else acc
    assert found.dtype == DTYPES[acc]

    def scanned(values: Any) -> Any:
        sums = np.cumsum(values)
        return sums - values if exclusive else sums

    if acc in INTEGERS:
        whole = scanned(x.astype(np.uint64 if acc[0] == "u" else np.int64))
        same(found, whole.astype(DTYPES[acc]))
    else:
        near(found, scanned(wide(x)), EPSILON[acc] * 64 * scanned(np.abs(wide(x))) + 1e-300)


@pytest.mark.parametrize("dtype", MOST)
def test_every_size(std: Any, dtype: str) -> None:
    for n in (*SIZES, 2048, 2048 * 33 + 5):
        x = numbers(dtype, n, seed=n)
        check_sums(std.inclusive(x), x, dtype, exclusive=False)
        check_sums(std.exclusive(x), x, dtype, exclusive=True)
        for name, ufunc in (("running_max", np.maximum), ("running_min", np.minimum)):
            found = getattr(std, name)(x)
            assert found.dtype == DTYPES[dtype]
            same(found, ufunc.accumulate(wide(x)))


def test_more_than_two_levels(std: Any) -> None:
    n = 2048 * 2048 + 3
    x = np.ones(n, np.int8)
    same(std.inclusive(x), np.arange(1, n + 1, dtype=np.int32))


def test_layouts(std: Any) -> None:
    for x in views(numbers("i64", 5000)).values():
        check_sums(std.inclusive(x), x, "i64", exclusive=False)
    x = numbers("f32", (40, 30))[:, 3]
    same(std.running_max(x), np.maximum.accumulate(x))


def test_nan_and_infinity(std: Any) -> None:
    x = numbers("f32", 5000)
    x[3000] = np.nan
    for name in ("inclusive", "running_max", "running_min"):
        found = getattr(std, name)(x)
        assert not np.isnan(found[:3000]).any() and np.isnan(found[3000:]).all(), name
    x[3000] = -np.inf
    assert (std.running_min(x)[3000:] == -np.inf).all()
    x[:] = -np.inf
    same(std.running_max(x), x)


def test_every_run_gives_the_same_bits(std: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers("f32", 100003)
    bits: set[bytes] = set()
    for threads in (1, 2, 2, 5):
        one_thread(monkeypatch, threads)
        bits.add(std.inclusive(x).tobytes() + std.exclusive(x).tobytes())
    assert len(bits) == 1


@pytest.mark.parametrize("call", [
    "inclusive(x)", "exclusive(zero)", "running_max(x)", "inclusive()", "inclusive(row, row)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {"x": np.ones((2, 3), np.float32), "zero": np.ones((), np.float32),
             "row": np.ones(3, np.float32)}  # fmt: skip
    with pytest.raises(tessera.TesseraError):
        eval(f"std.{call}", {"std": std, **names})
