"""Work that a program records into a CUDA graph instead of running it.

What a launch keeps from call to call must not be shared with a recorded one: a graph runs again
whenever the program says, also beside later work of the stream it was recorded from. Must not
know kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from contextlib import contextmanager

from tessera_backend.device.driver import Device
from tessera_backend.device.driver_errors import NO_CONTEXT
from tessera_lang.locks import once

_ACTIVE = 1


@once
def recorder(device: Device) -> Callable[[int], int]:
    """``graph_of(stream)``: the number of the recording that takes a stream's work, or 0."""
    pointer = ctypes.c_void_p
    information = ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 6)(
        device.driver.entry_point("cuStreamGetCaptureInfo")
    )

    def graph_of(stream: int) -> int:
        if not stream:  # the default stream cannot be recorded
            return 0
        state, number = ctypes.c_int(), ctypes.c_uint64()
        asked = stream, ctypes.byref(state), ctypes.byref(number), None, None, None
        failed = information(*asked)
        if failed in NO_CONTEXT:
            with device.current():
                failed = information(*asked)
        return 0 if failed or state.value != _ACTIVE else number.value

    return graph_of


@contextmanager
def beside_recordings(device: Device) -> Generator[None]:
    """Calls within are done at once, also while this thread or another one records: what is made
    at first use is made outside of a graph."""
    modes = device.driver.api.CUstreamCaptureMode
    exchange = "cuThreadExchangeStreamCaptureMode"
    before = device.driver.call(exchange, modes.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        device.driver.call(exchange, before)
