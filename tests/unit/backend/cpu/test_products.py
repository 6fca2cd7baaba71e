"""``tile.dot_into``: every shape, dtype, transposition and vector width, and its neighbours."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.backend import BACKEND
from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.elf import ElfObject
from tessera_backend.cpu.entry import emit_kernel
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.llvm_codegen import code_target, compile_text
from tessera_backend.cpu.precompiled_functions import with_embedded
from tessera_backend.cpu.simd_target import vector_unit
from tessera_backend.cpu.thread_pool import CpuKernel

from tessera_lang.ir.core import PointerType, Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.ir.verify import verify
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import F32, F64, I32, I64, INDEX, DType

NUMPY: dict[DType, Any] = {F32: np.float32, F64: np.float64, I32: np.int32, I64: np.int64}
Shape = tuple[int, ...]


def _copy(
    b: Builder, source: Value, to: Value, shape: Shape, index: tuple[Value, ...] = ()
) -> None:
    """Every element of one array or buffer to another of its shape."""
    if len(index) == len(shape):
        b.store(b.load(source, index, "proved"), to, index, "proved")
        return
    with b.region(("i", INDEX)) as body:
        _copy(b, source, to, shape, (*index, body.arguments[0]))
        b.yield_()
    b.for_(b.index(0), b.index(shape[len(index)]), b.index(1), (), body.region)


def product(
    dtype: DType, shapes: list[Shape], turn: tuple[bool, bool]
) -> tuple[Program, LaunchPlan]:
    """c += a @ b in buffers of these shapes; the numbers are rows, columns and terms."""
    b = Builder()
    names = ["a", "b", "c"]
    arguments = [(n, PointerType(dtype, "global")) for n in names]
    numbers = [(n, INDEX) for n in ("m", "n", "k")]
    with b.region(*arguments, *numbers) as region:
        pointers, extents = region.arguments[:3], region.arguments[3:]
        buffers = [b.shared_alloc(dtype, s, n) for s, n in zip(shapes, names, strict=True)]
        views = [
            b.view(p, [b.index(n) for n in s], shape=s, mut=True)
            for p, s in zip(pointers, shapes, strict=True)
        ]
        for view, buffer, shape in zip(views, buffers, shapes, strict=True):
            _copy(b, view, buffer, shape)
        attributes = {"transpose_a": turn[0], "transpose_b": turn[1]}
        batch = shapes[2][:-2]

        def multiply(index: tuple[Value, ...]) -> None:
            if len(index) == len(batch):
                b.emit("tile.dot_into", (*buffers, *extents, *index), (), attributes)
                return
            with b.region(("z", INDEX)) as body:
                multiply((*index, body.arguments[0]))
                b.yield_()
            b.for_(b.index(0), b.index(batch[len(index)]), b.index(1), (), body.region)

        multiply(())
        _copy(b, buffers[2], views[2], shapes[2])
        b.return_()
    every = [*names, "m", "n", "k"]
    b.kernel("k", region.region, group=(1,), grid_rank=1, parameters=every)
    slots = [Slot("data", n) for n in range(3)] + [Slot("scalar", n) for n in range(3, 6)]
    return b.program(), LaunchPlan("k", (), tuple(slots), (1,), None)


def run(
    dtype: DType, shapes: list[Shape], turn: tuple[bool, bool], sizes: list[Shape], arch: str
) -> None:
    """Compares with NumPy; what is beyond rows and columns (up to a vector) stays."""
    program, plan = product(dtype, shapes, turn)
    kernel = CpuKernel(BACKEND.compile(verify(program), plan, TargetOptions("cpu", arch), ()))
    random = np.random.default_rng(0)
    lanes = vector_unit(code_target(arch)).lanes(dtype)
    for m, n, k in sizes:
        arrays = [random.integers(-9, 9, s).astype(NUMPY[dtype]) for s in shapes]
        before = arrays[2].copy()
        a, b = (x.swapaxes(-1, -2) if t else x for x, t in zip(arrays, turn, strict=False))
        want = before[..., :m, :n] + a[..., :m, :k] @ b[..., :k, :n]
        slots = (ctypes.c_int64 * 6)(*(x.ctypes.data for x in arrays), m, n, k)
        kernel.launch(slots, (1,), 1)
        np.testing.assert_array_equal(arrays[2][..., :m, :n], want, f"{m} {n} {k}")
        np.testing.assert_array_equal(arrays[2][..., m:, :], before[..., m:, :])
        padded = shapes[2][-1] % lanes == 0
        kept = -(-n // lanes) * lanes if padded else n
        np.testing.assert_array_equal(arrays[2][..., kept:], before[..., kept:])


SIZES = [(0, 5, 3), (5, 0, 3), (3, 4, 0), (1, 1, 1), (7, 33, 5), (13, 50, 11), (12, 48, 16)]
TURNS = [(False, False), (True, False), (False, True), (True, True)]


def shapes_of(m: int, n: int, k: int, turn: tuple[bool, bool]) -> list[Shape]:
    return [(k, m) if turn[0] else (m, k), (n, k) if turn[1] else (k, n), (m, n)]


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("dtype", [F32, F64, I32, I64])
@pytest.mark.sample(1)
def test_dtypes_and_transpositions(dtype: DType, turn: tuple[bool, bool]) -> None:
    run(dtype, shapes_of(16, 64, 16, turn), turn, SIZES, "native")


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.sample(1)
def test_rows_that_are_no_whole_vectors(turn: tuple[bool, bool]) -> None:
    run(F32, shapes_of(13, 53, 17, turn), turn, [*SIZES[:-1], (13, 53, 17)], "native")


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.skipif(host_machine() != "x86_64", reason="names of another machine's processors")
@pytest.mark.sample(1)
def test_narrower_vectors(turn: tuple[bool, bool]) -> None:
    run(F32, shapes_of(16, 64, 16, turn), turn, SIZES, "haswell")
    run(F64, shapes_of(13, 53, 17, turn), turn, [(13, 53, 17)], "haswell")


@pytest.mark.parametrize("turn", [(False, False), (True, True)])
@pytest.mark.sample(1)
def test_batches(turn: tuple[bool, bool]) -> None:
    shapes = [(2, 3, *s) for s in shapes_of(9, 32, 5, turn)]
    run(F32, shapes, turn, [(9, 32, 5), (4, 17, 3)], "native")


@pytest.mark.sample(2)
@pytest.mark.parametrize("turn", TURNS)
def test_embedded_micro_kernels_need_nothing_from_outside(turn: tuple[bool, bool]) -> None:
    """Bytes of functions compiled apart, in a module without them."""
    program, plan = product(F32, shapes_of(16, 64, 16, turn), turn)
    target = code_target("native")
    module = emit_kernel(program.operations[0], plan, target)
    assert len(module.entries) == 1 and "dot." not in module.apart
    text = with_embedded(module.apart, module.shared, module.entries, target, 2)
    assert text is not None and text.startswith("target triple")
    image = ElfObject(compile_text(text, target, 2, ()).code, host_machine()).image()
    image.resolve(bytearray(image.content), 1 << 30)
    assert plan.entry in image.entries


@pytest.mark.parametrize("cpu", ["cortex-a76", "neoverse-v1"])
def test_micro_kernels_for_arm_run_wherever_they_stand(cpu: str) -> None:
    binding = pytest.importorskip("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = CodeTarget("aarch64-unknown-none-elf", cpu, "", True)
    for turn in TURNS:
        program, plan = product(F32, shapes_of(16, 64, 16, turn), turn)
        module = emit_kernel(program.operations[0], plan, target)
        text = with_embedded(module.apart, module.shared, module.entries, target, 2)
        assert text is not None and ".byte" in text


def test_what_does_not_go_together_is_refused() -> None:
    program, _ = product(F32, shapes_of(4, 16, 4, (False, False)), (False, False))
    verify(program)
    other, _ = product(F32, [(4, 4), (4, 16), (2, 4, 16)], (False, False))
    with pytest.raises(Exception, match="an index for each axis"):
        verify(other)
