"""The handler of XLA's foreign function interface through which JAX calls Tessera.

One C function for all calls: it reads XLA's call frame (``xla/ffi/api/c_api.h``, API version 0) and
hands the buffers, as NumPy arrays of XLA's own memory, to what a name stands for. Must not know JAX
or what a call computes.
"""

from __future__ import annotations

import ctypes
import math
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera_backend.runtime.dtypes import TO_NUMPY
from tessera_lang.diagnostics.diagnostic import TesseraError

Run = Callable[[Sequence[Any], Sequence[Any]], None]
"""``run(arguments, results)``: of NumPy arrays; writes the results."""

_DTYPES = {
    1: "bool", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 16: "bf16", 19: "f8e5m2", 20: "f8e4m3",
}  # fmt: skip
"""Ours, by ``XLA_FFI_DataType``."""
_MINOR = 3
_METADATA = 1
_EXECUTE = 3
_INVALID_ARGUMENT, _INTERNAL = 3, 13

_Pointer = ctypes.c_void_p


class _Span(ctypes.Structure):
    _fields_ = (("text", _Pointer), ("size", ctypes.c_size_t))


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", _Pointer), ("dtype", ctypes.c_int),
        ("data", _Pointer), ("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)),
    )  # fmt: skip


class _Values(ctypes.Structure):
    """``XLA_FFI_Args`` and ``XLA_FFI_Rets``."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", _Pointer), ("size", ctypes.c_int64),
        ("types", _Pointer), ("values", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )  # fmt: skip


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", _Pointer), ("size", ctypes.c_int64),
        ("types", _Pointer), ("names", ctypes.POINTER(ctypes.POINTER(_Span))),
        ("values", ctypes.POINTER(ctypes.POINTER(_Span))),
    )  # fmt: skip


class _Version(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", _Pointer), ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )  # fmt: skip


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32),
    )  # fmt: skip


class _Extension(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", _Pointer),
        ("metadata", ctypes.POINTER(_Metadata)),
    )  # fmt: skip


class _ErrorArguments(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", _Pointer), ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )  # fmt: skip


class _Api(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", _Pointer), ("version", _Version),
        ("internal", _Pointer),
        ("error_create", ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_ErrorArguments))),
    )  # fmt: skip


class _Frame(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("extension", ctypes.POINTER(_Extension)),
        ("api", ctypes.POINTER(_Api)), ("context", _Pointer), ("stage", ctypes.c_int),
        ("arguments", _Values), ("results", _Values), ("attributes", _Attributes),
    )  # fmt: skip


RUNS: dict[str, Run] = {}
"""What the attribute ``call`` of a call stands for."""


def _array(buffer: Any) -> Any:
    """A buffer as a NumPy array of its memory."""
    kind = TO_NUMPY[_DTYPES[buffer.dtype]]
    shape = tuple(buffer.dims[: buffer.rank])
    size = math.prod(shape) * kind.itemsize
    if not size:
        return np.empty(shape, kind)
    memory: Any = (ctypes.c_char * size).from_address(buffer.data)
    return np.ndarray(shape, kind, memory)


def _call_of(attributes: Any) -> str:
    for i in range(attributes.size):
        name = attributes.names[i].contents
        if ctypes.string_at(name.text, name.size) == b"call":
            value = attributes.values[i].contents
            return ctypes.string_at(value.text, value.size).decode()
    return ""


def _failure(frame: Any, message: str, code: int) -> int | None:
    given = _ErrorArguments(
        ctypes.sizeof(_ErrorArguments), None, message.encode(errors="replace"), code
    )
    return frame.api.contents.error_create(ctypes.byref(given))


def _handle(pointer: Any) -> int | None:
    frame = pointer.contents
    if frame.extension and frame.extension.contents.type == _METADATA:
        metadata = frame.extension.contents.metadata.contents
        # Minor versions only add fields, behind those that are read here.
        known = frame.api.contents.version.minor if frame.api else _MINOR
        metadata.version.major, metadata.version.minor = 0, known
        metadata.traits = 0
        return None
    if frame.stage != _EXECUTE:
        return None
    try:
        given, made = (
            [_array(values.values[i].contents) for i in range(values.size)]
            for values in (frame.arguments, frame.results)
        )
        name = _call_of(frame.attributes)
        run = RUNS.get(name)
        if run is None:
            message = f"Tessera: this process has not made the function of {name}"
            return _failure(frame, message, _INVALID_ARGUMENT)
        for array in given:
            array.flags.writeable = False
        run(given, made)
    except TesseraError as failure:
        return _failure(frame, str(failure), _INVALID_ARGUMENT)
    except BaseException:  # nothing of Python may leave a function that C calls
        return _failure(frame, traceback.format_exc(), _INTERNAL)
    return None


HANDLER = ctypes.CFUNCTYPE(_Pointer, ctypes.POINTER(_Frame))(_handle)
"""The C function; it takes Python's lock for as long as a call prepares its launches."""
