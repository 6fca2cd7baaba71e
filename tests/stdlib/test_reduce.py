"""std.reduce: every function, dtype, size, rank, axis and layout against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
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

MOST = some("bool", "i8", "u32", "i64", "bf16", "f32")
FEW = ["bf16", "f32", *(pytest.param(d, marks=pytest.mark.slow) for d in ("f16", "f64"))]
NAMES = ("sum", "mean", "max", "min", "argmax", "argmin")


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.reduce", str(request.param))


# Half of the least value above 0: what rounding may cost near 0.
HALF_SUBNORMAL = {"f16": 2.0**-25, "bf16": 2.0**-134, "f8e4m3": 2.0**-10, "f8e5m2": 2.0**-17}


def accumulator(dtype: str) -> str:
    if dtype in ("bool", "i8", "i16"):
        return "i32"
    if dtype in ("u8", "u16"):
        return "u32"
    return "f32" if dtype in FLOATS and dtype != "f64" else dtype


def check_sum(found: Any, x: Any, dtype: str, axis: int | None, depth: int) -> None:
    """Integers wrap; a float is off by a rounding for each addition it took part in."""
    acc = accumulator(dtype)
    if acc in INTEGERS:
        expected = np.sum(x, axis=axis, dtype=np.uint64 if acc[0] == "u" else np.int64)
        same(found, np.asarray(expected).astype(DTYPES[acc]))
        assert found.dtype == DTYPES[acc]
        return
    assert found.dtype == DTYPES[dtype]
    exact = np.asarray(np.sum(wide(x), axis=axis))
    size = np.asarray(np.sum(np.abs(wide(x)), axis=axis))
    error = EPSILON[acc] * depth * size + EPSILON[dtype] * (
        np.abs(exact) + EPSILON[acc] * depth * size
    )
    if dtype == "f8e4m3":  # stores saturate, as there are no infinities
        exact = np.clip(exact, *(float(v) for v in lowest(dtype)))
    near(found, exact, error + 1e-300)


def check_mean(found: Any, x: Any, dtype: str, axis: int | None, depth: int) -> None:
    whole = "f64" if dtype in ("i32", "i64", "u32", "u64") else "f32"
    result = dtype if dtype in FLOATS else whole
    acc = accumulator(dtype) if dtype in FLOATS else "f64"
    assert found.dtype == DTYPES[result]
    count = x.size if axis is None else x.shape[axis]
    with np.errstate(all="ignore"):
        exact = np.asarray(np.sum(wide(x), axis=axis, dtype=np.float64)) / count
        size = np.asarray(np.sum(np.abs(x.astype(np.float64)), axis=axis)) / count
    error = EPSILON[acc] * (depth + 2) * size + 2 * EPSILON[result] * np.abs(exact)
    near(found, exact, np.nan_to_num(error) + HALF_SUBNORMAL.get(result, 0.0))


def lowest(dtype: str) -> Any:
    if dtype == "bool":
        return np.bool_(False), np.bool_(True)
    if dtype in INTEGERS:
        limits = np.iinfo(DTYPES[dtype])
        return limits.min, limits.max
    if dtype == "f8e4m3":  # it has no infinities
        top = ml_dtypes.finfo(DTYPES[dtype]).max
        return -top, top
    return -np.inf, np.inf


def check_extreme(std: Any, name: str, x: Any, dtype: str, axis: int | None) -> None:
    found = getattr(std, name)(x) if axis is None else getattr(std, name)(x, axis=axis)
    assert found.dtype == DTYPES[dtype]
    low, high = lowest(dtype)
    initial = low if name == "max" else high
    same(found, getattr(np, name)(wide(x), axis=axis, initial=wide(np.asarray(initial))))


def check(std: Any, name: str, x: Any, dtype: str, axis: int | None, depth: int) -> None:
    """One function against NumPy. Of equal elements the first is the greatest or least."""
    named = {} if axis is None else {"axis": axis}
    if name == "sum":
        check_sum(std.sum(x, **named), x, dtype, axis, depth)
    elif name == "mean":
        check_mean(std.mean(x, **named), x, dtype, axis, depth)
    elif name in ("max", "min"):
        check_extreme(std, name, x, dtype, axis)
    elif (x.size if axis is None else x.shape[axis]) > 0:
        found = getattr(std, name)(x, **named)
        assert found.dtype == np.int64
        same(found, np.asarray(getattr(np, name)(wide(x), axis=axis)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.sample(1)
def test_whole_arrays_of_every_size(std: Any, dtype: str, name: str) -> None:
    for n in SIZES:
        for x in (numbers(dtype, n, seed=n), few(dtype, n, seed=n)):
            check(std, name, x, dtype, None, 64)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", MOST)
@pytest.mark.sample(1)
def test_rows_and_columns_of_every_size(std: Any, dtype: str, name: str) -> None:
    shapes = [(3, n) for n in SIZES[:-1]] + [(n, 3) for n in SIZES[:-1]] + [(0, 0), (257, 300)]
    make = few if name.startswith("arg") else numbers
    for shape in shapes:
        x = make(dtype, shape, seed=shape[0] + shape[1])
        for axis in (0, 1):
            check(std, name, x, dtype, axis, shape[axis] + 16)


@pytest.mark.parametrize("dtype", ["i32", "f32"])
@pytest.mark.parametrize("rank", range(5))
@pytest.mark.sample(1)
def test_every_axis_of_every_rank(std: Any, dtype: str, rank: int) -> None:
    for shape in ((3, 5, 2, 4)[:rank], (1, 1, 7, 1)[:rank], (2, 0, 3, 5)[:rank]):
        x = numbers(dtype, shape, seed=rank)
        check_sum(std.sum(x), x, dtype, None, 64)
        for axis in range(-rank, rank):
            check_sum(std.sum(x, axis=axis), x, dtype, axis, 64)
            check_extreme(std, "max", x, dtype, axis)
            check_extreme(std, "min", x, dtype, axis)
            if shape[axis]:
                same(std.argmax(x, axis=axis), np.argmax(x, axis=axis))
                same(std.argmin(x, axis=axis), np.argmin(x, axis=axis))


@pytest.mark.parametrize("layout", ["stepped", "reversed", "transposed", "broadcast", "off by one"])
@pytest.mark.parametrize("dtype", ["f32", pytest.param("i64", marks=pytest.mark.slow)])
@pytest.mark.sample(1)
def test_layouts(placed: Any, dtype: str, layout: str) -> None:
    for shape in ((6, 10, 4), (33, 17), (100,)):
        x = views(numbers(dtype, shape))[layout]
        for axis in (None, *range(x.ndim)):
            where = {} if axis is None else {"axis": axis}
            check_sum(placed.sum(x, **where), x, dtype, axis, 64)
            check_extreme(placed, "max", x, dtype, axis)
            same(placed.argmin(x, **where), np.asarray(np.argmin(x, axis=axis)))


@pytest.mark.parametrize(
    "dtype", ["bf16", pytest.param("f32", marks=pytest.mark.optimized), *FEW[2:]]
)
@pytest.mark.sample(1)
def test_nan_and_infinity(std: Any, dtype: str) -> None:
    kind = DTYPES[dtype]
    for n in (5, 300, 5000):
        for at in (0, 3, n - 1):
            x = numbers(dtype, n)
            x[at] = np.nan
            for name in ("sum", "mean", "max", "min"):
                assert np.isnan(wide(getattr(std, name)(x))), name
            x[n // 2] = np.nan
            for name in ("argmax", "argmin"):
                assert int(getattr(std, name)(x)) == min(at, n // 2)
            x[np.isnan(wide(x))] = np.inf
            assert wide(std.sum(x)) == np.inf and wide(std.max(x)) == np.inf
            assert int(std.argmax(x)) == min(at, n // 2)
            x[at] = -np.inf
            assert wide(std.min(x)) == -np.inf and int(std.argmin(x)) == min(at, n)
    ones = np.full((4, 3), -np.inf, kind)
    same(std.max(ones, axis=0), np.full(3, -np.inf, kind))
    same(std.argmax(ones, axis=1), np.zeros(4, np.int64))


@pytest.mark.optimized
def test_signs_of_zero(std: Any) -> None:
    """-0.0 is less than +0.0 for min and max; argmax takes them as equal, like NumPy."""
    for x in (np.array([0.0, -0.0, 0.0], np.float32), np.array([-0.0, 0.0], np.float32)):
        assert np.signbit(std.min(x)) and not np.signbit(std.max(x))
        assert int(std.argmax(x)) == int(std.argmin(x)) == 0


def test_f16_sums_do_not_overflow_on_the_way(std: Any) -> None:
    x = np.array([60000, 60000, -60000, -60000, 5], np.float16)
    assert float(std.sum(x)) == 5
    assert float(std.mean(np.full(10, 60000, np.float16))) == 60000
    many = np.ones(100003, ml_dtypes.bfloat16)
    assert float(std.sum(many)) == float(ml_dtypes.bfloat16(100003))


def test_every_run_gives_the_same_bits(std: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers("f32", (313, 321))
    bits: list[bytes] = []
    for threads in (1, 2, 2, 5):
        one_thread(monkeypatch, threads)
        parts = [std.sum(x), std.mean(x), std.sum(x, axis=0), std.sum(x, axis=1)]
        bits.append(b"".join(np.asarray(p).tobytes() for p in parts))
    assert len(set(bits)) == 1


@pytest.mark.parametrize("call", [
    "sum(x, axis=2)", "max(x, axis=-3)", "argmax(x, axis=7)", "mean(x, axis=2)",
    "argmax(empty)", "argmin(empty)", "argmin(hollow, axis=1)", "sum(x, 1, 2)", "sum()",
    "sum(x, axes=1)", "sum(None)", "max(text)", 'sum(x, axis="rows")',
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {
        "x": np.ones((2, 3), np.float32), "empty": np.zeros((0, 2), np.float32),
        "hollow": np.zeros((3, 0), np.int32), "text": np.array(["a", "b"]),
    }  # fmt: skip
    with pytest.raises(tessera.TesseraError) as caught:
        eval(f"std.{call}", {"std": std, **names})
    assert all(
        d.code.startswith("T0") and not d.code.startswith("T09") for d in caught.value.diagnostics
    )


def test_a_bad_axis_names_it_and_the_line() -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        module("std.reduce", "cpu").sum(np.ones((2, 3), np.float32), axis=2)
    assert "axis 2 of an array of rank 2" in str(caught.value)
    assert "reduce_kernels.tessera:" in str(caught.value)


def test_the_argument_is_not_changed(std: Any) -> None:
    x = numbers("f32", (7, 9))
    before = x.copy()
    x.flags.writeable = False
    std.sum(x), std.argmax(x, axis=0), std.max(x.T, axis=1)
    assert np.array_equal(x, before)


@pytest.mark.parametrize("dtype", some("u8", "f32", "i64"))
@pytest.mark.slow
def test_rows_of_several_parts(std: Any, dtype: str) -> None:
    """A CPU reads long rows in parts: where the best is, and ties and NaNs, in any of them."""
    for n in (32_768, 32_769, 100_003):
        x = few(dtype, (2, n), seed=n)
        x[1, :] = x[1, 0]
        for at in (0, n // 2, n - 1):
            for value in (np.nan, np.inf) if dtype in FLOATS else (100,):
                y = x.copy()
                y[:, at] = value
                same(std.argmax(y, axis=1), np.argmax(wide(y), 1))
                same(std.argmin(y, axis=1), np.argmin(wide(y), 1))
                same(std.max(y, axis=1), wide(y).max(1).astype(y.dtype))
                same(std.min(y[0]), wide(y[0]).min().astype(y.dtype))
        same(std.argmax(x), np.int64(np.argmax(wide(x))))


@pytest.mark.parametrize("n", [1, 100, 70_000])
def test_of_two_zeros_the_sign_says_which(std: Any, n: int) -> None:
    x = np.full(n, -0.0, np.float32)
    assert np.signbit(np.asarray(std.max(x))) and np.signbit(np.asarray(std.min(x)))
    x[n // 2] = 0.0
    assert not np.signbit(np.asarray(std.max(x)))
    assert np.signbit(np.asarray(std.min(x))) or n == 1


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.sample(1)
def test_arg_reductions_of_a_gpu_run_on_the_cpu_too(how: str) -> None:
    """There the library takes another way; the kernels give the same places."""
    k = tessera.load("std.reduce_kernels", target="cpu")
    for m, n in ((1, 1), (3, 40), (2, 1000), (1, 9000), (2, 4100)):
        x = np.random.default_rng(n).integers(-50, 50, (m, n)).astype(np.float32)
        want = getattr(np, f"arg{how}")(x, 1)
        out = np.zeros(m, np.int64)
        k.arg_short_rows(x, out, how=how, L=8, V="f32", S="f32")
        assert np.array_equal(out, want)
        for parts, unit in ((1, 1), (2, 1), (3, 4 if n % 4 == 0 else 1)):
            values, places = np.zeros((parts, m), np.float32), np.zeros((parts, m), np.int64)
            done, split = np.zeros(m, np.uint32), x.reshape(m, n // unit, unit)
            k.arg_rows(split, values, places, done, out, how=how, V="f32", U=unit)
            assert np.array_equal(out, want)


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.sample(1)
def test_a_cpu_and_a_gpu_reduce_in_one_order(how: str) -> None:
    """A CPU takes shares side by side; the bits are those of the lanes of a GPU."""
    k = tessera.load("std.reduce_kernels", target="cpu")
    sizes = [0, 1, 2, 3, 5, 255, 256, 1000, 1023, 1025, 4095, 4096, 4099, 9001]
    rng = np.random.default_rng(5)
    for n in [*sizes, 32_769, int(rng.integers(2000, 30_000)), 100_003]:
        x = (rng.standard_normal(n) * 10).astype(np.float32)
        for groups, beside in ((max(1, -(-n // 32_768)), 1), (3, 2), (11, 8)):
            found: list[bytes] = []
            for own in (False, True):
                shares, done = np.zeros(groups, np.float32), np.zeros(1, np.uint32)
                out = np.zeros(1, np.float32)
                if own:
                    launch = k.reduce_all_side_by_side[-(-groups // beside)]
                    launch(x, shares, done, out, beside, how=how)
                else:
                    k.reduce_all[groups](x, shares, done, out, how=how)
                found.append(shares.tobytes() + out.tobytes())
            assert found[0] == found[1], (n, groups)
