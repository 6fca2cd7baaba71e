"""Clocks: what calls take on the CPU or on a device, with caches warm or cold.

A cache is emptied before the clock starts, never between its two readings. Must not know what is
called, nor how many samples are wanted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tessera_backend.device.driver import device
from tessera_backend.device.memory import DeviceMemory, fill_bytes
from tessera_backend.device.stream import Event
from tessera_lang.record import dataclass

Call = Callable[[], object]

_CACHE_WHERE_UNKNOWN = 64 << 20
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_TIMES_THE_CACHE = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one call. ``issued``: what the host took to give it to a device, in seconds; 0
    where the host itself does the work."""

    seconds: float
    issued: float = 0.0


class Clock(Protocol):
    """``name`` says what is read; ``shortest``: seconds that one sample should take at least, so
    that reading the clock is no part of the result."""

    name: str
    shortest: float

    def sample(self, call: Call, count: int) -> Sample:
        """The mean of ``count`` calls, one behind the other."""
        ...

    def empty_cache(self) -> None:
        """Have the cache before the memory hold nothing that a call needs."""
        ...


class HostClock:
    """The monotonic clock of the process; for calls that are over when they return."""

    name = "monotonic clock"
    shortest = 1e-3

    def __init__(self) -> None:
        self._filling: tuple[bytes, bytearray] | None = None

    def sample(self, call: Call, count: int) -> Sample:
        times = range(count)
        start = time.perf_counter()
        for _ in times:
            call()
        return Sample((time.perf_counter() - start) / count)

    def empty_cache(self) -> None:
        if self._filling is None:
            size = _TIMES_THE_CACHE * last_cache_bytes()
            self._filling = bytes(size), bytearray(size)
        source, target = self._filling
        target[:] = source


class DeviceClock:
    """Marks in a stream of a device; what was queued before the first of them does not count."""

    shortest = 1e-3

    def __init__(self, ordinal: int, stream: int = 0) -> None:
        self.name = f"events of device {ordinal}"
        self._device = device(ordinal)
        self._stream = stream
        self._events = Event(self._device), Event(self._device)
        self._filling: DeviceMemory | None = None

    def sample(self, call: Call, count: int) -> Sample:
        first, last = self._events
        times = range(count)
        first.record(self._stream)
        start = time.perf_counter()
        for _ in times:
            call()
        issued = time.perf_counter() - start
        last.record(self._stream)
        last.synchronize()
        return Sample(first.seconds_until(last) / count, issued / count)

    def empty_cache(self) -> None:
        if self._filling is None:
            size = _TIMES_THE_CACHE * self._device.attribute("L2_CACHE_SIZE")
            self._filling = DeviceMemory(self._device, size, self._stream)
        fill_bytes(self._device, self._filling.pointer, 0, self._filling.size, self._stream)


def last_cache_bytes() -> int:
    """The largest cache of a processor, in bytes; a usual size where the system does not say."""
    found = [_bytes_of(path) for path in _CACHES.glob("index*/size")]
    return max(found, default=0) or _CACHE_WHERE_UNKNOWN


def _bytes_of(path: Path) -> int:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return 0
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:], 0)
    digits = text[:-1] if shift else text
    return int(digits) << shift if digits.isdecimal() else 0
