"""Zeros by the address of the driver's function: in the right context, from any thread."""

from __future__ import annotations

import threading

import pytest
from tessera_backend.device import driver
from tessera_backend.device.driver_errors import DriverError
from tessera_backend.device.memory import zero_function

from tests.unit.backend.device.fake_driver import CUresult, FakeApi


def test_the_device_s_context_is_current_for_each_fill(api: FakeApi) -> None:
    first, second = driver.device(0), driver.device(1)
    first.activate()
    zero_function(first)(4096, 100, 7)
    assert "cuMemsetD8Async" not in api.calls
    zero_function(second)(8192, 200, 0)
    zero_function(first)(4096, 0, 0)
    assert api.filled == [(4096, 0, 100, 7, 1000), (8192, 0, 200, 0, 1001)]
    assert int(api.cuCtxGetCurrent()[1]) == 1000


def test_a_thread_without_a_context_fills(api: FakeApi) -> None:
    zero = zero_function(driver.device(1))
    thread = threading.Thread(target=lambda: zero(4096, 8, 3))
    thread.start()
    thread.join()
    assert api.filled == [(4096, 0, 8, 3, 1001)]


def test_what_the_driver_refuses_is_said(api: FakeApi) -> None:
    device = driver.device(0)
    device.activate()
    api.fail["fill"] = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DriverError):
        zero_function(device)(4096, 8, 0)
