"""The driver: missing, old, failing, several devices, threads."""

from __future__ import annotations

import sys
import threading

import pytest
from tessera_backend.device import driver
from tessera_backend.device.driver_errors import DriverError
from tessera_backend.device.memory import DeviceMemory, FaultRecord, fault_record

from tessera_lang.diagnostics import TesseraError
from tests.unit.backend.device.fake_driver import CUresult, FakeApi


def test_devices_keep_their_own_architecture(api: FakeApi) -> None:
    assert [d.arch for d in driver.devices()] == ["sm_90", "sm_80"]
    assert driver.device(1) is driver.device(1)
    assert driver.device(0).name == "Fake 0"
    assert driver.device(0).memory_bytes == 1 << 30


def test_a_device_that_is_not_there(api: FakeApi) -> None:
    with pytest.raises(DriverError) as caught:
        driver.device(2)
    assert caught.value.diagnostics[0].code == "T0871"


def test_no_device_is_said_once_and_again(api: FakeApi) -> None:
    api.capabilities = ()
    for _ in range(2):
        with pytest.raises(TesseraError) as caught:
            driver.driver()
        assert caught.value.diagnostics[0].code == "T0871"
        assert caught.value.diagnostics[0].helps
    assert api.calls.count("cuInit") == 1


def test_an_old_driver_is_refused_with_a_remedy(api: FakeApi) -> None:
    api.version = 11040
    with pytest.raises(TesseraError) as caught:
        driver.driver()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0872"
    assert "11.4" in diagnostic.message and "12.0" in diagnostic.message


def test_a_fork_is_explained(api: FakeApi) -> None:
    api.fail["cuInit"] = CUresult.CUDA_ERROR_NOT_INITIALIZED
    with pytest.raises(TesseraError) as caught:
        driver.driver()
    assert "spawn" in caught.value.diagnostics[0].helps[0]


def test_a_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setattr(driver, "_loaded", driver._Loaded())
    with pytest.raises(TesseraError) as caught:
        driver.driver()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0870"
    assert "pip install cuda-python" in diagnostic.helps[0]


def test_a_thread_without_context_keeps_ours_and_another_device_gets_its_own_back(
    api: FakeApi,
) -> None:
    first, second = driver.devices()
    seen: list[int] = []

    def body() -> None:
        with first.current():
            seen.append(api.cuCtxGetCurrent()[1])
        seen.append(api.cuCtxGetCurrent()[1])
        with second.current():
            seen.append(api.cuCtxGetCurrent()[1])
        seen.append(api.cuCtxGetCurrent()[1])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(10)
    assert seen == [1000, 1000, 1001, 1000]


def test_out_of_memory(api: FakeApi) -> None:
    device = driver.device(0)
    api.fail["cuMemAlloc"] = CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DriverError) as caught:
        DeviceMemory(device, 1 << 40)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0874"
    assert str(1 << 40) in diagnostic.notes[0]


def test_memory_of_no_bytes_asks_for_nothing(api: FakeApi) -> None:
    device = driver.device(0)
    memory = DeviceMemory(device, 0)
    memory.free()
    assert "cuMemAlloc" not in api.calls and "cuMemFree" not in api.calls


def test_memory_is_freed_once(api: FakeApi) -> None:
    memory = DeviceMemory(driver.device(0), 16)
    memory.free()
    memory.free()
    del memory
    assert api.calls.count("cuMemFree") == 1


def test_the_fault_record_is_taken_once(api: FakeApi) -> None:
    device = driver.device(0)
    record = fault_record(device)
    assert record is fault_record(device)
    assert record.take() is None
    for index in range(FaultRecord.WORDS):
        record.words[index] = index + 1
    assert record.take() == (1, 2, 3, 4, 5, 6, 7, 8)
    assert record.take() is None


def test_an_error_without_a_row_keeps_the_drivers_name(api: FakeApi) -> None:
    device = driver.device(0)
    api.fail["cuCtxSynchronize"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DriverError) as caught:
        device.synchronize()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0873"
    assert "CUDA_ERROR_INVALID_VALUE" in diagnostic.notes[0]


def test_a_crashed_kernel_says_that_the_process_is_lost(api: FakeApi) -> None:
    device = driver.device(0)
    api.fail["cuCtxSynchronize"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DriverError) as caught:
        device.synchronize()
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0875"
    assert any("started again" in note for note in diagnostic.notes)
