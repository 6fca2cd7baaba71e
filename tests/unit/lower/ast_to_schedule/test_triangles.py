"""Both triangles of a symmetric result, each tile made once: spread, and right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.lowering import lower_source
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.parallel.mapped import mapped
from tests.unit.opt.schedule.parallel.test_map_grid import grid_axes

TEXT = """
@op.kernel
def lower(a: bf16[m, k], c: mut f32[m, m]):
    for i in op.tile_range(m, step=64):
        for j in range(0, i + 64, 64):
            acc = op.zeros((64, 64), f32)
            for p in op.tile_range(k, step=64):
                acc += a[i:i+64, p:p+64] @ a[j:min(j+64, m), p:p+64].T
            c[i:i+64, j:min(j+64, m)] = acc
            c[j:min(j+64, m), i:i+64] = acc.T

@op.kernel
def upper(a: bf16[m, k], c: mut f32[m, m]):
    for i in op.tile_range(m, step=32):
        for j in range(i, m, 32):
            t = a[i:i+32, 0:k] @ a[j:j+32, 0:k].T
            c[i:i+32, j:j+32] = t
            c[j:j+32, i:i+32] = t.T

@op.kernel
def skipped(a: bf16[m, k], c: mut f32[m, m]):
    for i, j in op.tile_range(m, m, step=32):
        if j > i: continue
        t = a[i:i+32, 0:k] @ a[j:j+32, 0:k].T
        c[i:i+32, j:j+32] = t
        c[j:j+32, i:i+32] = t.T
"""


@pytest.mark.parametrize("target", ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU])
def test_values(target: str) -> None:
    module, r = loaded(TEXT, target), np.random.default_rng(0)
    for m in (0, 31, 130):
        a = r.integers(-3, 4, (m, 40)).astype(ml_dtypes.bfloat16)
        want = a.astype(np.float32) @ a.astype(np.float32).T
        for name in ("lower", "upper", "skipped"):
            c = np.zeros((m, m), np.float32)
            getattr(module, name)(a, c)
            assert np.array_equal(c, want), (name, m)


@pytest.mark.parametrize(("name", "axes"), [("lower", 1), ("upper", 1), ("skipped", 2)])
def test_groups(name: str, axes: int) -> None:
    kernels = [f"@op.kernel{k}" for k in TEXT.split("@op.kernel")]
    (text,) = (k for k in kernels if f"def {name}(" in k)
    arrays = np.zeros((130, 40), ml_dtypes.bfloat16), np.zeros((130, 130), np.float32)
    program, _, _ = lower_source(text, *arrays)
    assert len(grid_axes(mapped(program, []))) == axes
