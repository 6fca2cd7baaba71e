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
    few,
    module,
    near,
    numbers,
    one_thread,
    same,
    some,
    views,
    wide,
)

MOST = some("bool", "i64", "f32")


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


@pytest.mark.parametrize("name", ["inclusive", "exclusive", "running_max", "running_min"])
@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.sample(1)
def test_every_size(std: Any, dtype: str, name: str) -> None:
    for n in (*SIZES, 2048, 2048 * 33 + 5):
        x = numbers(dtype, n, seed=n)
        found = getattr(std, name)(x)
        if name in ("inclusive", "exclusive"):
            check_sums(found, x, dtype, exclusive=name == "exclusive")
        else:
            ufunc = np.maximum if name == "running_max" else np.minimum
            assert found.dtype == DTYPES[dtype]
            same(found, ufunc.accumulate(wide(x)))


def test_more_than_two_levels(std: Any) -> None:
    n = 2048 * 2048 + 3
    x = np.ones(n, np.int8)
    same(std.inclusive(x), np.arange(1, n + 1, dtype=np.int32))


@pytest.mark.slow
def test_layouts(placed: Any) -> None:
    for x in views(numbers("f32", 5000)).values():
        check_sums(placed.inclusive(x), x, "f32", exclusive=False)
    x = numbers("f32", (40, 30))[:, 3]
    same(placed.running_max(x), np.maximum.accumulate(x))


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


@pytest.mark.parametrize("dtype", some("f32", "f64", "i8"))
@pytest.mark.slow
def test_a_cpu_adds_as_a_gpu_does(dtype: str) -> None:
    """It has kernels of its own; those of a GPU run on it too, and give the same bits."""
    std = module("std.scan", "cpu")
    heads = np.zeros(1, np.bool_)
    for n in (1, 129, 2047, 2048, 2049, 16_385, 600_000):
        x = numbers(dtype, n, seed=n)
        for exclusive, name in ((False, "inclusive"), (True, "exclusive")):
            found = np.asarray(getattr(std, name)(x))
            kind = str(found.dtype).replace("float", "f").replace("uint", "u").replace("int", "i")
            want = std._scanned_in_groups(x, heads, "sum", exclusive, False, kind, kind)
            assert found.tobytes() == np.asarray(want).tobytes()


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


def segments(x: Any, heads: Any) -> Any:
    """Sums by segment, exact in the dtype given."""
    at = np.flatnonzero(heads)
    starts = np.maximum.accumulate(np.where(heads, np.arange(len(x)), 0)) if len(x) else at
    sums = np.concatenate([np.zeros(1, x.dtype), np.cumsum(x)])
    return sums[1:] - sums[starts]


@pytest.mark.parametrize("dtype", some("f32"))
def test_segments(std: Any, dtype: str, whole: bool) -> None:
    sizes = (0, 1, 5, 8191, 8192, 8193, 16383, 16384, 16385, 70_000)
    for n in sizes if whole else (0, 1, 8191, 8193, 16385):
        for share in (0.0, 0.0002, 0.01, 0.3, 1.0):
            heads = np.random.default_rng(n).random(n) < share
            x = (few if dtype in FLOATS else numbers)(dtype, n, seed=n)
            found = std.segmented(x, heads)
            exact = x.astype(np.int64 if x.dtype.kind != "u" else np.uint64)
            if dtype in FLOATS:  # small integers: every sum is exact
                exact = wide(x)
            same(found, segments(exact, heads).astype(found.dtype))


@pytest.mark.slow
def test_one_segment_begins_anywhere(std: Any) -> None:
    """At and beside what a lane, a row, a warp and a group hold, in whole groups and the last."""
    n = 8192 * 9 + 77
    x = few("i32", n, seed=3)
    edges = (0, 4, 128, 512, 1024, 2048, 8192, 16384, 32768, 65536, 8192 * 9, n - 1)
    for at in sorted({e + k for e in edges for k in (-1, 0, 1) if 0 <= e + k < n}):
        heads = np.zeros(n, np.bool_)
        heads[at] = True
        same(std.segmented(x, heads), segments(x, heads))
        heads[: at + 1] = True
        same(std.segmented(x, heads), segments(x, heads))


def test_a_head_for_each_element(std: Any) -> None:
    with pytest.raises(tessera.TesseraError, match="a head for each element"):
        std.segmented(np.zeros(3, np.float32), np.zeros(4, np.bool_))
    with pytest.raises(tessera.TesseraError, match="an array of bool, not f32"):
        std.segmented(np.zeros(3, np.float32), np.zeros(3, np.float32))


@pytest.mark.slow
def test_many_blocks_of_groups(std: Any) -> None:
    """More than 288 groups of up to 32768, so that what whole blocks come to is passed on."""
    n = 32768 * 300 + 17
    x = numbers("i32", n, seed=9)
    same(std.inclusive(x), np.cumsum(x, dtype=np.int64).astype(np.int32))
    heads = np.zeros(n, np.bool_)
    heads[[32768 * 50 + 3, 32768 * 150, 32768 * 278 + 16383]] = True
    same(std.segmented(x, heads), segments(x.astype(np.int64), heads).astype(np.int32))
