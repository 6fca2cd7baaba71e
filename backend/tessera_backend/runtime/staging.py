"""Host arrays for a launch on a device: copied in, and out again where they are written.

Must not know kernels or plans.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.call_diagnostics import diagnostic, tell_once
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.dtypes import TO_NUMPY, Array, is_array
from tessera_lang.record import dataclass


def as_numpy(view: ArrayView) -> Array:
    """A NumPy array over the memory of a host view; it keeps the owner alive."""
    dtype = TO_NUMPY[view.dtype.name]
    if view.size == 0:
        return np.empty(view.shape, dtype)
    if is_array(view.owner):
        return view.owner
    low, high = view.extent()
    memory: Any = (ctypes.c_char * (high - low)).from_address(view.pointer + low)
    memory.owner = view.owner
    strides = tuple(s * view.dtype.bytes for s in view.strides)
    array = np.ndarray(view.shape, dtype, memory, -low, strides)
    array.flags.writeable = not view.read_only
    return array


@dataclass(slots=True)
class Staged:
    """A host array's copy on a device. ``bring_back`` after the launch, where written."""

    view: ArrayView
    host: Array
    packed: Array

    def bring_back(self, stream: int) -> None:
        """Wait for the launch and copy what it wrote to the host array."""
        from tessera_backend.device.driver import device
        from tessera_backend.device.memory import copy_to_host

        # Not into the host array at once: a failed copy must not leave half of it new.
        target = np.empty_like(self.packed)
        copy_to_host(device(self.view.device), target.ctypes.data, self.view.pointer,
                     target.nbytes, stream)  # fmt: skip
        self.host[...] = target


def in_hand(view: ArrayView, ordinal: int) -> Staged:
    """A copy in host memory, row-major, that a launch on the device takes by value."""
    host = as_numpy(view)
    packed = np.array(host, order="C", copy=True).reshape(view.shape)
    there = ArrayView(view.dtype, view.shape, row_major(view.shape), packed.ctypes.data, ordinal,
                      True, packed)  # fmt: skip
    return Staged(there, host, packed)


def stage(view: ArrayView, ordinal: int, stream: int, name: str, kernel: str) -> Staged:
    """Copy a host array to a device, row-major."""
    from tessera_backend.device.driver import device
    from tessera_backend.device.memory import DeviceMemory, copy_to_device

    tell_once(
        f"copy {kernel}",
        diagnostic(
            "T0847", f"`{kernel}` is given arrays in host memory (`{name}` first): they are copied "
            f"to CUDA device {ordinal} for each launch, and back where they are written",
            severity="note", helps=(f"keep them there: {name} = tessera.to_device({name})",),
        ),
    )  # fmt: skip
    host = as_numpy(view)
    packed = np.ascontiguousarray(host).reshape(view.shape)
    target = device(ordinal)
    memory = DeviceMemory(target, packed.nbytes, stream)
    copy_to_device(target, memory.pointer, packed.ctypes.data, packed.nbytes, stream)
    there = ArrayView(view.dtype, view.shape, row_major(view.shape), memory.pointer, ordinal,
                      view.read_only, (memory, packed))  # fmt: skip
    return Staged(there, host, packed)
