"""DLPack: reading a producer's capsule without a copy, and making one of our own.

Owns the C structs of the exchange (version 1.0 and the unversioned one). Must not know
arrays of any library or kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import cast

from tessera_backend.runtime.dtypes import DLPACK_CODES, FROM_DLPACK
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
_READ_ONLY = 1


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_python = ctypes.pythonapi
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_dying_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_dying_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", _python))


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a capsule says. ``dtype`` None: an element type that the language lacks."""

    pointer: int
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device_kind: int
    device_index: int
    read_only: bool
    owner: object


def read_capsule(capsule: object) -> Exchanged:
    """The tensor in a capsule. The capsule stays the owner: it is kept and frees the memory.

    Raises ValueError where it is no capsule of a tensor.
    """
    read_only = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if versioned.version.major != 1:
            raise ValueError(f"DLPack version {versioned.version.major} is not known")
        tensor = cast("_Tensor", versioned.tensor)
        read_only = bool(versioned.flags & _READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Managed.from_address(_get_pointer(capsule, b"dltensor")).tensor
    else:
        raise ValueError("the object's __dlpack__ returned no tensor")
    shape = tuple(int(tensor.shape[i]) for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(int(tensor.strides[i]) for i in range(tensor.ndim))
    else:
        strides = row_major(shape)
    dtype = None
    if tensor.dtype.lanes == 1:
        dtype = FROM_DLPACK.get((tensor.dtype.code, tensor.dtype.bits))
    return Exchanged(
        (tensor.data or 0) + tensor.byte_offset, dtype, shape, strides,
        tensor.device.kind, tensor.device.index, read_only, capsule,
    )  # fmt: skip


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an array without gaps, last axis fastest."""
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= max(1, shape[axis])
    return tuple(strides)


# Memory handed out: capsule address -> what must stay alive until the consumer is done.
_handed_out: dict[int, tuple[object, ...]] = {}


@_DELETER
def _release(address: int) -> None:
    _handed_out.pop(address, None)


@_DELETER
def _destroy_capsule(capsule: int) -> None:
    # A capsule that nobody consumed still has its first name and owns the tensor. The
    # object is dying: it is passed on by address, never as a Python reference.
    if _dying_is_valid(capsule, b"dltensor"):
        _handed_out.pop(_dying_pointer(capsule, b"dltensor"), None)


def make_capsule(
    pointer: int, dtype: DType, shape: tuple[int, ...], device: tuple[int, int], owner: object
) -> object:
    """A capsule for a row-major array that ``owner`` keeps alive."""
    managed = _Managed()
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    steps = (ctypes.c_int64 * max(1, len(shape)))(*row_major(shape))
    code, bits = DLPACK_CODES[dtype.name]
    managed.tensor = _Tensor(
        pointer, _Device(*device), len(shape), _DataType(code, bits, 1),
        ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)), 0,
    )  # fmt: skip
    managed.deleter = ctypes.cast(_release, ctypes.c_void_p)
    address = ctypes.addressof(managed)
    _handed_out[address] = (managed, sizes, steps, owner)
    destructor = ctypes.cast(_destroy_capsule, ctypes.c_void_p)
    return cast("Callable[..., object]", _new_capsule)(address, b"dltensor", destructor)
