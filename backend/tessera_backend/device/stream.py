"""Streams and events. A stream is known by its handle, an integer; 0 is the default one."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tessera_backend.device.driver import Device
from tessera_lang.diagnostics import TesseraError

_NON_BLOCKING = 1


class Stream:
    """A stream of our own, beside the default one; destroyed with the object."""

    def __init__(self, device: Device) -> None:
        self._stream: Any = None
        self.device = device
        with device.current():
            self._stream = device.driver.call("cuStreamCreate", _NON_BLOCKING)
        self.handle = int(self._stream)

    def synchronize(self) -> None:
        synchronize_stream(self.device, self.handle)

    def __del__(self) -> None:
        stream, self._stream = getattr(self, "_stream", None), None
        if stream is not None and not sys.is_finalizing():
            # A lost context took its streams along; a destructor has nobody to tell.
            with contextlib.suppress(TesseraError, RuntimeError), self.device.current():
                self.device.driver.call("cuStreamDestroy", stream)


class Event:
    """A mark in a stream: to wait for, or to measure between two of them."""

    def __init__(self, device: Device) -> None:
        self._event: Any = None
        self.device = device
        with device.current():
            self._event = device.driver.call("cuEventCreate", 0)

    def record(self, stream: int = 0) -> None:
        with self.device.current():
            self.device.driver.call("cuEventRecord", self._event, stream)

    def synchronize(self) -> None:
        with self.device.current():
            self.device.driver.call("cuEventSynchronize", self._event)

    def seconds_until(self, later: Event) -> float:
        """Between this mark and a later one, which the device has passed."""
        with self.device.current():
            found = self.device.driver.call("cuEventElapsedTime", self._event, later._event)
        return float(found) / 1e3

    def block(self, stream: int) -> None:
        """Later work of the stream waits for this mark."""
        with self.device.current():
            self.device.driver.call("cuStreamWaitEvent", stream, self._event, 0)

    def __del__(self) -> None:
        event, self._event = getattr(self, "_event", None), None
        if event is not None and not sys.is_finalizing():
            # As for streams.
            with contextlib.suppress(TesseraError, RuntimeError), self.device.current():
                self.device.driver.call("cuEventDestroy", event)


def synchronize_stream(device: Device, stream: int = 0) -> None:
    """Wait for what a stream was given; raises what its kernels died of."""
    with device.current():
        device.driver.call("cuStreamSynchronize", stream, action="waiting for a stream")
