"""Memory of a device and pinned memory of the host: allocation, copies, fills.

Sizes are bytes, addresses plain integers. Must not know arrays, dtypes or kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from tessera_backend.device.capture import beside_recordings
from tessera_backend.device.driver import Device
from tessera_lang.diagnostics import TesseraError
from tessera_lang.locks import free_lock, once

_PORTABLE_MAPPED = 1 | 2
_POOL_KEEPS_EVERYTHING = (1 << 64) - 1


class DeviceMemory:
    """Bytes on a device, given back when the object dies or ``free`` is called.

    Ordered on a stream where the device has memory pools: memory freed is used again by
    later work of that stream without a wait. Not so with ``ordered`` False.
    """

    __slots__ = ("_pooled", "device", "pointer", "size", "stream")

    def __init__(self, device: Device, size: int, stream: int = 0, ordered: bool = True) -> None:
        self.pointer = 0
        self.device = device
        self.size = size
        self.stream = stream
        self._pooled = ordered and _has_pool(device)
        if size == 0:
            return
        call = device.driver.call
        action = f"allocating {size} bytes on device {device.ordinal}"
        with device.current():
            if self._pooled:
                self.pointer = int(call("cuMemAllocAsync", size, stream, action=action))
                return
            with beside_recordings(device):
                self.pointer = int(call("cuMemAlloc", size, action=action))

    def free(self) -> None:
        """Give the memory back; safe to call twice."""
        pointer, self.pointer = self.pointer, 0
        if not pointer:
            return
        call = self.device.driver.call
        with self.device.current():
            if self._pooled:
                call("cuMemFreeAsync", pointer, self.stream)
                return
            with beside_recordings(self.device):
                call("cuMemFree", pointer)

    def __del__(self) -> None:
        if not getattr(self, "pointer", 0) or sys.is_finalizing():
            return
        # A lost context took its memory along; a destructor has nobody to tell.
        with contextlib.suppress(TesseraError, RuntimeError):
            self.free()


_pools: dict[int, bool] = {}
_pools_lock = free_lock()


def _has_pool(device: Device) -> bool:
    known = _pools.get(device.ordinal)
    if known is not None:
        return known
    with _pools_lock:
        known = _pools.get(device.ordinal)
        if known is not None:
            return known
        supported = bool(device.attribute("MEMORY_POOLS_SUPPORTED"))
        if supported:
            driver = device.driver
            pool = driver.call("cuDeviceGetDefaultMemPool", device.handle)
            kind = driver.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
            keep = driver.api.cuuint64_t(_POOL_KEEPS_EVERYTHING)
            driver.call("cuMemPoolSetAttribute", pool, kind, keep)
        _pools[device.ordinal] = supported
    return supported


def copy_to_device(device: Device, target: int, source: int, size: int, stream: int = 0) -> None:
    """Copy from host memory; the source may change as soon as this returns."""
    if size:
        with device.current():
            device.driver.call(
                "cuMemcpyHtoDAsync", target, source, size, stream, action="copying to the device"
            )


def copy_to_host(device: Device, target: int, source: int, size: int, stream: int = 0) -> None:
    """Copy to host memory and wait: the data is there when this returns."""
    if size:
        call = device.driver.call
        with device.current():
            call("cuMemcpyDtoHAsync", target, source, size, stream, action="copying to the host")
            call("cuStreamSynchronize", stream, action="copying to the host")


def copy_on_device(device: Device, target: int, source: int, size: int, stream: int = 0) -> None:
    """Copy between addresses of the device, ordered on the stream."""
    if size:
        with device.current():
            device.driver.call("cuMemcpyDtoDAsync", target, source, size, stream)


def fill_bytes(device: Device, target: int, value: int, size: int, stream: int = 0) -> None:
    """Set every byte, ordered on the stream."""
    if size:
        with device.current():
            device.driver.call("cuMemsetD8Async", target, value, size, stream)


@once
def zero_function(device: Device) -> Callable[[int, int, int], None]:
    """``zero(address, bytes, stream)``: ``fill_bytes`` with zeros at a tenth of its cost, by
    the addresses of the driver's functions."""
    word = ctypes.c_void_p
    at = device.driver.entry_point
    fill = ctypes.CFUNCTYPE(ctypes.c_int, word, ctypes.c_ubyte, ctypes.c_size_t, word)(
        at("cuMemsetD8Async")
    )
    current = ctypes.PYFUNCTYPE(ctypes.c_int, word)(at("cuCtxGetCurrent"))
    context = int(device.context)

    def zero(address: int, size: int, stream: int) -> None:
        # The default stream is that of the calling thread's context, which may be another one.
        found = word()
        if current(ctypes.byref(found)) or found.value != context:
            fill_bytes(device, address, 0, size, stream)
        elif size and (status := fill(address, 0, size, stream or None)):
            raise device.driver.failure(status, f"filling {size} bytes with 0")

    return zero


class PinnedMemory:
    """Host memory that the device reads and writes in place; zeroed."""

    def __init__(self, device: Device, size: int) -> None:
        self.device = device
        self.size = size
        call = device.driver.call
        with device.current(), beside_recordings(device):
            self.host = int(call("cuMemHostAlloc", size, _PORTABLE_MAPPED, action="pinning memory"))
            self.pointer = int(call("cuMemHostGetDevicePointer", self.host, 0))
        ctypes.memset(self.host, 0, size)

    def view(self) -> memoryview:
        """The bytes, writable, without a copy."""
        array: Any = (ctypes.c_char * self.size).from_address(self.host)
        return memoryview(array).cast("B")


class FaultRecord:
    """Where kernels of a device report faults: words of 64 bits in pinned host memory.

    Lives as long as the process, since code in flight may write to it at any time. The
    meaning of the words is the emitter's and the runtime's; a first word that is not 0
    says that something was reported.
    """

    WORDS = 8

    def __init__(self, device: Device) -> None:
        self._memory = PinnedMemory(device, 8 * self.WORDS)
        self.pointer = self._memory.pointer
        self.words = self._memory.view().cast("q")

    def take(self) -> tuple[int, ...] | None:
        """The words, once: the record is cleared. None where nothing was reported."""
        if not self.words[0]:
            return None
        words = tuple(self.words)
        for index in range(self.WORDS - 1, -1, -1):
            self.words[index] = 0
        return words


_records: dict[int, FaultRecord] = {}
_spare: dict[int, PinnedMemory] = {}
_lock = free_lock()
_SPARE_BYTES = 256
T = TypeVar("T")


def _made_once(known: dict[int, T], device: Device, make: Callable[[], T]) -> T:
    """What a device has one of, made on first use."""
    found = known.get(device.ordinal)
    if found is None:
        with _lock:
            found = known.get(device.ordinal)
            if found is None:
                found = known[device.ordinal] = make()
    return found


def fault_record(device: Device) -> FaultRecord:
    """The record of a device."""
    return _made_once(_records, device, lambda: FaultRecord(device))


def spare_zeros(device: Device) -> int:
    """Address of zeros that nobody writes, for maps of arrays without elements."""
    return _made_once(_spare, device, lambda: PinnedMemory(device, _SPARE_BYTES)).pointer
