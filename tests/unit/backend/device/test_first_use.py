"""What the device layer makes at first use, when threads come first together."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tessera_backend.device import driver, workspace
from tessera_backend.device.driver_errors import DriverError
from tessera_backend.device.launch import CudaKernel
from tessera_backend.device.module import Module
from tessera_backend.runtime.bound_arguments import BoundCopy

from tessera_lang.locks import once
from tessera_lang.target.launch_plan import Slot
from tests.unit.backend.device.fake_driver import CUresult, FakeApi
from tests.unit.backend.device.test_tensor_map import BF16, MAP, NUMBER, Array, kernel


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work`` gives in so many threads that begin at once; raises what one of them raised."""
    start, found = threading.Barrier(count), [None] * count

    def run(number: int) -> None:
        start.wait()
        try:
            found[number] = work(number)
        except BaseException as fault:
            found[number] = fault

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def test_once_makes_once() -> None:
    made: list[int] = []

    @once
    def slow(key: int) -> object:
        time.sleep(0.01)
        made.append(key)
        return object()

    found = together(8, lambda n: slow(n % 2))
    assert sorted(made) == [0, 1]
    assert len(set(found)) == 2


def test_what_failed_is_made_again() -> None:
    tried: list[int] = []

    @once
    def second_time() -> int:
        tried.append(0)
        if len(tried) == 1:
            raise ValueError
        return 7

    with pytest.raises(ValueError):
        second_time()
    assert (second_time(), second_time(), len(tried)) == (7, 7, 2)


def test_the_module_that_copies_is_loaded_once_and_stays(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of several threads launched with a module of its own, of which all but one were
    unloaded at once."""
    plain = Module.__init__

    def slow(self: Module, *given: Any) -> None:
        time.sleep(0.01)
        plain(self, *given)

    code = kernel(Slot("data"), NUMBER)
    monkeypatch.setattr(Module, "__init__", slow)
    loaded = len(api.loaded)
    copy = BoundCopy(0, (0,), 2, (5, 7), (7, 1), 128, 0)
    monkeypatch.setattr(workspace._shared, "held", {})

    def launch(_: int) -> Any:
        fire = code.launcher(code.buffer(), 1, 1, 1, copies=(copy,))
        fire(0)
        return fire

    fires = together(8, launch)
    gc.collect()
    assert len(api.loaded) == loaded + 1
    assert api.unloaded == []
    assert len(fires) == 8


def test_a_thread_without_a_context_makes_maps_and_finds_recordings(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace._shared, "held", {})
    code = kernel(MAP, Slot("workspace"))
    fire = code.launcher(code.buffer(), 1, 1, 1, {0: Array(BF16, (128, 64), (64, 1))}, (1, 1000))
    api.recordings[7] = 40
    together(1, lambda _: fire(7))
    assert {key[1] for key in workspace._shared.held} == {-40}
    assert len(api.launched) == 1


def test_a_default_stream_of_each_thread_has_a_workspace_of_its_own(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace._shared, "held", {})
    code = kernel(Slot("workspace"), NUMBER)
    before = api.calls.count("cuMemAlloc")
    both = threading.Barrier(2)

    def launch(_: int) -> None:
        for _ in range(2):
            code.launcher(code.buffer(), 1, 1, 1, None, (0, 1000))(2)
        both.wait()

    together(2, launch)
    assert api.calls.count("cuMemAlloc") == before + 2
    assert not workspace._shared.held


def test_devices_and_the_driver_are_opened_once(api: FakeApi) -> None:
    found = together(8, lambda n: driver.device(n % 2))
    assert len({id(device) for device in found}) == 2
    assert api.calls.count("cuInit") == 1
    assert api.calls.count("cuDeviceGet") == 2


def test_a_kernel_is_loaded_while_another_thread_records(api: FakeApi) -> None:
    api.recordings[7] = 40
    assert isinstance(kernel(NUMBER, NUMBER), CudaKernel)


def test_a_refusal_names_the_status_and_its_text(api: FakeApi) -> None:
    code = kernel(NUMBER, NUMBER)
    api.fail["launch"] = CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DriverError) as caught:
        code.launch([1, 1], (1,))
    (found,) = caught.value.diagnostics
    assert found.code == "T0873"
    assert "CUDA_ERROR_INVALID_VALUE (text of 1)" in found.message
    assert found.notes == ("CUDA_ERROR_INVALID_VALUE (text of 1) while launching `k`",)
