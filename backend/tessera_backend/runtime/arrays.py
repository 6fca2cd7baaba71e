"""What an array argument is: one description for every library, without a copy.

Owns the recognition of arrays (by type where we know the library, by protocol where we do
not) and what is refused about them. Must not know kernels or plans, and never imports
torch, cupy or jax: a type is recognised by the module that defines it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.dlpack import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    read_capsule,
    row_major,
)
from tessera_backend.runtime.dtypes import TORCH_NAMES, from_numpy
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DTYPES, DType

HOST = -1


@dataclass(frozen=True, slots=True)
class ArrayView:
    """An array as a launch sees it. Strides are in elements and may be negative or 0.

    ``device`` is HOST or a CUDA ordinal; ``stream`` the one its library works on now, and
    ``ready_on`` the one after whose work the data may be used, None where nobody said;
    ``owner`` keeps the memory alive.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    device: int
    read_only: bool
    owner: object
    stream: int | None = None
    ready_on: int | None = None

    @property
    def size(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps; axes of one element may have any stride."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != step:
                return self.size == 0
            step *= n
        return True

    def extent(self) -> tuple[int, int]:
        """Bytes from the first element to the lowest, and to behind the highest, address."""
        if self.size == 0:
            return 0, 0
        low = high = 0
        for n, stride in zip(self.shape, self.strides, strict=True):
            reach = (n - 1) * stride
            low, high = low + min(0, reach), high + max(0, reach)
        return low * self.dtype.bytes, (high + 1) * self.dtype.bytes


def refuse(code: str, name: str, what: str, *helps: str) -> TesseraError:
    """An argument that cannot be taken; ``what`` follows the argument's name."""
    return error(diagnostic(code, f"argument `{name}` {what}", helps=helps))


# --- NumPy ---------------------------------------------------------------------------------


def _element_strides(
    strides: tuple[int, ...], shape: tuple[int, ...], itemsize: int, name: str
) -> tuple[int, ...]:
    """Byte strides in elements; axes of at most one element have none that matters."""
    result: list[int] = []
    for axis, (n, step) in enumerate(zip(shape, strides, strict=True)):
        if n > 1 and step % itemsize:
            raise refuse(
                "T0841", name,
                f"has a stride of {step} bytes along axis {axis}, which is no multiple of its "
                f"element size, {itemsize} bytes",
                "pass a copy: np.ascontiguousarray(...)",
            )  # fmt: skip
        result.append(step // itemsize if step % itemsize == 0 else 0)
    return tuple(result)


def _numpy_dtype(dtype: np.dtype[Any], name: str) -> DType:
    ours = from_numpy(dtype)
    if ours is not None:
        return ours
    if dtype.byteorder not in "=|" and from_numpy(dtype.newbyteorder("=")) is not None:
        raise refuse(
            "T0842", name, f"holds `{dtype}` numbers in the byte order of another machine",
            "pass x.astype(x.dtype.newbyteorder('='))",
        )  # fmt: skip
    floats = ", ".join(d.name for d in DTYPES.values() if d.is_float)
    known = f"bool, i8 to i64, u8 to u64, {floats}"
    raise refuse(
        "T0832", name, f"has elements of type `{dtype}`, which the language does not have",
        f"element types are {known}",
    )  # fmt: skip


def _check_pointer(pointer: int, dtype: DType, name: str) -> int:
    if pointer % dtype.bytes:
        raise refuse(
            "T0841", name,
            f"begins at an address that is no multiple of its element size, {dtype.bytes} bytes",
            "pass a copy of it",
        )  # fmt: skip
    return pointer


def _is_masked(array: object) -> bool:
    """No array is masked while numpy.ma, slow to import, is not there."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(array, masked.MaskedArray)


def _describe_numpy(value: object, name: str) -> ArrayView:
    array = cast("np.ndarray[Any, np.dtype[Any]]", value)
    if _is_masked(array):
        raise refuse(
            "T0831", name, "is a masked array, and a kernel would not see the mask",
            "pass x.filled(value)",
        )  # fmt: skip
    dtype = _numpy_dtype(array.dtype, name)
    interface = array.__array_interface__
    pointer, read_only = cast("tuple[int, bool]", interface["data"])
    strides = _element_strides(array.strides, array.shape, dtype.bytes, name)
    _check_pointer(pointer, dtype, name)
    return ArrayView(dtype, array.shape, strides, pointer, HOST, read_only, array)


# --- torch, cupy, jax ----------------------------------------------------------------------


def _describe_torch(value: object, name: str) -> ArrayView:
    tensor = cast("Any", value)
    if str(tensor.layout) != "torch.strided":
        raise refuse("T0831", name, f"is a torch tensor of layout `{tensor.layout}`",
                     "pass x.to_dense()")  # fmt: skip
    dtype_name = TORCH_NAMES.get(str(tensor.dtype))
    if dtype_name is None:
        raise refuse("T0832", name, f"has elements of type `{tensor.dtype}`, which the language "
                     "does not have")  # fmt: skip
    if tensor.is_conj() or tensor.is_neg():
        raise refuse("T0831", name, "is a lazily conjugated or negated view",
                     "pass x.resolve_neg()")  # fmt: skip
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        raise refuse("T0844", name, f"lives on the device `{device}`, where no kernel can run",
                     "move it: x.cpu() or x.cuda()")  # fmt: skip
    dtype = DTYPES[dtype_name]
    ordinal = HOST if device.type == "cpu" else int(tensor.get_device())
    return ArrayView(
        dtype, tuple(tensor.shape), tuple(tensor.stride()),
        _check_pointer(tensor.data_ptr(), dtype, name), ordinal, False, tensor,
        torch_stream(ordinal),
    )  # fmt: skip


_raw_stream: list[Callable[[int], int]] = []


def torch_stream(device: int) -> int | None:
    """torch's current stream on a device, where torch is loaded and has CUDA."""
    if device == HOST:
        return None
    if not _raw_stream:
        import sys

        torch = cast("Any", sys.modules.get("torch"))
        raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if raw is None and hasattr(torch, "cuda"):  # another thread may be importing it
            raw = _stream_by_object(torch)
        if raw is None:
            return None
        _raw_stream.append(raw)
    return _raw_stream[0](device)


def _stream_by_object(torch: Any) -> Callable[[int], int]:
    return lambda device: int(torch.cuda.current_stream(device).cuda_stream)


def _describe_cupy(value: object, name: str) -> ArrayView:
    import sys

    array = cast("Any", value)
    dtype = _numpy_dtype(array.dtype, name)
    strides = _element_strides(tuple(array.strides), tuple(array.shape), dtype.bytes, name)
    stream = int(cast("Any", sys.modules["cupy"]).cuda.get_current_stream().ptr)
    return ArrayView(
        dtype, tuple(array.shape), strides, _check_pointer(int(array.data.ptr), dtype, name),
        int(array.device.id), False, array, stream,
    )  # fmt: skip


def _describe_jax(value: object, name: str) -> ArrayView:
    # jax arrays are values: nothing may write into one, whatever the protocol says.
    view = _describe_dlpack(value, name)
    return ArrayView(view.dtype, view.shape, view.strides, view.pointer, view.device, True,
                     (value, view.owner), view.stream)  # fmt: skip


# --- protocols -----------------------------------------------------------------------------


def _describe_dlpack(value: object, name: str) -> ArrayView:
    producer = cast("Any", value)
    kind, index = producer.__dlpack_device__()
    if kind not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise refuse("T0844", name, f"lives on a device (DLPack type {int(kind)}) where no kernel "
                     "can run")  # fmt: skip
    on_cuda = kind in (CUDA, CUDA_MANAGED)
    # Stream 1 is the legacy default stream: the producer orders its work before ours.
    arguments: dict[str, object] = {"stream": 1} if on_cuda else {}
    try:
        try:
            capsule = producer.__dlpack__(max_version=(1, 0), **arguments)
        except TypeError:
            capsule = producer.__dlpack__(**arguments)
        found = read_capsule(capsule)
    except (BufferError, ValueError, RuntimeError, TypeError) as fault:
        raise refuse("T0831", name, f"cannot be shared through DLPack: {fault}") from fault
    if found.dtype is None:
        raise refuse("T0832", name, "has elements of a type that the language does not have")
    return _checked(ArrayView(
        found.dtype, found.shape, found.strides,
        _check_pointer(found.pointer, found.dtype, name), int(index) if on_cuda else HOST,
        found.read_only, (value, found.owner),
    ), name)  # fmt: skip


def _describe_interface(
    value: object, interface: dict[str, Any], device: int, name: str
) -> ArrayView:
    """``__cuda_array_interface__`` (versions 2 and 3) and ``__array_interface__``."""
    if interface.get("mask") is not None:
        raise refuse("T0831", name, "has a mask, which a kernel would not see")
    dtype = _numpy_dtype(np.dtype(interface["typestr"]), name)
    shape = tuple(int(n) for n in interface["shape"])
    given = interface.get("strides")
    strides = (
        row_major(shape) if given is None
        else _element_strides(tuple(int(s) for s in given), shape, dtype.bytes, name)
    )  # fmt: skip
    data = interface.get("data")
    if not isinstance(data, tuple):
        raise refuse("T0831", name, "has an array interface without an address")
    pointer, read_only = cast("tuple[int | None, bool]", data)
    stream = interface.get("stream")
    return _checked(ArrayView(
        dtype, shape, strides, _check_pointer(int(pointer or 0), dtype, name), device,
        bool(read_only), value, None, None if stream is None else int(stream),
    ), name)  # fmt: skip


def _describe_cuda_interface(value: object, name: str) -> ArrayView:
    holder = cast("Any", value)
    device = 0
    if hasattr(holder, "__dlpack_device__"):
        device = int(holder.__dlpack_device__()[1])
    return _describe_interface(value, holder.__cuda_array_interface__, device, name)


def _describe_array_interface(value: object, name: str) -> ArrayView:
    return _describe_interface(value, cast("Any", value).__array_interface__, HOST, name)


# --- recognition ---------------------------------------------------------------------------

Describe = Callable[[object, str], ArrayView]
_BY_MODULE: dict[tuple[str, str], Describe] = {
    ("numpy", "ndarray"): _describe_numpy,
    ("torch", "Tensor"): _describe_torch,
    ("cupy", "ndarray"): _describe_cupy,
    ("jaxlib", "ArrayImpl"): _describe_jax,
    ("jax", "Array"): _describe_jax,
}
_known_types: dict[type, Describe | None] = {}


def describer(kind: type) -> Describe | None:
    """How arrays of a type are described; None where it is no array type."""
    if kind in _known_types:
        return _known_types[kind]
    found: Describe | None = None
    for base in kind.__mro__:
        found = _BY_MODULE.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            break
    else:
        if hasattr(kind, "__tessera_view__"):
            found = _describe_own
        elif hasattr(kind, "__cuda_array_interface__"):
            found = _describe_cuda_interface
        elif np.generic in kind.__mro__:
            found = None  # a number, though it has the protocols
        elif hasattr(kind, "__dlpack__"):
            found = _describe_dlpack
        elif hasattr(kind, "__array_interface__"):
            found = _describe_array_interface
    _known_types[kind] = found
    return found


def _describe_own(value: object, name: str) -> ArrayView:
    view: ArrayView = cast("Any", value).__tessera_view__()
    return view


def is_torch(kind: type) -> bool:
    """Whether a type is torch's tensor type or derived from it."""
    return describer(kind) is _describe_torch


def is_numpy(kind: type) -> bool:
    """Whether a type is NumPy's array or derived from it."""
    return describer(kind) is _describe_numpy


def describe(value: object, name: str) -> ArrayView | None:
    """The array behind an argument, or None where it is a number or nothing we know.

    Raises TesseraError for an array that a kernel cannot take. Other libraries run here: whatever
    goes wrong in them is about the argument.
    """
    found = describer(value.__class__)
    try:
        if found is not None:
            return found(value, name)
        # Some objects grow the interface per instance, by __getattr__.
        if getattr(value, "__cuda_array_interface__", None) is not None:
            return _describe_cuda_interface(value, name)
    except TesseraError:
        raise
    except Exception as fault:
        kind, said = type(fault).__name__, " ".join(str(fault).split())[:200]
        raise refuse(
            "T0831", name, f"is of type `{type(value).__name__}`, and what it says of its memory "
            f"cannot be read: {kind}{f': {said}' if said else ''}",
            "pass an array of NumPy, PyTorch, CuPy or JAX that holds its values",
        ) from fault  # fmt: skip
    return None


def _checked(view: ArrayView, name: str) -> ArrayView:
    """A view as a protocol gave it; what cannot be true is refused before memory is touched."""
    if any(n < 0 for n in view.shape):
        raise refuse("T0831", name, f"says that its shape is {view.shape}")
    if len(view.strides) != len(view.shape):
        raise refuse("T0831", name, f"says that its shape is {view.shape} and its strides are "
                     f"{view.strides}")  # fmt: skip
    if not 0 <= view.pointer < 1 << 64 or (view.size and not view.pointer):
        raise refuse("T0831", name, f"has elements and says that they begin at the address "
                     f"{view.pointer}")  # fmt: skip
    return view
