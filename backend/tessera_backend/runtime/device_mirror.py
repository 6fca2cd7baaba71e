"""Host arrays with a copy on a device that is kept in step: the memory of a host program.

Owns which side is newer, per block of memory. A block goes over when the other side needs
it, whole, and not before. Managed memory would do the same in the driver, page by page and
slower on first touch. Must not know kernels.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Literal

import numpy as np

from tessera_backend.device.driver import device
from tessera_backend.device.memory import DeviceMemory, copy_to_device, copy_to_host
from tessera_backend.runtime.arrays import ArrayView, describe
from tessera_backend.runtime.dtypes import Array

_ALIGNMENT = 64


class Block:
    """Bytes of the host and, once a kernel needs them, their copy on the device."""

    def __init__(self, size: int) -> None:
        self._room: Any = (ctypes.c_char * (size + _ALIGNMENT))()
        self.start = -ctypes.addressof(self._room) % _ALIGNMENT
        self.address = ctypes.addressof(self._room) + self.start
        self.size = size
        self.newer: Literal["host", "device", "both"] = "host"
        self.changed = False
        """Something was written on either side since the block was filled."""
        self._copy: DeviceMemory | None = None

    def changes_on(self, side: Literal["host", "device"]) -> None:
        """The side, which has the newest bytes, is about to write, or a launch on it is."""
        self.newer = side
        self.changed = True

    def to_host(self) -> None:
        """Have the newest bytes on the host; waits for the kernels before."""
        if self.newer == "device" and self._copy is not None:
            copy_to_host(self._copy.device, self.address, self._copy.pointer, self.size)
            self.newer = "both"

    def to_device(self, ordinal: int) -> int:
        """Have the newest bytes on the device; their address there."""
        if self._copy is None:
            self._copy = DeviceMemory(device(ordinal), self.size)
        if self.newer == "host":
            copy_to_device(self._copy.device, self._copy.pointer, self.address, self.size)
            self.newer = "both"
        return self._copy.pointer


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array over a block of its own."""
    block = Block(math.prod(shape) * dtype.itemsize)
    memory: Any = (ctypes.c_char * max(1, block.size)).from_address(block.address)
    memory.block = block
    return np.ndarray(shape, dtype, memory)


def block_of(array: Array) -> Block | None:
    """The block that an array, or a view of one, lies in."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    found = getattr(base, "block", None)
    return found if isinstance(found, Block) else None


class OnDevice:
    """An array of a block as a launch takes it: the same view at the device's address."""

    __slots__ = ("_view",)

    def __init__(self, array: Array, block: Block, ordinal: int) -> None:
        view = describe(array, "array")
        assert view is not None
        pointer = block.to_device(ordinal) + view.pointer - block.address
        self._view = ArrayView(view.dtype, view.shape, view.strides, pointer, ordinal,
                               view.read_only, block)  # fmt: skip

    def __tessera_view__(self) -> ArrayView:
        return self._view
