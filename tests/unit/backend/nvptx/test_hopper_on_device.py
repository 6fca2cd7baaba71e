"""Kernels for Hopper on a device of compute capability 9.0, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from tessera_backend.device.driver import device
from tessera_backend.device.launch import CudaKernel
from tessera_backend.device.memory import DeviceMemory, copy_to_device, copy_to_host
from tessera_backend.nvptx.backend import BACKEND

from tessera_lang.ir.core import Program
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import DTYPES, DType
from tests.unit.backend.nvptx.hopper_attention import BLOCK, DEPTH, ROWS, attention
from tests.unit.backend.nvptx.hopper_gemm import Form, gemm
from tests.unit.backend.nvptx.hopper_product import CASES, Case, product
from tests.unit.backend.nvptx.test_hopper import FORMS

Array = npt.NDArray[np.generic]


def _no_hopper() -> bool:
    return bool(BACKEND.available()) or device(0).capability != (9, 0)


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_no_hopper(), reason="no device of compute capability 9.0"),
]

NUMPY: dict[str, npt.DTypeLike] = {
    "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16, "f32": np.float32, "i8": np.int8, "u8": np.uint8, "i32": np.int32,
}  # fmt: skip


@dataclass(frozen=True)
class Mapped:
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def launch(
    made: tuple[Program, LaunchPlan], arrays: Sequence[Array], numbers: Sequence[int] = (),
    groups: int = 1,
) -> Array:  # fmt: skip
    """The last array after the launch."""
    where = device(0)
    artifact = BACKEND.compile(*made, TargetOptions("cuda", "sm_90a"), ())
    code = CudaKernel(artifact, where)
    buffer = code.buffer()
    held = [DeviceMemory(where, a.nbytes) for a in arrays]
    maps: dict[int, Mapped] = {}
    for at, (memory, array) in enumerate(zip(held, arrays, strict=True)):
        copy_to_device(where, memory.pointer, array.ctypes.data, array.nbytes)
        buffer.block[at] = memory.pointer
        slot = made[1].slots[at]
        if slot.kind == "tensor_map":
            strides = tuple(s // array.itemsize for s in array.strides)
            maps[at] = Mapped(DTYPES[slot.dtype], array.shape, strides)
    for at, number in enumerate(numbers, len(arrays)):
        buffer.block[at] = number
    code.launcher(buffer, groups, 1, 1, maps)(0)
    out = np.empty_like(arrays[-1])
    copy_to_host(where, out.ctypes.data, held[-1].pointer, out.nbytes)
    return out


def normals(shape: Sequence[int], dtype: str, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if dtype in ("i8", "u8"):
        low, high = (-128, 128) if dtype == "i8" else (0, 256)
        return random.integers(low, high, shape).astype(NUMPY[dtype])
    return random.standard_normal(shape, dtype=np.float32).astype(NUMPY[dtype])


def exact(array: Array) -> npt.NDArray[np.float64]:
    """As float64; f32 as the matrix unit sees it, which takes the upper 19 bits."""
    if array.dtype == np.float32:
        array = (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return array.astype(np.float64)


def narrowed(array: npt.NDArray[np.float64]) -> Array:
    return array.astype(np.float32).astype(NUMPY["bf16"])


@pytest.mark.parametrize("name", CASES)
def test_products(name: str) -> None:
    case: Case = CASES[name]
    first, second = case.shapes()
    a, b = normals(first, case.a.name, 1), normals(second, case.b.name, 2)
    c = np.full((case.m, case.n), 7, NUMPY[case.c.name])
    found = launch(product(case), [a, b, c]).astype(np.float64)
    left = exact(a.T if case.across_a else a)[case.row :][: case.m]
    right = exact(b if case.across_b else b.T)[:, case.column :][:, : case.n]
    expected = left @ right + (7 if case.reduce else 0)
    # The unit adds products of 8-bit floats in fewer bits than f32 has.
    bound = 0 if case.a.is_integer else 4e-4 if case.a.bytes == 1 else 1e-6
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("depth", [64, 448])
def test_matrices(name: str, depth: int) -> None:
    form: Form = FORMS[name]
    m, n = 8 * form.rows * form.cluster, 2 * form.columns
    a, b = normals((m, depth), "bf16", 1), normals((n, depth), "bf16", 2)
    c = np.full((m, n), np.nan, NUMPY["bf16"])
    tiles = 16
    program, plan = gemm(form)
    plan = replace(plan, persistent=form.persistent)
    groups = (tiles if not form.persistent else 3) * form.cluster
    found = launch((program, plan), [a, b, c], [depth // 64, tiles, 2], groups)
    expected = exact(a) @ exact(b).T
    error = np.abs(found.astype(np.float64) - expected).max()
    assert error <= 2**-8 * np.abs(expected).max()


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_chained_products(blocks: int) -> None:
    groups = 3
    q = narrowed(0.1 * exact(normals((groups * ROWS, DEPTH), "f32", 1)))
    k, v = (normals((blocks * BLOCK, DEPTH), "bf16", seed) for seed in (2, 3))
    out = np.full((groups * ROWS, DEPTH), np.nan, np.float32)
    found = launch(attention(), [q, k, v, out], [blocks], groups).astype(np.float64)
    scores = exact(q) @ exact(k).T
    most = np.full((len(q), 1), -np.inf)
    total, acc = np.zeros((len(q), 1)), np.zeros((len(q), DEPTH))
    for block in range(blocks):
        here = slice(block * BLOCK, (block + 1) * BLOCK)
        higher = np.maximum(most, scores[:, here].max(axis=1, keepdims=True))
        scale = np.where(np.isinf(most), 0, 1 / (1 + (higher - most) ** 2))
        weights = 1 / (1 + (higher - scores[:, here]) ** 2)
        total = total * scale + weights.sum(axis=1, keepdims=True)
        acc = acc * scale + exact(narrowed(weights)) @ exact(v[here])
        most = higher
    expected = acc / total
    assert np.abs(found - expected).max() <= 2e-2 * np.abs(expected).max()
