"""More faults that users met elsewhere, in tile kernels: values at the edges of their types,
running sums, numbers of groups, and what the compiler is asked to repeat.

As in ``test_tile_reports`` each names the public report of its kind, and runs on both targets.
"""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tests.on_device import with_layouts

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BF16 = np.dtype(ml_dtypes.bfloat16)
INF, NAN = np.inf, np.nan


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(source: str, target: str) -> Any:
    return with_layouts(tessera.compile(source, target=target), target)


def test_integers_become_bf16_by_rounding(target: str) -> None:
    """B46 float: tilelang#2483. To the nearest even, as f32 does."""
    m = load("@op.kernel\ndef f(x: i32[n]):\n    return x.to(bf16)\n", target)
    x = np.array([257, 259, 511, -259, 0, 65537, -(2**31), 2**31 - 1], np.int32)
    found = m.f(x)
    assert found.dtype == BF16
    assert found.astype(np.float64).tolist() == [
        256, 260, 512, -260, 0, 65536, -(2.0**31), 2.0**31,
    ]  # fmt: skip


def test_nan_is_unequal_to_itself(target: str) -> None:
    """B48 float: cutile. Also where the compiler could fold the comparison."""
    m = load(
        """
@op.kernel
def f(x: f32[n]):
    return x == x, x != x, x < x, x >= x
""",
        target,
    )
    x = np.array([NAN, 1, INF, -INF, -0.0], np.float32)
    for found, right in zip(m.f(x), (x == x, x != x, x < x, x >= x), strict=True):
        assert np.array_equal(found, right)


def test_a_clamp_keeps_nan(target: str) -> None:
    """B50 float: tilelang#3024. NaN stays, infinities go to the bounds, by either spelling."""
    m = load(
        """
@op.kernel
def f(x: f32[n]):
    return op.clamp(x, -2.0, 2.0), max(min(x, 2.0), -2.0)
""",
        target,
    )
    x = np.array([NAN, INF, -INF, 0.5, -3, 2], np.float32)
    for found in m.f(x):
        assert np.isnan(found[0]) and found[1:].tolist() == [2, -2, 0.5, -2, 2]


def test_the_sign_of_zero(target: str) -> None:
    """B52 float: llvm#202268. Through arithmetic, ``abs``, extremes, a choice, a division."""
    m = load(
        """
@op.kernel
def f(x: f32[n]):
    return x * 1.0, x + 0.0, -x, abs(x), op.where(x < 0.0, 1.0, x), 1.0 / x
""",
        target,
    )
    x = np.array([-0.0, 0.0], np.float32)
    with np.errstate(divide="ignore"):
        right = x * 1, x + np.float32(0), -x, abs(x), np.where(x < 0, np.float32(1), x), 1 / x
    for found, wanted in zip(m.f(x), right, strict=True):
        assert np.array_equal(found, wanted) and np.array_equal(np.signbit(found),
                                                                np.signbit(wanted))  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 128])
def test_running_sums(target: str, n: int) -> None:
    """B103 scan: triton#2359. In their order, along either axis."""
    m = load(
        f"""
@op.kernel
def f(x: f32[m, n], along: mut f32[m, n], across: mut f32[m, n]):
    t = x[0:{n}, 0:{n}]
    along[0:{n}, 0:{n}] = op.cumsum(t, axis=1)
    across[0:{n}, 0:{n}] = op.cumsum(t, axis=0)
""",
        target,
    )
    x = np.random.default_rng(n).integers(-9, 10, (n, n)).astype(np.float32)
    along, across = np.full_like(x, NAN), np.full_like(x, NAN)
    m.f(x, along, across)
    assert np.array_equal(along, x.cumsum(axis=1)) and np.array_equal(across, x.cumsum(axis=0))


def test_running_sums_of_a_part(target: str) -> None:
    """B107 scan: tilelang#2536. Of rows 64 to 127 only these are read, and written."""
    m = load(
        """
@op.kernel
def f(x: f32[m, n], out: mut f32[m, n]):
    out[64:128, 0:32] = op.cumsum(x[64:128, 0:32], axis=0)
""",
        target,
    )
    x = np.random.default_rng(0).integers(-9, 10, (128, 32)).astype(np.float32)
    out = np.full_like(x, 7)
    m.f(x, out)
    assert (out[:64] == 7).all() and np.array_equal(out[64:], x[64:].cumsum(axis=0))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, BF16])
@pytest.mark.sample(1)
def test_a_maximum_keeps_nan(target: str, dtype: Any) -> None:
    """B115 reduce: tilelang#2697. In each dtype, of one tile and over a loop of them."""
    kind = {np.float16: "f16", np.float32: "f32", np.float64: "f64"}.get(dtype, "bf16")
    m = load(
        f"""
@op.kernel
def f(x: {kind}[m, n], once: mut {kind}[m], looped: mut {kind}[m]):
    for i in op.tile_range(m, step=4):
        once[i:i+4] = op.max(x[i:i+4, :], axis=1).to({kind})
        top = op.full((4,), -inf, x.dtype)
        for j in op.tile_range(n, step=16):
            top = max(top, op.max(x[i:i+4, j:j+16], axis=1))
        looped[i:i+4] = top.to({kind})
""",
        target,
    )
    x = np.random.default_rng(0).integers(-5, 6, (9, 50)).astype(dtype)
    x[2, 3], x[5, 49], x[7, 0], x[8] = NAN, NAN, NAN, -INF
    once, looped = np.zeros(9, dtype), np.zeros(9, dtype)
    m.f(x, once, looped)
    right = x.astype(np.float64).max(axis=1)
    for found in (once, looped):
        assert np.array_equal(found.astype(np.float64), right, equal_nan=True)


@pytest.mark.optimized
def test_more_tiles_than_groups_there_may_be() -> None:
    """B19 overflow: warp#1799. The number of a tile does not wrap at 2^31."""
    source = """
@op.kernel
def f(x: i8[m, n], total: mut i64[1]):
    for i in op.tile_range(m, step=1):
        if i == m - 1:
            total[0] = i64(i)
"""
    x, total = np.broadcast_to(np.int8(0), (2**31 + 1, 1)), np.zeros(1, np.int64)
    tessera.compile(source, target="cpu").f(x, total)
    assert total[0] == 2**31


@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_repeating_a_loop_too_often(count: int) -> None:
    """B133 compile: taichi#8151. Code that is repeated has a limit; it does not take forever."""
    source = f"""
@op.kernel
def f(x: f32[n]) -> f32[n]:
    schedule.unroll({count})
    t = x[0:64]
    for i in range({count}):
        t = t * 0.5 + 1.0
    y = op.empty_like(x)
    y[0:64] = t
    return y
"""
    start = time.monotonic()
    try:
        found = tessera.compile(source, target="cpu").f(np.zeros(64, np.float32))
    except tessera.TesseraError as refused:
        assert not any(d.code.startswith("T09") for d in refused.diagnostics)
    else:
        assert np.allclose(found, 2)
    assert time.monotonic() - start < 30
