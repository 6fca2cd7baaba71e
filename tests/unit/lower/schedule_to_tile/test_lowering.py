"""Schedule IR of whole kernels, lowered to register tiles, against the evaluator of Schedule IR."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.verify import verify
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, F16, F32, F64, DType
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.opt.schedule.programs import Kernel, attention, matmul
from tests.unit.tiled import as_tiles

RANDOM = np.random.default_rng(7)


def numbers(shape: tuple[int, ...], dtype: DType = F32) -> np.ndarray[Any, Any]:
    return RANDOM.integers(-4, 5, shape).astype(reference.numpy_type(dtype))


def check(
    kernel: Kernel, *arrays: np.ndarray[Any, Any], arch: str = "sm_80", rtol: float = 0.0
) -> Any:
    remarks: list[Diagnostic] = []
    program, plan = as_tiles(kernel.program, kernel.plan, machine_named("cuda", arch), remarks)
    verify(program)
    assert not [r for r in remarks if r.severity == "error"], remarks
    ours = [a.copy() for a in arrays]
    theirs = [a.copy() for a in arrays]
    found = machine.launch(program, plan, *ours)
    wanted = reference.launch(kernel.program, kernel.plan, *theirs)
    for x, y in zip((*ours, *found), (*theirs, *wanted), strict=True):
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=rtol, atol=rtol)
    return program, plan, remarks


@pytest.mark.parametrize("sizes", [(256, 256, 128), (257, 129, 65), (1, 7, 3), (100, 100, 0)])
@pytest.mark.parametrize("dtype", [F32, BF16, F16, F64], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("tile", [(128, 128, 32), (48, 40, 24)])
@pytest.mark.sample
def test_product(
    sizes: tuple[int, int, int], dtype: DType, transposed: bool, tile: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    if dtype == F64:
        pytest.skip("an f64 accumulator is not what this program has")
    kernel = matmul(m, n, k, dtype=dtype, tile=tile, transposed=transposed, aligned=16)
    b = (n, k) if transposed else (k, n)
    check(
        kernel,
        numbers((m, k), dtype),
        numbers(b, dtype),
        np.zeros((m, n), reference.numpy_type(dtype)),
    )


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("copies", [True, False])
def test_stages(stages: int, copies: bool) -> None:
    kernel = matmul(130, 70, 200, dtype=BF16, tile=(64, 64, 32), transposed=False, attributes={
        "pipeline_stages": stages, "async_copy": copies}, aligned=16)  # fmt: skip
    args = numbers((130, 200), BF16), numbers((200, 70), BF16)
    check(kernel, *args, np.zeros((130, 70), ml_dtypes.bfloat16))


@pytest.mark.parametrize("attributes", [
    {"persistent": True}, {"warps": 1}, {"warps": 8}, {"group_rows": 2}, {"padding": 8},
    {"padding": 1}, {"swizzle": 32}, {"use_shared_memory": False},
    {"persistent": True, "group_rows": 2},
], ids=str)  # fmt: skip
@pytest.mark.sample(5)
def test_directives(attributes: dict[str, Any]) -> None:
    kernel = matmul(130, 70, 100, dtype=BF16, tile=(32, 32, 32), transposed=False,
                    attributes=attributes, aligned=16)  # fmt: skip
    args = numbers((130, 100), BF16), numbers((100, 70), BF16)
    check(kernel, *args, np.zeros((130, 70), ml_dtypes.bfloat16))


@pytest.mark.parametrize("d", [32, 64])
@pytest.mark.parametrize("length", [128, 300])
def test_attention(d: int, length: int) -> None:
    kernel = attention(length, length, 2, d, bm=64, bn=64)
    q, k, v = ((RANDOM.standard_normal((2, length, d)) / 4).astype(ml_dtypes.bfloat16)
               for _ in range(3))  # fmt: skip
    o = np.zeros((2, length, d), ml_dtypes.bfloat16)
    remarks: list[Diagnostic] = []
    program, plan = as_tiles(kernel.program, kernel.plan, machine_named("cuda", "sm_80"), remarks)
    machine.launch(verify(program), plan, q, k, v, o)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    logits = np.einsum("hsd,htd->hst", q, k) * 0.125
    logits -= logits.max(axis=2, keepdims=True)
    p = np.maximum(0, 1 + logits / 64) ** 64
    wanted = np.einsum("hst,htd->hsd", p, v) / p.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(o.astype(np.float64), wanted, rtol=2e-2, atol=2e-2)
