"""Operands and results that lie the other way round than the asynchronous unit takes or gives them:
first operands read by lanes, transposed results by TMA."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.record import replace

TF32 = """
@op.kernel
def kernel(a: f32[m, k], b: f32[k, n]) -> f32[m, n]:
    schedule.tile((128, 64, 32))
    return op.matmul(a, b, precision="tf32")
"""
TRANSPOSED = """
@op.kernel
def kernel(a: f32[m, k], b: f32[n, k]) -> f32[n, m]:
    c = op.empty((n, m), f32)
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), f32)
        for p in op.tile_range(k, step=32):
            acc += op.matmul(a[i:i+128, p:p+32], b[j:j+64, p:p+32].T, precision="tf32")
        c[j:j+64, i:i+128] = acc.T
    return c
"""


def tile_ir(text: str, m: int, n: int, k: int) -> Operation:
    session = Session(overlay={"kernel.tessera": text})
    wanted = session.signature("kernel.tessera", "kernel", f"a: f32[{m}, {k}], b: f32[{k}, {n}]")
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machine("kernel.tessera", "kernel", wanted, machine)
    assert made.lowered is not None
    return made.lowered[0].operations[0]


def on_the_machine(text: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    options = replace(options_from_environment(), target="cpu", arch_as="sm_90a")
    module = Module("<source>", SessionProvider("<source>", options, text=text), "cpu")
    return np.asarray(module.kernel(a, b))


@pytest.mark.parametrize("sizes", [(128, 64, 32), (200, 140, 104), (132, 68, 0), (256, 128, 256)])
@pytest.mark.parametrize("text", [TF32, TRANSPOSED])
@pytest.mark.sample(4)
def test_results(text: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(5)
    a = rng.integers(-4, 5, (m, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    if text is TF32:
        np.testing.assert_array_equal(on_the_machine(text, a, b), a @ b)
    else:
        bt = np.ascontiguousarray(b.T)
        np.testing.assert_array_equal(on_the_machine(text, a, bt), (a @ b).T)


def test_a_transposed_result_leaves_by_tma() -> None:
    """Its buffer lies along the lines of the array, which are columns of the tile."""
    kernel = tile_ir(TF32, 512, 512, 512)
    stores = [o for o in kernel.walk() if o.name == "tma.store"]
    buffers = [o.operands[0].type for o in stores]
    assert stores
    for t in buffers:
        assert isinstance(t, BufferType) and t.layout is not None and t.layout.major == 0
