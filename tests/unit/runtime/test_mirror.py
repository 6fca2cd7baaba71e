"""Host arrays and their copies on a device, with host memory in the place of a device's."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime import device_mirror


class Memory:
    def __init__(self, device: object, size: int) -> None:
        self.device = device
        self.room = (ctypes.c_char * max(1, size))()
        self.pointer = ctypes.addressof(self.room)


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def to_device(_: object, target: int, source: int, size: int) -> None:
        made.append("to device")
        ctypes.memmove(target, source, size)

    def to_host(_: object, target: int, source: int, size: int) -> None:
        made.append("to host")
        ctypes.memmove(target, source, size)

    monkeypatch.setattr(device_mirror, "device", lambda ordinal: ordinal)
    monkeypatch.setattr(device_mirror, "DeviceMemory", Memory)
    monkeypatch.setattr(device_mirror, "copy_to_device", to_device)
    monkeypatch.setattr(device_mirror, "copy_to_host", to_host)
    return made


def there(array: Any) -> np.ndarray:
    """The elements at the device's address, as a kernel sees them."""
    block = device_mirror.block_of(array)
    assert block is not None
    view = device_mirror.OnDevice(array, block, 0).__tessera_view__()
    size = array.itemsize
    raw = [
        ctypes.string_at(view.pointer + size * int(np.dot(at, view.strides)), size)
        for at in np.ndindex(array.shape)
    ]
    return np.frombuffer(b"".join(raw), array.dtype).reshape(array.shape)


def test_each_side_gets_what_is_newer_once(copies: list[str]) -> None:
    a = device_mirror.empty((4, 6), np.dtype(np.float32))
    a[...] = np.arange(24).reshape(4, 6)
    block = device_mirror.block_of(a[1:, ::-2].T)
    assert block is device_mirror.block_of(a) and block is not None
    for view in (a, a[1:, ::-2].T, a[::-1]):
        assert there(view).tolist() == view.tolist()
    assert copies == ["to device"]
    memory = block._copy
    assert memory is not None
    ctypes.memmove(memory.pointer, np.full(24, 7, np.float32).ctypes.data, 96)
    assert not block.changed
    block.changes_on("device")
    block.to_host()
    block.to_host()
    assert a.tolist() == np.full((4, 6), 7).tolist()
    assert copies == ["to device", "to host"]
    assert block.changed
    a[0, 0] = 9
    block.changes_on("host")
    assert there(a)[0, 0] == 9


def test_memory_lives_as_long_as_a_view() -> None:
    view = device_mirror.empty((1000,), np.dtype(np.int64))[10:20]
    view[...] = 3
    assert view.ctypes.data % 16 == 0 and view.tolist() == [3] * 10
    assert device_mirror.block_of(np.zeros(3)) is None
