"""Products by multiply-adds whose second factor lies along the contraction in shared memory: the
lanes of a warp read lines in banks of their own, and the results are those of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.analysis.resources.register_layouts import bank_degree
from tessera_lang.ir.core import BufferType
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.lower.schedule_to_tile.common.fma_products import multiply_add_layout
from tessera_lang.record import replace
from tessera_lang.types.dtype import F32

TEXT = """
@op.kernel
def kernel(q: {t}[m, d], k: {t}[n, d], v: {t}[n, e]) -> {t}[m, e]:
    y = op.empty((m, e), {t})
    for i in op.tile_range(m, step=32):
        acc = op.zeros((32, e), {t})
        total = op.zeros((32,), {t})
        for j in op.tile_range(n, step=64):
            s = op.abs(q[i:i+32, :] @ k[j:j+64, :].T)
            total += op.sum(s, axis=1)
            acc += s @ v[j:j+64, :]
        y[i:i+32, :] = acc / total[:, None]
    return y
"""


@pytest.mark.parametrize("across", [2, 4, 8])
def test_lines_of_neighbouring_lanes_are_in_banks_of_their_own(across: int) -> None:
    made = multiply_add_layout((64, 64), 2, 2, across, apart=True)
    along = RegisterLayout(
        (Mode(4, 1, 1),),
        tuple(replace(m, axis=0) if m.axis == 1 else Mode(m.extent, None) for m in made.lanes),
        (),
    )
    lines = BufferType(F32, (64, 64), layout=SharedLayout(1, 32, 32, 128))
    assert bank_degree(along, lines, vector=4) == 1


@pytest.mark.sample(6)
@pytest.mark.parametrize("where", ["sm_90a", "sm_80", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("sizes", [(70, 130, 64, 64), (40, 200, 24, 40)])
def test_results(where: str, dtype: str, sizes: tuple[int, ...]) -> None:
    m, n, d, e = sizes
    rng = np.random.default_rng(m)
    kind = np.float32 if dtype == "f32" else np.float64
    q, k, v = (rng.standard_normal(s).astype(kind) for s in ((m, d), (n, d), (n, e)))
    text = TEXT.replace("{t}", dtype)
    options = options_from_environment()
    target = "cuda" if where == "cuda" else "cpu"
    options = replace(options, target=target, arch_as="" if where == "cuda" else where)
    module = Module("<source>", SessionProvider("<source>", options, text=text), target)
    s = np.abs(q.astype(np.float64) @ k.T)
    wanted = (s @ v) / s.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(module.kernel(q, k, v), wanted, atol=2e-5)
