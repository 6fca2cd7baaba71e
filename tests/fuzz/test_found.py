"""Faults that the generated programs found, as the smallest programs that showed them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera


def launch(kernel: Any, *arguments: Any) -> None:
    """Run a kernel and see what it reported."""
    kernel(*arguments)
    tessera.synchronize()


TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_access_outside_is_reported_and_the_others_happen(target: str) -> None:
    source = """
@kernel tile[(64,)] grid[(1,)]
def k(out: mut i32[n], q: i32):
    out[grid_tile_linear_id()] = q
"""
    m = tessera.compile(source, target=target)
    for n in (1, 60, 63):
        out = np.zeros(n, np.int32)
        with pytest.raises(tessera.TesseraError) as caught:
            launch(m.k, out, 3)
        assert "outside" in str(caught.value) and (out == 3).all()
    out = np.zeros(64, np.int32)
    m.k(out, 3)
    assert (out == 3).all()


def test_a_read_outside_that_nothing_uses_is_reported(target: str) -> None:
    source = """
@kernel tile[(2,)] grid[(2,)]
def k(x: i32[n], out: mut i32[1]):
    unused = x[grid_tile_count()]
"""
    k = tessera.compile(source, target=target).k
    with pytest.raises(tessera.TesseraError):
        launch(k, np.zeros(2, np.int32), np.zeros(1, np.int32))


def test_what_control_never_reaches_is_not_surely_outside(target: str) -> None:
    source = """
@kernel tile[(2,)] grid[(2,)]
def k(x: i64[n], out: mut bool[1]):
    v = index(-1)
    found = 0 <= v < n and x[v] != 3
    if n < -3:
        found = x[group_linear_id()] > 1
    if n < 3 and n > 7:
        found = x[group_linear_id() + n] > 1
    if grid_tile_linear_id() == 0: out[0] = found
"""
    out = np.ones(1, np.bool_)
    tessera.compile(source, target=target).k(np.ones(5, np.int64), out)
    assert not out[0]


def test_a_number_takes_the_dtype_that_the_arrays_give(target: str) -> None:
    source = """
@kernel tile[(32,)] grid[(1,)]
def fill[T: dtype](value: T, out: mut T[n]):
    for k in range(tile_linear_id(), n, 32):
        out[k] = value
"""
    m = tessera.compile(source, target=target)
    for dtype, value in ((np.float16, 3), (np.float64, 0.1), (np.uint8, 200), (np.int64, -5)):
        out = np.zeros(40, dtype)
        m.fill(value, out)
        assert (out == dtype(value)).all()
    with pytest.raises(tessera.TesseraError):
        m.fill(1.5, np.zeros(4, np.int32))
    with pytest.raises(tessera.TesseraError):
        m.fill(300, np.zeros(4, np.uint8))


@pytest.mark.parametrize("form", ["abs(v)", "(-v if v < 0 else v)"])
def test_the_lowest_number_stays_below_zero(target: str, form: str) -> None:
    """Seed 242: on a device 0.1 // f32(abs(i32 minimum)) was -0.0."""
    for dtype, low in (("i32", -(2**31)), ("i64", -(2**63))):
        source = f"""
@kernel tile[(32,)] grid[(1,)]
def k(x: {dtype}[n], out: mut f32[n], below: mut i32[n]):
    i = grid_tile_linear_id()
    v = x[i]
    a = {form}
    out[i] = f32(0.1) // f32(a)
    below[i] = 1 if a < 0 else 0
"""
        x = np.full(32, low, np.int32 if dtype == "i32" else np.int64)
        x[::2] = -3
        out, below = np.zeros(32, np.float32), np.zeros(32, np.int32)
        launch(tessera.compile(source, target=target).k, x, out, below)
        assert (out[1::2] == -1).all() and (out[::2] == 0).all()
        assert (below[1::2] == 1).all() and not below[::2].any()


def test_two_names_of_one_value(target: str) -> None:
    """A value that one variable holds is given to a second, and the first goes on holding it."""
    source = """
def parameters(x: i64, y: i64, c: i64):
    x = y
    if c > 4:
        y = x % 3
    return x * 100 + y

def twice(a, c: i64):
    return parameters(a, a, c) + a

def parts(a: i64, c: i64):
    p = (a + 1, a + 2)
    u, v = p
    q = v
    for k in range(c % 3): q += v
    return q * 1000 + u + v

@kernel tile[(32,)] grid[(1,)]
def lanes(a: i64[n], c: i64[n], out: mut i64[n]):
    t = tile_linear_id()
    if t < n: out[t] = twice(i64(t) + 7, c[t]) + parts(i64(t) * 2, c[t])

@op.kernel
def tiles(a: f32[n], c: i64) -> f32[n]:
    out = op.empty_like(a)
    for i in op.tile_range(n, step=8):
        x = a[i:i+8] * 2.0
        y = x
        if c > 4: y = x + 1.0
        out[i:i+8] = x * 100.0 + y
    return out
"""
    module = tessera.compile(source, target=target)
    t = np.arange(32, dtype=np.int64)
    c = t % 9
    out = np.zeros(32, np.int64)
    module.lanes(t, c, out)
    a, y = t + 7, np.where(c > 4, (t + 7) % 3, t + 7)
    p, q = t * 2 + 1, t * 2 + 2
    assert np.array_equal(out, a * 100 + y + a + (q + (c % 3) * q) * 1000 + p + q)
    x = np.arange(5, dtype=np.float32)
    for c in (3, 5):
        assert np.array_equal(np.asarray(module.tiles(x, c)), x * 200 + x * 2 + (c > 4))


def test_the_assembler_gets_these_wrong(target: str) -> None:
    """What ptxas 13.0 loses: the sign of a number among three, the wrap of the lowest number of
    16 bits, the sign of a zero that is chosen."""
    source = """
@kernel tile[(64,)] grid[(1,)]
def k(a: i32[n], b: i32[n], s: i16[n], out: mut i32[n, 8], wide: mut i64[n], zero: mut f32[n, 2]):
    t = tile_linear_id()
    if t < n:
        x, y = a[t], b[t]
        out[t, 0] = min(y, -x, 7)
        out[t, 1] = max(y, -x, -9)
        out[t, 2] = min(-x, -y, 3)
        out[t, 3] = max(abs(x), y)
        out[t, 4] = max(abs(x), abs(y), 5)
        out[t, 5] = i32(min(i16(y), -s[t], i16(6)))
        out[t, 6] = 1 if -s[t] < i16(5) else 2
        out[t, 7] = min(min(y, x * -1), 4)
        wide[t] = i64(-s[t])
        zero[t, 0] = -f32(x >= 3)
        zero[t, 1] = -0.0 if x >= 3 else -1.0
"""
    m = tessera.compile(source, target=target)
    r = np.random.default_rng(3)
    a, b = r.integers(-20, 20, (2, 64)).astype(np.int32)
    s = r.integers(-9, 9, 64).astype(np.int16)
    s[:8] = -32768
    out, wide = np.zeros((64, 8), np.int32), np.zeros(64, np.int64)
    zero = np.zeros((64, 2), np.float32)
    launch(m.k, a, b, s, out, wide, zero)
    minus = (-s).astype(np.int64)  # wraps in 16 bits
    want = [
        np.minimum(np.minimum(b, -a), 7), np.maximum(np.maximum(b, -a), -9),
        np.minimum(np.minimum(-a, -b), 3), np.maximum(abs(a), b),
        np.maximum(np.maximum(abs(a), abs(b)), 5), np.minimum(np.minimum(b, minus), 6),
        np.where(minus < 5, 1, 2), np.minimum(np.minimum(b, -a), 4),
    ]  # fmt: skip
    assert np.array_equal(out, np.stack(want, axis=1)) and np.array_equal(wide, minus)
    assert np.array_equal(zero[:, 0], np.where(a >= 3, -1.0, -0.0))
    assert np.signbit(zero).all()
    assert np.array_equal(zero[:, 1], np.where(a >= 3, -0.0, -1.0))


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_an_absolute_value_takes_the_place_of_its_operand(target: str, dtype: str) -> None:
    """Seed 4597: the result's register is the operand's where a branch or a loop joins them."""
    source = f"""
@kernel tile[(64,)] grid[(1,)]
def k(a: {dtype}[n], out: mut {dtype}[n]):
    t = tile_linear_id()
    if t < n:
        v = a[t]
        if t % 3 == 1:
            v |= abs(v)
        elif t % 3 == 2:
            for _ in range(t):
                v = abs(v) - {dtype}(3)
        out[t] = v
"""
    a = np.random.default_rng(5).integers(-128, 128, 64).astype(dtype.replace("i", "int"))
    out = np.zeros_like(a)
    launch(tessera.compile(source, target=target).k, a, out)
    want = a.copy()
    for t in range(64):
        if t % 3 == 1:
            want[t : t + 1] |= abs(want[t : t + 1])
        elif t % 3 == 2:
            for _ in range(t):
                want[t : t + 1] = abs(want[t : t + 1]) - want.dtype.type(3)
    assert np.array_equal(out, want)


@pytest.mark.parametrize("wide", ["f16", "bf16", "f32", "f64", "f8e5m2"])
@pytest.mark.parametrize("narrow", ["i8", "i16", "i32", "i64"])
@pytest.mark.sample
def test_an_integer_that_a_condition_decides_becomes_a_float(
    target: str, narrow: str, wide: str
) -> None:
    """Seed 1379: -1 or 0, by a branch, became 1 or 0 of bf16, in LLVM's code for NVIDIA."""
    source = f"""
@kernel tile[(64,)] grid[(1,)]
def k(a: i32[n], out: mut f32[n]):
    t = tile_linear_id()
    if t < n:
        v = {narrow}(2)
        if a[t] > 5: v = {narrow}(-7) % ({narrow}(-2) - {narrow}(t) | 1)
        v //= {narrow}(127)
        if t % 4 == 3: out[t] = f32({wide}(v))
        else: out[t] = f32({wide}(v + 1))
"""
    a = np.arange(64, dtype=np.int32) % 11
    out = np.zeros(64, np.float32)
    launch(tessera.compile(source, target=target).k, a, out)
    t = np.arange(64)
    lowest = (-2 - t) | 1
    v = np.where(a > 5, -7 % lowest, 2) // 127
    assert np.array_equal(out, np.where(t % 4 == 3, v, v + 1))


@pytest.mark.parametrize("loop", ["for j in range(4):", "j = 0\n    while j < 4:\n        j += 1"])
@pytest.mark.parametrize("beyond", ["9223372036854775807", "-9223372036854775807"])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16", "i32", "u32"])
@pytest.mark.sample
def test_a_condition_that_no_value_of_the_type_meets(
    target: str, dtype: str, beyond: str, loop: str
) -> None:
    """Seed 2348: the analysis of ranges did not end, as numbers beyond the type went around."""
    source = f"""
def last(a: {dtype}, b: {dtype}):
    {loop}
        a, b = b, a
        if not i64(a) == i64({beyond}): return {dtype}(2)
    return a

@kernel tile[(32,)] grid[(1,)]
def k(a: {dtype}[n], out: mut {dtype}[n]):
    t = tile_linear_id()
    if t < n: out[t] = last(a[t], {dtype}(t))
"""
    a = np.arange(32).astype(dtype.replace("u", "uint") if dtype[0] == "u" else f"int{dtype[1:]}")
    out = np.zeros_like(a)
    launch(tessera.compile(source, target=target).k, a, out)
    assert (out == 2).all()
