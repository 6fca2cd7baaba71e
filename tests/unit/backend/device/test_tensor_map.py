"""Tensor maps, workspaces and persistent kernels in a launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tessera_backend.device import driver, workspace
from tessera_backend.device.driver_errors import DriverError
from tessera_backend.device.launch import CudaKernel, LaunchBuffer
from tessera_backend.device.memory import spare_zeros

from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import BF16, DTYPES, DType
from tests.unit.backend.device.fake_driver import CUresult, CUstreamCaptureMode, FakeApi


@dataclass(frozen=True)
class Array:
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def kernel(*slots: Slot, persistent: bool = False, cluster: tuple[int, ...] = ()) -> CudaKernel:
    plan = LaunchPlan("k", (), slots, (128,), None, persistent=persistent, cluster=cluster)
    return CudaKernel(
        Artifact("cubin", b"\x7fELF", "k", plan, TargetOptions("cuda", "sm_90a")), driver.device(0)
    )


MAP = Slot("tensor_map", 0, dtype="bf16", box=(128, 64), axes=(0, 1), swizzle=128)
NUMBER = Slot("symbol", symbol="n")


def test_a_map_says_where_the_array_is_innermost_axis_first(api: FakeApi) -> None:
    code = kernel(MAP, NUMBER)
    buffer = code.buffer()
    fire = code.launcher(buffer, 1, 1, 1, {0: Array(BF16, (300, 200), (256, 1))})
    buffer.block[0], buffer.block[1] = 0x9000, 5
    fire(0)
    assert api.maps == [(9, 0x9000, 200, 300, 512, 64, 128, 0, 3, 2, 0)]
    assert api.launched[0][-2:] == (1000, 5)


def test_a_map_is_made_once_an_address(api: FakeApi) -> None:
    code = kernel(MAP, NUMBER)
    array = Array(BF16, (128, 64), (64, 1))
    fires: list[tuple[LaunchBuffer, Callable[[int], None]]] = []
    for _ in range(2):
        buffer = code.buffer()
        fires.append((buffer, code.launcher(buffer, 1, 1, 1, {0: array})))
    for address in (0x9000, 0xA000, 0x9000, 0x9000, 0xA000):
        for buffer, fire in fires:
            buffer.block[0] = address
            fire(0)
    assert [m[1] for m in api.maps] == [0x9000, 0xA000]
    firsts = [shot[-2] for shot in api.launched]
    assert firsts == [n for n in (1000, 1001, 1000, 1000, 1001) for _ in range(2)]


def test_axes_and_types_of_a_map(api: FakeApi) -> None:
    slot = Slot("tensor_map", 0, dtype="f8e4m3", box=(1, 32, 128), axes=(0, 2, 1), swizzle=64)
    code = kernel(slot, NUMBER)
    buffer = code.buffer()
    array = Array(DTYPES["f8e4m3"], (7, 512, 96), (49152, 1, 512))
    code.launcher(buffer, 1, 1, 1, {0: array})(0)
    (found,) = api.maps
    assert found[0] == 0
    assert found[2:] == (512, 96, 7, 512, 49152, 128, 32, 1, 0, 2, 2, 0)


def test_an_array_without_elements_has_a_map_that_nobody_reads(api: FakeApi) -> None:
    code = kernel(MAP, NUMBER)
    buffer = code.buffer()
    code.launcher(buffer, 1, 1, 1, {0: Array(BF16, (128, 0), (1, 1))})(0)
    assert api.maps[0][1] == spare_zeros(code.device)
    assert api.maps[0][2:4] == (1, 1)


@pytest.mark.parametrize("strides", [(2, 1, 64), (1, 1, 64), (0, 1, 64), (1 << 42, 1, 64)])
def test_the_stride_of_an_axis_of_one_element_may_be_anything(
    api: FakeApi, strides: tuple[int, ...]
) -> None:
    slot = Slot("tensor_map", 0, dtype="bf16", box=(1, 64, 64), axes=(0, 2, 1), swizzle=128)
    code = kernel(slot, NUMBER)
    code.launcher(code.buffer(), 1, 1, 1, {0: Array(BF16, (1, 32, 64), strides)})(0)
    assert api.maps[0][2:7] == (32, 64, 1, 128, 16)


def test_an_array_that_has_no_map_is_named(api: FakeApi) -> None:
    api.fail["encode"] = CUresult.CUDA_ERROR_INVALID_VALUE
    code = kernel(MAP, NUMBER)
    fire = code.launcher(code.buffer(), 1, 1, 1, {0: Array(BF16, (128, 63), (63, 1))})
    with pytest.raises(DriverError) as caught:
        fire(0)
    text = str(caught.value.diagnostics)
    assert "tensor map" in text
    assert "[128, 63]" in text


def test_a_workspace_is_kept_a_stream_and_grows(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace._shared, "held", {})
    code = kernel(Slot("workspace"), NUMBER)
    buffer = code.buffer()
    fire = code.launcher(buffer, 1, 1, 1, None, (0, 1000))
    fire(0)
    fire(0)
    assert [shot[-2] for shot in api.launched] == [4096, 4096]
    assert api.calls.count("cuMemAlloc") == 1
    fire(7)
    assert api.calls.count("cuMemAlloc") == 2
    code.launcher(buffer, 1, 1, 1, None, (0, 1 << 20))(0)
    assert api.calls.count("cuMemAlloc") == 3
    assert api.calls.count("cuMemsetD8Async") == 3


def test_a_recorded_graph_has_a_workspace_of_its_own(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allocated at once and not by the graph, which zeroes it."""
    monkeypatch.setattr(workspace._shared, "held", {})
    code = kernel(Slot("workspace"), NUMBER)
    fire = code.launcher(code.buffer(), 1, 1, 1, None, (0, 1000))
    fire(7)
    api.recordings[7] = 40
    fire(7)
    fire(7)
    assert api.calls.count("cuMemAlloc") == api.calls.count("cuMemsetD8Async") == 2
    api.recordings[7] = 41
    fire(7)
    assert api.calls.count("cuMemAlloc") == api.calls.count("cuMemsetD8Async") == 3
    api.recordings.clear()
    fire(7)
    assert api.calls.count("cuMemAlloc") == 3
    assert api.mode == CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


def test_scratch_is_no_workspace(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not zeroed, and has memory of its own."""
    monkeypatch.setattr(workspace._shared, "held", {})
    code = kernel(Slot("workspace"), Slot("scratch"))
    fire = code.launcher(code.buffer(), 1, 1, 1, None, (0, 1000), (), (1, 5000))
    fire(0)
    fire(0)
    assert api.calls.count("cuMemAlloc") == 2
    assert api.calls.count("cuMemsetD8Async") == 1


def test_of_a_persistent_kernel_no_more_groups_start_than_run_at_once(api: FakeApi) -> None:
    for cluster, most in (((), 264), ((2,), 120)):
        code = kernel(NUMBER, NUMBER, persistent=True, cluster=cluster)
        assert code.resident == most
        for groups in (100_000, 8):
            code.launcher(code.buffer(), groups, 1, 1)(0)
            assert api.launched[-1][0] == min(groups, most)
