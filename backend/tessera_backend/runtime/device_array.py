"""Our own array on a CUDA device, for programs without another array library.

Row-major, shared with others through DLPack and ``__cuda_array_interface__``. Holds no
arithmetic: that is what kernels are for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tessera_backend.device.driver import Device, device
from tessera_backend.device.memory import (
    DeviceMemory,
    copy_on_device,
    copy_to_device,
    copy_to_host,
    fill_bytes,
)
from tessera_backend.device.stream import synchronize_stream
from tessera_backend.runtime.arrays import ArrayView, describe, refuse
from tessera_backend.runtime.caller_errors import ends_at_the_caller
from tessera_backend.runtime.dlpack import CUDA, make_capsule, row_major
from tessera_backend.runtime.dtypes import TO_NUMPY, typestr
from tessera_backend.runtime.faults import report_all
from tessera_backend.runtime.staging import as_numpy
from tessera_lang.types.dtype import DType


class DeviceArray:
    """An array in the memory of a CUDA device. ``shape`` and ``dtype`` as in NumPy."""

    __slots__ = ("__weakref__", "_memory", "_view")

    def __init__(self, memory: DeviceMemory, dtype: DType, shape: tuple[int, ...]) -> None:
        self._memory = memory
        self._view = ArrayView(dtype, shape, row_major(shape), memory.pointer,
                               memory.device.ordinal, False, self._memory)  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return self._view.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return TO_NUMPY[self._view.dtype.name]

    @property
    def device(self) -> int:
        """Ordinal of the CUDA device."""
        return self._view.device

    @property
    def nbytes(self) -> int:
        return self._memory.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self._view.dtype}, cuda:{self.device})"

    @ends_at_the_caller
    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """A copy on the host, after the kernels before it. Raises what they reported."""
        target = np.empty(self.shape, self.dtype)
        copy_to_host(self._memory.device, target.ctypes.data, self._view.pointer, target.nbytes)
        report_all()
        return target

    @ends_at_the_caller
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("an array on a device cannot be a NumPy array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    @ends_at_the_caller
    def copy_from(self, value: object) -> None:
        """Overwrite the elements with those of an array of this shape and dtype."""
        view = _described(value)
        if view.shape != self.shape or view.dtype != self._view.dtype:
            raise refuse("T0834", "value", f"has shape {view.shape} and {view.dtype} elements, "
                         f"not {self.shape} and {self._view.dtype}")  # fmt: skip
        _copy_in(self._memory, view)

    def __copy__(self) -> DeviceArray:
        """Other memory with the same elements, as of NumPy's arrays."""
        return to_device(self, self.device)

    def __deepcopy__(self, memo: object) -> DeviceArray:
        return to_device(self, self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        """By way of the host: another process has no access to this one's memory."""
        return to_device, (self.numpy(), self.device)

    def __tessera_view__(self) -> ArrayView:
        return self._view

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": typestr(self._view.dtype), "strides": None,
            "data": (self._view.pointer, False), "version": 3, "stream": 1,
        }  # fmt: skip

    @ends_at_the_caller
    def __dlpack__(self, *, stream: int | None = None, **_: object) -> object:
        # Our own copies and launches without a named stream are on the default stream.
        if stream not in (None, -1, 0, 1):
            synchronize_stream(self._memory.device)
        return make_capsule(self._view.pointer, self._view.dtype, self.shape,
                            (CUDA, self.device), self._memory)  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device


def _described(value: object) -> ArrayView:
    view = describe(value, "value")
    if view is None:
        try:
            view = describe(np.asarray(value), "value")
        except (ValueError, TypeError) as fault:
            raise refuse("T0831", "value", f"is no array: {fault}") from fault
    assert view is not None
    return view


def _copy_in(memory: DeviceMemory, view: ArrayView) -> None:
    target = memory.device
    if view.device == target.ordinal and view.contiguous:
        copy_on_device(target, memory.pointer, view.pointer, memory.size)
        return
    if view.device >= 0:
        raise refuse("T0844", "value", f"is on CUDA device {view.device} or not contiguous",
                     "copy it with its own library first")  # fmt: skip
    packed = np.ascontiguousarray(as_numpy(view))
    copy_to_device(target, memory.pointer, packed.ctypes.data, packed.nbytes)
    synchronize_stream(target)


def to_device(value: object, ordinal: int = 0) -> DeviceArray:
    """A copy of an array on a CUDA device. Raises TesseraError where there is none."""
    view = _described(value)
    memory = DeviceMemory(device(ordinal), view.size * view.dtype.bytes)
    _copy_in(memory, view)
    return DeviceArray(memory, view.dtype, view.shape)


def empty(shape: tuple[int, ...], dtype: DType, ordinal: int = 0) -> DeviceArray:
    """An array on a device whose elements are what the memory held."""
    return DeviceArray(DeviceMemory(device(ordinal), math.prod(shape) * dtype.bytes), dtype, shape)


def zeros(shape: tuple[int, ...], dtype: DType, ordinal: int = 0) -> DeviceArray:
    """An array of zeros on a device."""
    target: Device = device(ordinal)
    memory = DeviceMemory(target, math.prod(shape) * dtype.bytes)
    fill_bytes(target, memory.pointer, 0, memory.size)
    return DeviceArray(memory, dtype, shape)
