"""Kernels on register tiles on a CUDA device, against NumPy in float64."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.device.driver import device
from tessera_backend.device.launch import CudaKernel
from tessera_backend.device.memory import DeviceMemory, copy_to_device, copy_to_host
from tessera_backend.nvptx.backend import BACKEND

from tessera_lang.analysis.resources.register_layouts import blocked, mma_a, mma_b, mma_c, wgmma_c
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.dtype import BF16, DTYPES, F16, F32, F64, I8, I32, DType
from tests.unit.backend.nvptx.on_device import needs_device
from tests.unit.backend.nvptx.tile_kernels import (
    Made,
    carried,
    converts,
    copy_tile,
    gather,
    lanes_and_tiles,
    reductions,
    scans,
    softmax,
    strided,
    transpose,
)
from tests.unit.backend.nvptx.tile_products import gemm, simt_async, simt_gemm

pytestmark = [pytest.mark.gpu, needs_device]

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "i32": np.int32, "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
GUARD = 64


class Launcher:
    """A compiled kernel. Written arrays lie between guards that must stay as they are."""

    def __init__(self, made: Made) -> None:
        program, plan = made
        self.code = CudaKernel(BACKEND.compile(program, plan, TargetOptions("cuda"), ()), device(0))

    def __call__(
        self, arrays: Sequence[Array], numbers: Sequence[int], groups: tuple[int, ...] = (1,)
    ) -> list[Array]:
        where = device(0)
        held: list[DeviceMemory] = []
        for array in arrays:
            memory = DeviceMemory(where, array.nbytes + 2 * GUARD)
            framed = np.full(array.nbytes + 2 * GUARD, 0xA5, np.uint8)
            framed[GUARD : GUARD + array.nbytes] = (
                np.ascontiguousarray(array).view(np.uint8).ravel()
            )
            copy_to_device(where, memory.pointer, framed.ctypes.data, framed.nbytes)
            held.append(memory)
        self.code.launch([*(m.pointer + GUARD for m in held), *numbers], groups)
        results: list[Array] = []
        for memory, array in zip(held, arrays, strict=True):
            framed = np.empty(array.nbytes + 2 * GUARD, np.uint8)
            copy_to_host(where, framed.ctypes.data, memory.pointer, framed.nbytes)
            inner = framed[GUARD : GUARD + array.nbytes]
            assert (framed[:GUARD] == 0xA5).all() and (framed[GUARD + array.nbytes :] == 0xA5).all()
            results.append(inner.view(array.dtype).reshape(array.shape))
        return results


def numbers(shape: Sequence[int], dtype: DType, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    if not dtype.is_float:
        return generator.integers(-100, 100, shape).astype(NUMPY[dtype.name])
    return generator.standard_normal(shape).astype(NUMPY[dtype.name])


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == np.ascontiguousarray(b).tobytes()


SHAPES = [(64, 128), (100, 128), (130, 77), (1, 1), (64, 126), (70, 124), (3, 16)]


@pytest.mark.parametrize("dtype", [F32, BF16, I8, F64])
def test_copies_of_any_size(dtype: DType) -> None:
    run = Launcher(copy_tile(dtype))
    for shape in SHAPES:
        x = numbers(shape, dtype)
        y = run([x, np.zeros_like(x)], [*shape, *shape], (-(-shape[0] // 64),))[1]
        assert same(y, x), shape


@pytest.mark.parametrize(
    ("dtype", "size", "swizzle"),
    [(F32, 64, False), (BF16, 64, True), (F32, 64, True), (I8, 128, True)],
)
def test_transposes_of_any_size(dtype: DType, size: int, swizzle: bool) -> None:
    run = Launcher(transpose(dtype, size, swizzle))
    for shape in [(128, 128), (100, 77), (65, 33), (64, 72)]:
        x = numbers(shape, dtype)
        groups = tuple(-(-n // size) for n in shape)
        y = run([x, np.zeros(shape[::-1], x.dtype)], [*shape, *shape[::-1]], groups)[1]
        assert same(y, x.T), shape


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_strides_and_steps(dtype: DType) -> None:
    run = Launcher(strided(dtype))
    for rows, columns in [(32, 64), (20, 50), (1, 1)]:
        x = numbers((2 * columns, rows), dtype)
        y = run([x, np.zeros((rows, columns), x.dtype)], [*x.shape, rows, 1, rows, columns])[1]
        assert same(y, x[::2].T)


@pytest.mark.parametrize(
    ("dtype", "shared"),
    [(BF16, SharedLayout(1, 64, 64, 128)), (F32, SharedLayout(0, 32, 32, 128)),
     (I8, SharedLayout(1, 32, 48))],
)  # fmt: skip
def test_tiles_and_lanes_agree_on_a_buffer(dtype: DType, shared: SharedLayout) -> None:
    x = numbers((64, 64), dtype)
    assert same(Launcher(lanes_and_tiles(dtype, shared))([x, np.zeros_like(x)], [64] * 4)[1], x)


def test_tiles_are_carried() -> None:
    x = numbers((8, 128), F32)
    run = Launcher(carried())
    for count, odd in [(0, 1), (3, 1), (3, 0)]:
        y = run([x, np.zeros_like(x)], [8, 128, 8, 128, count, odd])[1]
        assert same(y, x * np.float32(2 ** (count * odd)))


def across(shape: tuple[int, int]) -> RegisterLayout:
    rows, columns = shape
    return RegisterLayout(
        (Mode(columns // 128, 1, 1), Mode(rows, 0, 1)),
        (Mode(32, 1, columns // 128),), (Mode(4, 1, columns // 4),),
    )  # fmt: skip


def mixed(shape: tuple[int, int]) -> RegisterLayout:
    """Registers, lanes and warps all over both axes."""
    rows, columns = shape
    return RegisterLayout(
        (Mode(2, 1, 1), Mode(columns // 32, 1, 32), Mode(rows // 8, 0, 8)),
        (Mode(8, 1, 2), Mode(4, 0, 1)), (Mode(2, 1, 16), Mode(2, 0, 4)),
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "layout"), [(64, None), (8, across((8, 256)))])
def test_a_softmax_of_any_size(rows: int, layout: RegisterLayout | None) -> None:
    run = Launcher(softmax(rows, 256, layout))
    for shape in [(2 * rows, 256), (rows + 3, 255), (5, 100), (7, 1)]:
        x = numbers(shape, F32)
        y = run([x, np.zeros_like(x)], [*shape, *shape], (-(-shape[0] // rows),))[1]
        wide = x.astype(np.float64)
        weight = 1 / (1 + (wide - wide.max(1, keepdims=True)) ** 2)
        assert np.allclose(y, weight / weight.sum(1, keepdims=True), rtol=1e-5, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [F32, I32])
@pytest.mark.parametrize("kind", ["add", "max", "min", "argmax", "argmin"])
def test_reductions(kind: str, dtype: DType, axis: int) -> None:
    shape = (16, 64)
    x = numbers(shape, dtype)
    if dtype == F32 and kind != "add":
        x[3, 5] = x[3, 40] = np.nan
    else:
        x = np.round(x / 16).astype(x.dtype)  # with ties
    for layout in (blocked(shape, 4, 4), blocked(shape, 2, 4, (0, 1)), mixed(shape)):
        out = np.zeros(shape[1 - axis], np.int32 if kind.startswith("arg") else x.dtype)
        y = Launcher(reductions(kind, dtype, shape, axis, layout))([x, out], [*shape, out.size])[1]
        name = {"add": "sum"}.get(kind, kind)
        wanted = getattr(np, name)(x.astype(np.float64), axis)
        assert np.array_equal(y.astype(np.float64), wanted, equal_nan=True)


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis: int, inclusive: bool) -> None:
    shape = (16, 64)
    x = numbers(shape, I32)
    for kind, layout in itertools.product(("add", "max"), (blocked(shape, 4, 4), mixed(shape))):
        run = Launcher(scans(kind, I32, shape, axis, layout, inclusive))
        y = run([x, np.zeros_like(x)], [*shape, *shape])[1]
        full = {"add": np.cumsum, "max": np.maximum.accumulate}[kind](x, axis)
        if not inclusive:
            full = np.roll(full, 1, axis)
            first = 0 if kind == "add" else np.iinfo(np.int32).min
            full[(slice(None), 0) if axis else (0,)] = first
        assert np.array_equal(y, full)


LAYOUTS = {
    "rows": blocked((64, 64), 8, 4), "columns": blocked((64, 64), 8, 4, (0, 1)),
    "c": mma_c((64, 64), 2, 2), "a": mma_a((64, 64), 4, 1, BF16),
    "b": mma_b((64, 64), 1, 4, BF16), "group": wgmma_c((64, 64), 1), "mixed": mixed((64, 64)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize(
    "pair", ["rows c", "c rows", "columns a", "rows b", "group rows", "mixed c", "b mixed"]
)
def test_layouts_change(pair: str, dtype: DType) -> None:
    a, b = (LAYOUTS[name] for name in pair.split())
    x = numbers((64, 64), dtype)
    assert same(Launcher(converts(dtype, (64, 64), a, b))([x, np.zeros_like(x)], [64] * 4)[1], x)


def test_layouts_of_odd_sizes_change() -> None:
    x = numbers((12, 20), F32)
    made = converts(F32, (12, 20), blocked((12, 20), 4, 4), blocked((12, 20), 2, 4, (0, 1)))
    assert same(Launcher(made)([x, np.zeros_like(x)], [12, 20, 12, 20])[1], x)


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_rows_are_gathered_and_rows_outside_are_zero(dtype: DType) -> None:
    run = Launcher(gather(dtype, 32, 64))
    for columns in (64, 48, 33):
        x = numbers((100, columns), dtype)
        rows = np.random.default_rng(1).integers(0, 100, 32).astype(np.int32)
        rows[3], rows[9] = -1, 100
        out = np.zeros((32, columns), x.dtype)
        y = run([x, rows, out], [100, columns, 32, 32, columns])[2]
        wanted = x[rows.clip(0, 99)]
        wanted[[3, 9]] = 0
        assert same(y, wanted)


F8 = DTYPES["f8e4m3"]
PRODUCTS: dict[str, tuple[Any, tuple[int, int], float]] = {
    "bf16": (lambda: gemm(BF16), (128, 128), 2e-6),
    "bf16 from buffers": (lambda: gemm(BF16, from_buffers=True), (128, 128), 2e-6),
    "f16 b transposed": (lambda: gemm(F16, b_major=0), (128, 128), 2e-6),
    "bf16 odd fragments": (lambda: gemm(BF16, (96, 48, 48), warps=(2, 1)), (96, 48), 2e-6),
    "tf32": (lambda: gemm(F32, precision="tf32"), (128, 128), 2e-3),
    "tf32 b transposed": (lambda: gemm(F32, precision="tf32", b_major=0), (128, 128), 2e-3),
    "i8": (lambda: gemm(I8, (128, 128, 64), b_major=0, out=I32), (128, 128), 0.0),
    "f8": (lambda: gemm(F8, (64, 64, 64), b_major=0), (64, 64), 2e-6),
    "f32": (lambda: simt_gemm(), (128, 128), 2e-6),
    "f32 ring": (lambda: simt_async(), (256, 128), 2e-6),
    "f32 loop": (lambda: simt_gemm(F32, (64, 64, 160), (2, 2)), (64, 64), 2e-6),
    "f32 in fragments": (lambda: gemm(F32, from_buffers=True), (128, 128), 2e-6),
    "f64": (lambda: simt_gemm(F64, (64, 64, 16), (2, 2)), (64, 64), 1e-14),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    build, (rows, columns), tolerance = PRODUCTS[name]
    made = build()
    run = Launcher(made)
    kinds = [DTYPES[p.dtype] for p in made[1].parameters]
    turned = "transposed" in name or name in ("i8", "f8")
    for m, n, k in [(256, 256, 256), (200, 144, 80), (16, 16, 512), (144, 272, 48)]:
        a, b = numbers((m, k), kinds[0], 1), numbers((k, n), kinds[1], 2)
        given = np.ascontiguousarray(b.T) if turned else b
        out = np.full((m, n), -7, NUMPY[kinds[2].name])
        groups = (-(-m // rows), -(-n // columns))
        c = run([a, given, out], [m, k, *given.shape, m, n], groups)[2]
        x, y = a.astype(np.float64), b.astype(np.float64)
        error = np.abs(c - x @ y) / (np.abs(x) @ np.abs(y) + 1e-30)
        assert error.max() <= tolerance, (m, n, k)


def test_narrow_rows_are_copied_by_four_bytes() -> None:
    run = Launcher(gemm(BF16, vector=4, divisors=2))
    m, n, k = 130, 146, 70
    a, b = numbers((m, k), BF16, 1), numbers((k, n), BF16, 2)
    c = run([a, b, np.zeros((m, n), np.float32)], [m, k, k, n, m, n], (2, 2))[2]
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert (np.abs(c - x @ y) <= 2e-6 * (np.abs(x) @ np.abs(y))).all()
