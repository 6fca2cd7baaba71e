"""``return`` of values at several places of a tile kernel: what Python returns."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TEXT = """
@op.kernel
def branch(x: f32[n], k: i32) -> f32[n]:
    if k > 0:
        return x * 2.0
    return x + 1.0

@op.kernel
def three(x: f32[m, n], k: i32):
    if k == 0:
        return op.sum(x, axis=1)
    elif k == 1:
        return op.max(x, axis=1)
    else:
        return x[:, 0] * 2.0

@op.kernel
def deep(x: f32[n], k: i32, j: i32) -> f32[n]:
    if k > 0:
        if j > 0:
            return x
        return x * 4.0
    return x * 5.0

@op.kernel
def several(x: f32[n], k: i32):
    y = op.zeros((n,), f32)
    if k > 0:
        for i in op.tile_range(n, step=64):
            y[i:i+64] = x[i:i+64] * 3.0
        return y, op.sum(x)
    if k < 0:
        return y, 0.0
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64]
    return y, op.max(x)

@op.kernel
def first(x: f32[n], limit: f32) -> f32:
    s: f32 = 0.0
    for i in range(n):
        s += x[i]
        if s > limit:
            return s
    return -1.0

@op.kernel
def row(x: f32[m, n], v: f32) -> f32[n]:
    for i in range(m):
        if x[i, 0] == v:
            return x[i, :]
    return x[0, :] * 0.0

@op.kernel
def product(a: bf16[m, k], b: bf16[k, n], flag: i32) -> f32[m, n]:
    if flag > 0:
        return a @ b
    return (a @ b) * 0.5
"""
TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]


@pytest.mark.parametrize("target", TARGETS)
def test_several_ways_out(target: str) -> None:
    module, r = loaded(TEXT, target), np.random.default_rng(0)
    for n in (0, 1, 64, 129):
        x = r.integers(-4, 5, n).astype(np.float32)
        for k in (1, 0, -1):
            flag = np.int32(k)
            same(module.branch(x, flag), x * 2 if k > 0 else x + 1)
            for j in (0, 1):
                want = x * 5 if k <= 0 else x if j > 0 else x * 4
                same(module.deep(x, flag, np.int32(j)), want)
            if n:
                y, s = module.several(x, flag)
                same(y, x * (3 if k > 0 else 1 if k == 0 else 0))
                same(s, x.sum() if k > 0 else x.max() if k == 0 else 0)
    for m, n in ((1, 1), (5, 33), (0, 3)):
        x = r.integers(-4, 5, (m, n)).astype(np.float32)
        for k, want in enumerate((x.sum(1), x.max(1), x[:, 0] * 2)):
            same(module.three(x, np.int32(k)), want)


@pytest.mark.parametrize("target", TARGETS)
def test_ways_out_of_loops(target: str) -> None:
    module, r = loaded(TEXT, target), np.random.default_rng(1)
    for n in (0, 1, 70):
        x = r.integers(1, 5, n).astype(np.float32)
        sums = np.cumsum(x)
        for limit in (0, 3, 100, 1000):
            found = sums[sums > limit]
            same(module.first(x, np.float32(limit)), found[0] if len(found) else -1)
    x = np.arange(6 * 40, dtype=np.float32).reshape(6, 40)
    same(module.row(x, np.float32(120)), x[3])
    same(module.row(x, np.float32(-1)), x[0] * 0)
    a, b = (r.integers(-3, 4, s).astype(ml_dtypes.bfloat16) for s in ((65, 40), (40, 70)))
    for flag, by in ((1, 1.0), (0, 0.5)):
        want = a.astype(np.float32) @ b.astype(np.float32) * by
        same(module.product(a, b, np.int32(flag)), want)


def same(found: Any, want: Any) -> None:
    assert np.array_equal(np.asarray(found), np.asarray(want)), (found, want)
