"""Kernels on a CUDA device: results, atomics, faults, threads, several devices."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from tessera_backend.device.driver import device, devices, driver
from tessera_backend.device.launch import CudaKernel
from tessera_backend.device.memory import DeviceMemory, copy_to_host, fault_record

from tessera_lang.ir.core import Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import F16, F32, F64, I8, I16, I32, I64, U8, DType
from tests.unit.backend.nvptx.kernels import kernel, lane, load, store
from tests.unit.backend.nvptx.on_device import compiled, needs_device, run
from tests.unit.backend.nvptx.test_ptx import atomic, element_wise, through_shared

pytestmark = [pytest.mark.gpu, needs_device]
LANES = 128


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("kind", ["cubin", "ptx"])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
def test_arithmetic_is_numpys_to_the_last_bit(operation: str, kind: str) -> None:
    x, y = numbers(8 * LANES, 1), numbers(8 * LANES, 2)
    expected = {"add": x + y, "sub": x - y, "mul": x * y, "div": x / y}[operation]
    out = run(compiled(element_wise(operation), kind), [x, y, np.zeros_like(x)], (8,))[2]
    assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))


def test_subnormals_are_kept() -> None:
    x = np.full(LANES, np.float32(2.0**-130))
    out = run(element_wise("add"), [x, x, np.zeros_like(x)])[2]
    assert np.array_equal(out, x + x)


@pytest.mark.parametrize("count", [128, 20_000])
def test_shared_memory_static_and_dynamic(count: int) -> None:
    x = numbers(4 * LANES)
    out = run(through_shared(count), [x, np.zeros_like(x)], (4,))[1]
    assert np.array_equal(out, x.reshape(4, LANES)[:, ::-1].ravel())


def into_one(kind: str, dtype: DType, every: int = 1) -> tuple[Program, LaunchPlan]:
    """Every lane's value into element ``lane % every``."""

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        i = lane(b)
        attributes = {
            "kind": kind, "scope": "device", "order": "relaxed", "bounds": "proved", "site": -1,
        }  # fmt: skip
        place = b.binary("mod", i, b.index(every))
        b.emit("tile.atomic", (load(b, x, i), out, place), (dtype,), attributes)

    return kernel([("x", dtype, False), ("out", dtype, True)], body)


@pytest.mark.parametrize(
    ("dtype", "numpy"), [(I8, np.int8), (U8, np.uint8), (I16, np.int16), (I32, np.int32),
                         (I64, np.int64), (F16, np.float16), (F32, np.float32), (F64, np.float64)],
)  # fmt: skip
def test_contended_atomic_adds_lose_nothing_and_touch_no_neighbour(
    dtype: DType, numpy: type[np.generic]
) -> None:
    x = np.ones(16 * LANES, numpy)
    out = run(into_one("add", dtype, 3), [x, np.zeros(8, numpy)], (16,))[1]
    count = np.bincount(np.arange(16 * LANES) % 3, minlength=8).astype(numpy)
    assert np.array_equal(out, count)


@pytest.mark.parametrize("kind", ["min", "max"])
def test_atomic_extremes_know_signed_zero_and_nan(kind: str) -> None:
    x = numbers(LANES)
    best = x.min() if kind == "min" else x.max()
    start = np.float32(np.inf if kind == "min" else -np.inf)
    out = run(into_one(kind, F32), [x, np.full(1, start)])[1]
    assert out[0] == best
    zeros = np.zeros(LANES, np.float32)
    zeros[17] = -0.0
    out = run(into_one(kind, F32), [zeros, np.full(1, start)])[1]
    assert np.signbit(out[0]) == (kind == "min")
    x[99] = np.nan
    out = run(into_one(kind, F32), [x, np.full(1, start)])[1]
    assert np.isnan(out[0])


@pytest.mark.parametrize(("scope", "order"), [("mesh", "relaxed"), ("device", "acq_rel")])
def test_atomics_with_order_and_scope_give_the_old_value(scope: str, order: str) -> None:
    out = run(atomic("add", I32, scope, order), [np.arange(LANES, dtype=np.int32)], scalars=[5])[0]
    assert np.array_equal(out, np.arange(LANES) + 5)


def guarded() -> tuple[Program, LaunchPlan]:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, _ = values
        i = lane(b)
        store(b, load(b, x, i, "guarded", 0), out, i, "guarded", 1)

    return kernel([("x", F32, False), ("out", F32, True)], body, sites=2)


def test_a_fault_is_reported_and_nothing_outside_is_touched() -> None:
    record = fault_record(device(0))
    record.take()
    x = numbers(LANES)
    out = run(guarded(), [x, np.zeros_like(x)], n=100)[1]
    assert np.array_equal(out[:100], x[:100]) and not out[100:].any()
    words = record.take()
    assert words is not None
    state, axis, index, bound, group, where = words[:6]
    assert state in (1, 2) and axis == 0 and 100 <= index < LANES
    assert (bound, group) == (100, 0) and where == index


def test_no_fault_is_reported_inside() -> None:
    record = fault_record(device(0))
    record.take()
    x = numbers(LANES)
    assert np.array_equal(run(guarded(), [x, np.zeros_like(x)])[1], x)
    assert record.take() is None


def test_a_new_thread_launches() -> None:
    code = CudaKernel(compiled(atomic("add", I32)), device(0))
    memory = DeviceMemory(device(0), 4 * LANES)
    failures: list[BaseException] = []

    def body() -> None:
        try:
            code.launch([memory.pointer, 0, LANES], (1,))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    assert not failures


def test_the_drivers_report_agrees_with_ptxas() -> None:
    artifact = compiled(element_wise())
    found = CudaKernel(artifact, device(0)).module.resources()
    assert artifact.kind == "ptx" or found.registers == artifact.resources.registers
    assert found.local_bytes == 0


def test_devices_are_used_side_by_side() -> None:
    if driver().device_count < 2:
        pytest.skip("one device")
    first, second = devices()[:2]
    codes = [CudaKernel(compiled(atomic("add", I32)), d) for d in (first, second)]
    held = [DeviceMemory(d, 4 * LANES) for d in (first, second)]
    zeros = np.zeros(LANES, np.int32)
    for d, memory in zip((first, second), held, strict=True):
        with d.current():
            d.driver.call("cuMemcpyHtoD", memory.pointer, zeros.ctypes.data, zeros.nbytes)
    for active in (first, second):
        active.activate()
        for code, memory in zip(codes, held, strict=True):
            code.launch([memory.pointer, 3, LANES], (1,))
    for d, memory in zip((first, second), held, strict=True):
        found = np.empty(LANES, np.int32)
        copy_to_host(d, found.ctypes.data, memory.pointer, found.nbytes)
        assert (found == 6).all()
