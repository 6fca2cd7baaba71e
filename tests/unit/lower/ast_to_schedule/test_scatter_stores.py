"""Stores into rows that a tile chooses: as if one row were written after the other.

NumPy writes the rows in that order; places outside of the array are not written.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.driver import pipeline
from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.opt.schedule.query.array_dependence import FOR
from tests.unit.lower.ast_to_schedule.lowering import lower_source
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.parallel.mapped import mapped
from tests.unit.opt.schedule.parallel.test_map_grid import grid_axes

ROWS = """
@op.kernel
def tiles(x: f32[n, 100], idx: i32[n], out: mut f32[m, 100]):
    for i in op.tile_range(n, step=16):
        out[idx[i:i+16], :] = x[i:i+16, :]

@op.kernel
def spread(x: f32[n, k], idx: i32[n], out: mut f32[m, k]):
    for i, j in op.tile_range(n, k, step=(16, 32)):
        out[idx[i:i+16], j:j+32] = x[i:i+16, j:j+32]

@op.kernel
def whole(x: f32[n, k], idx: i32[n], out: mut f32[m, k]):
    out[idx, :] = x

@op.kernel
def turned(x: f32[n, 100], idx: i32[n], out: mut f32[m, 100]):
    for i in op.tile_range(n, step=16):
        r = idx[i:i+16]
        out.T[:, r] = x[i:i+16, :].T

@op.kernel
def apart(x: f32[n, 100], idx: i32[n], out: mut f32[m, 100]):
    for i in op.tile_range(n, step=16):
        out[idx[i:i+16], 0:100:2] = x[i:i+16, 0:100:2]
        out[idx[i:i+16], 1:100:2] = x[i:i+16, 1:100:2]
"""
FLAT = """
@op.kernel
def elements(x: bf16[n], idx: i64[n], out: mut bf16[m]):
    for i in op.tile_range(n, step=130):
        out[idx[i:i+130]] = x[i:i+130]

@op.kernel
def whole(x: bf16[n], idx: i64[n], out: mut bf16[m]):
    out[idx] = x
"""
TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
SIZES = [(0, 5), (1, 1), (16, 40), (33, 20)]


def scattered(out: Any, places: Any, x: Any) -> Any:
    made = out.copy()
    for place, row in zip(places, x, strict=True):
        if 0 <= place < len(out):
            made[place] = row
    return made


@pytest.mark.parametrize("target", TARGETS)
def test_rows(target: str) -> None:
    module, r = loaded(ROWS, target), np.random.default_rng(0)
    for n, m in SIZES[::3]:
        x, out = (r.standard_normal((k, 100)).astype(np.float32) for k in (n, m))
        places = r.integers(-2, m + 2, n).astype(np.int32)
        want = scattered(out, places, x)
        for name in ("tiles", "spread", "whole", "turned", "apart"):
            got = out.copy()
            getattr(module, name)(x, places, got)
            assert np.array_equal(got, want), (name, n, m)


@pytest.mark.parametrize("target", TARGETS)
def test_elements(target: str) -> None:
    module, r = loaded(FLAT, target), np.random.default_rng(1)
    for n, m in ((0, 5), (16, 40), (131, 90)):
        x, out = (r.standard_normal(k).astype(ml_dtypes.bfloat16) for k in (n, m))
        places = r.integers(-2, m + 2, n)
        places[: n // 8] += 1 << 40
        for name in ("elements", "whole"):
            got = out.copy()
            getattr(module, name)(x, places, got)
            assert np.array_equal(got, scattered(out, places, x)), (name, n, m)


MORE = """
@op.kernel
def computed(x: f32[n, 64], out: mut f32[m, 64]):
    for i in op.tile_range(n, step=32):
        p = i32(i) + op.arange(32)
        out[p * 3 % 11, :] = op.exp(x[i:i+32, :])

@op.kernel
def doubled(idx: i32[n], out: mut f32[m, 64]):
    for i in op.tile_range(n, step=32):
        out[idx[i:i+32], :] = out[idx[i:i+32], :] * 2.0

@op.kernel
def batches(x: f32[b, n, 64], idx: i32[b, n], out: mut f32[b, m, 64]):
    for k, i in op.tile_range(b, n, step=(1, 32)):
        out[k, idx[k, i:i+32], :] = x[k, i:i+32, :]

@op.kernel
def product(x: bf16[n, k], w: bf16[k, 128], idx: i32[n], out: mut f32[m, 128]):
    for i in op.tile_range(n, step=64, independent=("i",)):
        acc = op.zeros((64, 128), f32)
        for p in op.tile_range(k, step=64):
            acc += x[i:i+64, p:p+64] @ w[p:p+64, :]
        out[idx[i:i+64], :] = acc
"""


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_is_computed(target: str) -> None:
    module, r = loaded(MORE, target), np.random.default_rng(2)
    for n, m in ((31, 12), (100, 60)):
        x, out = (r.integers(-4, 4, (k, 64)).astype(np.float32) for k in (n, m))
        places = r.integers(-1, m + 1, n).astype(np.int32)
        got = out.copy()
        module.computed(x, got)
        want = scattered(out, np.arange(n) * 3 % 11, np.exp(x))
        np.testing.assert_allclose(got, want, rtol=1e-6)
        got, want = out.copy(), out
        module.doubled(places, got)
        for i in range(0, n, 32):
            now = places[i : i + 32]
            want = scattered(want, now, want[np.clip(now, 0, m - 1)] * 2)
        assert np.array_equal(got, want)
        x3, i3 = np.stack([x, -x]), np.stack([places, places[::-1]])
        o3 = np.stack([out, out])
        want = np.stack([scattered(out, p, v) for p, v in zip(i3, x3, strict=True)])
        module.batches(x3, i3, o3)
        assert np.array_equal(o3, want)
        factor = r.integers(-2, 3, (64, 128)).astype(ml_dtypes.bfloat16)
        once = r.permutation(max(n, m))[:n].astype(np.int32)
        got = np.zeros((m, 128), np.float32)
        want = scattered(got, once, x @ factor.astype(np.float32))
        module.product(x.astype(ml_dtypes.bfloat16), factor, once, got)
        assert np.array_equal(got, want)


PROMISES = """
@op.kernel
def next_loop(x: f32[n], idx: i32[n], a: mut f32[n], b: mut f32[n]):
    for i in op.tile_range(n, step=16, independent=("i",)):
        a[idx[i:i+16]] = x[i:i+16]
    for i in op.tile_range(n, step=16):
        b[idx[i:i+16]] = x[i:i+16]
"""
INNER = """
@op.kernel
def inner(x: f32[m, n], idx: i32[m, n], a: mut f32[n]):
    for r in op.tile_range(m):
        for i in op.tile_range(n, step=16, independent=("i",)):
            a[idx[r, i:i+16]] = x[r, i:i+16]
"""


def test_a_promise_is_of_its_loop() -> None:
    """Not of a loop behind it that could be one with it, nor of iterations of the one around."""
    x = np.zeros(100, np.float32)
    program, _, _ = lower_source(PROMISES, x, x.astype(np.int32), x, x)
    (made,) = run_passes(program, pipeline.parallel_loops()).operations
    assert sum(o.name == FOR for o in made.regions[0].operations) == 2
    rows = np.zeros((5, 100), np.float32)
    program, _, _ = lower_source(INNER, rows, rows.astype(np.int32), x)
    assert grid_axes(mapped(program, [])) == []


OTHERS = """
@op.kernel
def stepped(x: f32[n, 40], idx: i32[m], out: mut f32[m, 16]):
    for i in op.tile_range(m, step=16):
        out[i:i+16, :] = x[idx[i:i+16], 1:33:2]

@op.kernel
def lanes(x: f64[b, n, 8], w: f64[b, 8, 12], idx: i32[n], out: mut f64[b, m, 12]):
    for i in op.tile_range(n, step=16):
        out[0:2, idx[i:i+16], :] = x[0:2, i:i+16, :] @ w[0:2, :, :]
"""


@pytest.mark.parametrize("target", TARGETS)
def test_steps_and_lanes(target: str) -> None:
    """A step beside chosen rows; and what goes to loops of lanes on a GPU."""
    module, r = loaded(OTHERS, target), np.random.default_rng(3)
    for n, m in ((9, 0), (9, 17), (40, 50)):
        x = r.standard_normal((n, 40)).astype(np.float32)
        places = r.integers(-1, n + 1, m).astype(np.int32)
        got = np.ones((m, 16), np.float32)
        module.stepped(x, places, got)
        there = ((places >= 0) & (places < n))[:, None]
        assert np.array_equal(got, np.where(there, x[np.clip(places, 0, n - 1), 1:33:2], 0))
    for n, m in ((0, 5), (15, 5), (33, 20)):
        x, w = (r.integers(-3, 4, s).astype(np.float64) for s in ((2, n, 8), (2, 8, 12)))
        places = r.integers(-1, m + 1, n).astype(np.int32)
        got = np.zeros((2, m, 12))
        module.lanes(x, w, places, got)
        want = [scattered(np.zeros((m, 12)), places, rows) for rows in x @ w]
        assert np.array_equal(got, np.stack(want))
