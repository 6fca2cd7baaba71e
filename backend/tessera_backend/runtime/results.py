"""Arrays that a kernel returns: allocated before the launch, in the caller's library.

Owns where they lie and whose they are: beside the arguments, NumPy's where every argument is
on the host. Must not know kernels or plans.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tessera_backend.runtime.arrays import HOST, ArrayView, describe, is_torch
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.dlpack import row_major
from tessera_backend.runtime.dtypes import TO_NUMPY, Array
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.torch_memory import torch_empty
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType

if TYPE_CHECKING:
    from tessera_backend.runtime.arguments import Placed
    from tessera_backend.runtime.launch import Prepared

_ALIGNMENT = 64
_SMALL = 4096  # bytes: a few lines of the cache, whose borders do not matter

Maker = Callable[[tuple[int, ...]], Any]


@dataclass(frozen=True, slots=True)
class Made:
    """A result: what the launch writes, and what gives the caller's array once it is issued."""

    view: ArrayView
    hand_over: Callable[[], Any]


def make_results(prepared: Prepared, placed: Placed) -> list[Made]:
    """Memory for what a call returns. Raises TesseraError where there is none."""
    made: list[Made] = []
    for dtype, shape in prepared.results:
        try:
            made.append(_made(placed, dtype, shape))
        except MemoryError:
            size = math.prod(shape) * dtype.bytes
            raise error(diagnostic(
                "T0846", f"there is no memory for the result of `{prepared.plan.kernel}`, of shape "
                f"{shape}: {size} bytes", helps=("use smaller sizes",),
            )) from None  # fmt: skip
    return made


def handed_over(made: Sequence[Made]) -> Any:
    """What the call gives: the array, or a tuple of several."""
    arrays = tuple([m.hand_over() for m in made])
    return arrays[0] if len(arrays) == 1 else arrays or None


def _made(placed: Placed, dtype: DType, shape: tuple[int, ...]) -> Made:
    given = [v for v in placed.given or placed.values if isinstance(v, ArrayView)]
    beside = next((v.owner for v in given if v.device == placed.device), None)
    if placed.device != HOST and beside is None:
        return _brought_back(placed, dtype, shape)
    make = maker_beside(beside, dtype, placed.device, placed.stream)
    array = make(shape)
    view = describe(array, "result")
    assert view is not None
    return Made(view, lambda: array)


def maker_beside(owner: object, dtype: DType, device: int, stream: int) -> Maker:
    """What makes an array of the library whose array ``owner`` is, on its device."""
    if is_torch(owner.__class__):
        return torch_empty(dtype.name, device)
    if device == HOST:
        numpy = TO_NUMPY[dtype.name]
        return lambda shape: aligned_empty(shape, numpy)
    if type(owner).__module__.partition(".")[0] == "cupy":
        cupy = cast("Any", sys.modules["cupy"])
        return lambda shape: cupy.empty(shape, TO_NUMPY[dtype.name])
    return lambda shape: _own(dtype, shape, device, stream)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Host memory at a multiple of 64 bytes, so that kernels may assume alignment."""
    raw = np.empty(math.prod(shape) * dtype.itemsize + _ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, raw, -address_function()(raw) % _ALIGNMENT)


def small_maker(
    shape: tuple[int, ...], dtype: np.dtype[Any], *, fill: bytes = b""
) -> Callable[[], Array]:
    """What makes a small array: NumPy's own memory is a multiple of 16 as a rule, which is all
    that kernels assume. ``fill``: the bytes of an element, in all of them."""
    address_of = address_function()
    new = np.zeros if fill and not any(fill) else np.empty
    value = np.frombuffer(fill, dtype)[0] if any(fill) else None

    def make() -> Array:
        made = new(shape, dtype)
        if address_of(made) & 15:
            return aligned()
        if value is not None:
            made.fill(value)
        return made

    def aligned() -> Array:
        made = aligned_empty(shape, dtype)
        if fill:
            made.fill(0 if value is None else value)
        return made

    return make if math.prod(shape) * dtype.itemsize <= _SMALL else aligned


def _own(dtype: DType, shape: tuple[int, ...], device: int, stream: int) -> Any:
    from tessera_backend.device.driver import device as cuda_device
    from tessera_backend.device.memory import DeviceMemory
    from tessera_backend.runtime.device_array import DeviceArray

    size = math.prod(shape) * dtype.bytes
    return DeviceArray(DeviceMemory(cuda_device(device), size, stream), dtype, shape)


def _brought_back(placed: Placed, dtype: DType, shape: tuple[int, ...]) -> Made:
    """On a device for host arrays: a copy goes back to the host."""
    array = _own(dtype, shape, placed.device, placed.stream)
    view = ArrayView(
        dtype, shape, row_major(shape), array.__tessera_view__().pointer, placed.device, False,
        array, placed.stream,
    )  # fmt: skip
    given = [v for v in placed.given if isinstance(v, ArrayView)]
    as_torch = any(is_torch(v.owner.__class__) for v in given)

    def hand_over() -> Any:
        from tessera_backend.device.driver import device as cuda_device
        from tessera_backend.device.stream import synchronize_stream

        synchronize_stream(cuda_device(placed.device), placed.stream)
        found = array.numpy()
        if not as_torch:
            return found
        target = torch_empty(dtype.name, HOST)(shape)
        there = describe(target, "result")
        if there is not None and found.size:
            from tessera_backend.runtime.staging import as_numpy

            as_numpy(there)[...] = found
        return target

    return Made(view, hand_over)
