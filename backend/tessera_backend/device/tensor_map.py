"""Tensor maps: an array as the tensor memory accelerator of sm_90 is told of it.

Owns the call that encodes one, and the maps made so far: a map depends on the address, the
sizes and the strides of an array, and a kernel is mostly called with the same few. Must not
know kernels, plans beyond a slot, or arrays of libraries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

from tessera_backend.device.driver import Device
from tessera_backend.device.driver_errors import NO_CONTEXT
from tessera_lang.locks import once
from tessera_lang.record import dataclass
from tessera_lang.target.launch_plan import Slot
from tessera_lang.types.dtype import DType

MAP_BYTES = 128
_ALIGNED_STRIDE = 16
_ALIGNMENT = 64
_KEPT = 256  # maps of one layout, before they are forgotten

_BYTE, _SHORT = 0, 1
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
# What the cache takes from memory at once. With 256 bytes, rows that lie across lines of the cache
# bring up to three lines that no one asked for.
_PROMOTE_128, _NO_INTERLEAVE, _ZERO_FILL = 2, 0, 0


def map_numbers(slot: Slot, dtype: DType) -> dict[str, int]:
    """What a map of a slot is made with beside an array: numbers of the driver's enumerations."""
    return {
        "data_type": _data_type(dtype), "interleave": _NO_INTERLEAVE,
        "swizzle": _SWIZZLES[slot.swizzle], "promotion": _PROMOTE_128, "fill": _ZERO_FILL,
    }  # fmt: skip


class MappedArray(Protocol):
    """What a map needs to know of an array beside its address; strides in elements."""

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A map in host memory, at ``address`` as long as this object lives."""

    address: int
    storage: Any


class TensorMaps:
    """The maps of one slot for arrays of one layout, by the array's address.

    ``spare`` is an address of the device for arrays without elements. One element of it may be
    read (a driver takes no size of 0): it is zero.
    """

    def __init__(self, device: Device, slot: Slot, array: MappedArray, spare: int) -> None:
        self._encode = _encode_function(device)
        self._device = device
        self._spare = spare
        self._kind = _data_type(array.dtype)
        self._layout = layout(slot, array)
        self._swizzle = _SWIZZLES[slot.swizzle]
        self._text = (
            f"making a tensor map of an array of shape {list(array.shape)} and strides "
            f"{list(array.strides)} for boxes of {list(slot.box)}"
        )
        self._made: dict[int, TensorMap] = {}

    def of(self, address: int) -> TensorMap:
        """The map of an array at ``address``."""
        found = self._made.get(address)
        if found is None:
            if len(self._made) >= _KEPT:
                self._made.clear()
            found = self._made[address] = self._make(address)
        return found

    def _make(self, address: int) -> TensorMap:
        storage = (ctypes.c_char * (MAP_BYTES + _ALIGNMENT))()
        at = -(-ctypes.addressof(storage) // _ALIGNMENT) * _ALIGNMENT
        rank, sizes, strides, box, steps = self._layout
        given = (
            at, self._kind, rank, address or self._spare, sizes, strides, box, steps,
            _NO_INTERLEAVE, self._swizzle, _PROMOTE_128, _ZERO_FILL,
        )  # fmt: skip
        status = self._encode(*given)
        if status in NO_CONTEXT:  # a thread's first call of the driver may be this one
            with self._device.current():
                status = self._encode(*given)
        if status:
            raise self._device.driver.failure(status, self._text)
        return TensorMap(at, storage)


def _data_type(dtype: DType) -> int:
    """By what the accelerator computes with: a copy looks at the width alone."""
    if dtype.bytes == 1:
        return _BYTE
    return dtype.tensor_map if dtype.tensor_map >= 0 else _SHORT


def layout(slot: Slot, array: MappedArray) -> tuple[int, Any, Any, Any, Any]:
    """Rank, sizes, strides in bytes, box and steps, innermost axis first, as C arrays."""
    axes = tuple(reversed(slot.axes)) or tuple(reversed(range(len(array.shape))))
    rank = len(axes)
    sizes = [array.shape[axis] for axis in axes]
    # An axis of one element is never stepped along: its stride may be anything, and the driver
    # takes no stride that is not a multiple of 16 bytes.
    strides = [
        abs(array.strides[axis]) * array.dtype.bytes if array.shape[axis] > 1 else _ALIGNED_STRIDE
        for axis in axes[1:]
    ]
    if 0 in sizes:  # the driver takes no 0, and what strides such an array has means nothing
        sizes, strides = [1] * rank, [_ALIGNED_STRIDE] * (rank - 1)
    return (
        rank, _c_array(ctypes.c_uint64, sizes), _c_array(ctypes.c_uint64, strides or [0]),
        _c_array(ctypes.c_uint32, list(reversed(slot.box))),
        _c_array(ctypes.c_uint32, [1] * rank),
    )  # fmt: skip


def _c_array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * len(values))(*values)


@once
def _encode_function(device: Device) -> Any:
    """``cuTensorMapEncodeTiled`` as a ctypes function."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    prototype = ctypes.CFUNCTYPE(
        number, pointer, number, ctypes.c_uint32, pointer, pointer, pointer, pointer, pointer,
        number, number, number, number,
    )  # fmt: skip
    return prototype(device.driver.entry_point("cuTensorMapEncodeTiled"))
