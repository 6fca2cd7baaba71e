"""Workspaces: memory of a device that launches of one stream share, one after the other, and those
of one recorded graph.

A kernel leaves its workspace as it found it, all zeros; scratch holds anything, and so does the
memory of copies, which a launch may need beside it. Must not know kernels.
"""

from __future__ import annotations

import threading

from tessera_backend.device.capture import recorder
from tessera_backend.device.driver import Device
from tessera_backend.device.memory import DeviceMemory, fill_bytes
from tessera_lang.locks import free_lock

_LEAST = 1 << 16
_ZEROED = "workspace"

_OF_EACH_THREAD = 2
"""The handle that means another stream in each thread: the thread's own default one."""

_lock = free_lock()


class _Memories:
    """Memory by device, stream (or recording, negative) and use; ``before``: what was too small."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int, str], DeviceMemory] = {}
        self.before: list[DeviceMemory] = []


class _Own(threading.local, _Memories):
    """That of the default streams of one thread."""


_shared, _own = _Memories(), _Own()


def workspace(device: Device, stream: int, size: int) -> int:
    """Address of at least ``size`` zeroed bytes for work of that stream."""
    return _memory(device, stream, size, _ZEROED)


def scratch(device: Device, stream: int, size: int) -> int:
    """Address of at least ``size`` bytes for work of that stream."""
    return _memory(device, stream, size, "scratch")


def kept(device: Device, stream: int, size: int) -> int:
    """Address of at least ``size`` bytes for what launches of one call leave for each other."""
    return _memory(device, stream, size, "kept")


def copies(device: Device, stream: int, size: int) -> int:
    """Address of at least ``size`` bytes for copies that a launch of that stream reads."""
    return _memory(device, stream, size, "copies")


def _memory(device: Device, stream: int, size: int, use: str) -> int:
    """All are kept: another thread may be about to launch with the one before a larger one. Sizes
    are powers of two, so that they take no more than the largest does. What a graph uses it has
    for itself, zeroed by the graph whenever it runs.
    """
    graph = recorder(device)(stream) if stream else 0
    key = device.ordinal, -graph or stream, use
    memories = _own if stream == _OF_EACH_THREAD and not graph else _shared
    held = memories.held.get(key)
    if held is not None and held.size >= size:
        return held.pointer
    with _lock:
        held = memories.held.get(key)
        if held is None or held.size < size:
            if held is not None:
                memories.before.append(held)
            bytes_ = max(_LEAST, 1 << (size - 1).bit_length())
            held = _allocated(device, bytes_, stream, graph)
            if use == _ZEROED:
                fill_bytes(device, held.pointer, 0, bytes_, stream)
            memories.held[key] = held
    return held.pointer


def _allocated(device: Device, size: int, stream: int, graph: int) -> DeviceMemory:
    if not graph:
        return DeviceMemory(device, size, stream)
    return DeviceMemory(device, size, ordered=False)
