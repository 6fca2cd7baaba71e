"""Launches: the argument block, limits, threads, second tries at loading."""

from __future__ import annotations

import struct
import threading

import pytest
from tessera_backend.device import driver
from tessera_backend.device.driver_errors import DriverError
from tessera_backend.device.launch import CudaKernel, LaunchBuffer, axes_to_xyz, slot_packer
from tessera_backend.device.module import Module

from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tests.unit.backend.device.fake_driver import CUresult, FakeApi


def artifact(
    group: tuple[int, ...] = (128,), shared: int = 0, code: bytes = b"\x7fELF",
    kind: str = "cubin", ptx: str = "",
) -> Artifact:  # fmt: skip
    plan = LaunchPlan(
        "k", (), (Slot("symbol", symbol="n"), Slot("scalar", dtype="i32")), group, None, shared
    )
    texts = {"ptx": ptx} if ptx else {}
    return Artifact(kind, code, "tessera_k", plan, TargetOptions("cuda", "sm_90"), texts=texts)


def test_a_launch_hands_over_shape_stream_and_values(api: FakeApi) -> None:
    kernel = CudaKernel(artifact((4, 32)), driver.device(0))
    kernel.launch([7, -1], (2, 3, 5), stream=42)
    assert api.launched == [(5, 3, 2, 32, 4, 1, 0, 42, 7, -1)]


def test_a_buffer_is_used_again_with_new_values_and_shapes(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    buffer = kernel.buffer()
    for n in (1, 2):
        kernel.pack(buffer.block, 0, n, n)
        kernel.launch_packed(buffer, n, 1, 1, 0)
    assert [(shot[0], shot[-2]) for shot in api.launched] == [(1, 1), (2, 2)]


def test_no_groups_launch_nothing(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    kernel.launch([1, 1], (0,))
    kernel.bind([1, 1], (3, 0))()
    assert api.launched == []


def test_a_bound_launch_repeats(api: FakeApi) -> None:
    bound = CudaKernel(artifact(), driver.device(0)).bind([5, 6], (9,))
    bound()
    bound()
    assert api.launched == [(9, 1, 1, 128, 1, 1, 0, 0, 5, 6)] * 2


@pytest.mark.parametrize("groups", [(2**31,), (65536, 1), (65536, 1, 1), (1, -1)])
def test_a_grid_beyond_the_limits_is_refused(api: FakeApi, groups: tuple[int, ...]) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    with pytest.raises(TesseraError) as caught:
        kernel.launch([1, 1], groups)
    assert caught.value.diagnostics[0].code == "T0876"


@pytest.mark.parametrize(("group", "shared"), [((2048,), 0), ((128, 2, 2), 0), ((32,), 300_000)])
def test_a_group_beyond_the_limits_is_refused(
    api: FakeApi, group: tuple[int, ...], shared: int
) -> None:
    with pytest.raises(TesseraError) as caught:
        CudaKernel(artifact(group, shared), driver.device(0))
    assert caught.value.diagnostics[0].code == "T0876"


def test_much_shared_memory_is_asked_for_at_the_launch(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(shared=100_000), driver.device(0))
    kernel.launch([1, 1], (1,))
    assert api.attributes == {8: 100_000}
    assert api.launched[0][6] == 100_000


def test_a_thread_without_a_context_launches(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    thread = threading.Thread(target=kernel.launch, args=([1, 1], (1,)))
    thread.start()
    thread.join(10)
    assert len(api.launched) == 1


def test_a_failing_launch_names_the_kernel(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    api.fail["launch"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DriverError) as caught:
        kernel.launch([1, 1], (1,))
    assert caught.value.diagnostics[0].code == "T0875"
    assert "tessera_k" in caught.value.diagnostics[0].notes[0]


def test_machine_code_that_does_not_fit_falls_back_to_ptx(api: FakeApi) -> None:
    CudaKernel(artifact(code=b"\x7fELF wrong", ptx=".version 7.8"), driver.device(0))
    assert api.loaded == [b".version 7.8\0"]


def test_machine_code_that_does_not_fit_without_ptx_is_refused(api: FakeApi) -> None:
    with pytest.raises(DriverError) as caught:
        CudaKernel(artifact(code=b"\x7fELF wrong"), driver.device(0))
    assert caught.value.diagnostics[0].code == "T0877"


def test_a_driver_too_old_for_the_ptx_names_ptxas(api: FakeApi) -> None:
    api.fail["cuModuleLoadDataEx"] = CUresult.CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    with pytest.raises(DriverError) as caught:
        CudaKernel(artifact(code=b".version 9.9", kind="ptx"), driver.device(0))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0872"
    assert "ptxas" in diagnostic.helps[0]


def test_resources_come_from_the_driver(api: FakeApi) -> None:
    resources = Module(driver.device(0), b".version", "tessera_k").resources()
    assert (resources.registers, resources.shared_bytes, resources.local_bytes) == (24, 512, 0)


def test_cells_hold_each_kind_of_scalar() -> None:
    kinds = ["i8", "u64", "bool", "f16", "f32", "f64", "bf16"]
    slots = [Slot("data", 0), *(Slot("scalar", 0, dtype=k) for k in kinds), Slot("fault")]
    buffer = LaunchBuffer(len(slots), (1, 1, 1), 0)
    values = (123, -1, 2**64 - 1, 1, 1.5, -2.0, 0.1, 0x3F80, 99)
    slot_packer(slots)(buffer.block, 0, *values)
    cells = bytes(buffer.block)
    assert struct.unpack_from("<q", cells, 8)[0] == -1
    assert struct.unpack_from("<Q", cells, 16)[0] == 2**64 - 1
    assert struct.unpack_from("<e", cells, 32)[0] == 1.5
    assert struct.unpack_from("<f", cells, 40)[0] == -2.0
    assert struct.unpack_from("<d", cells, 48)[0] == 0.1
    assert struct.unpack_from("<q", cells, 64)[0] == 99


def test_the_last_axis_is_the_hardwares_first() -> None:
    assert axes_to_xyz((5,)) == (5, 1, 1)
    assert axes_to_xyz((2, 3, 5)) == (5, 3, 2)


def test_a_launcher_follows_the_stream(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    buffer = kernel.buffer()
    fire = kernel.launcher(buffer, 4, 1, 1)
    for stream in (0, 7, 0):
        kernel.pack(buffer.block, 0, stream, 1)
        fire(stream)
    assert [(shot[0], *shot[-3:-1]) for shot in api.launched] == [(4, 0, 0), (4, 7, 7), (4, 0, 0)]


def test_a_launcher_of_no_groups_launches_nothing(api: FakeApi) -> None:
    kernel = CudaKernel(artifact(), driver.device(0))
    kernel.launcher(kernel.buffer(), 0, 1, 1)(0)
    assert api.launched == []
