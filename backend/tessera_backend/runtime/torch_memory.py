"""Memory of torch for results: what makes a tensor of a dtype and shape on a device.

Inductor has a function for CUDA tensors that takes half the time of ``torch.empty``, and a call of
a small kernel is not much longer. It is no public interface: it is used only where it does what it
should. Must not know kernels or plans.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.dtypes import TORCH_NAMES

_TORCH_DTYPES = {ours: name.removeprefix("torch.") for name, ours in TORCH_NAMES.items()}


def tensor_maker(
    dtype: str, shape: Sequence[int], device: int, zeroed: bool = False
) -> Callable[[], Any]:
    """What makes such a tensor at each call: a contiguous one, whose memory torch gives back in
    the order of its current stream. ``device`` HOST or a CUDA ordinal."""
    size = tuple(shape)
    make = functools.partial(torch_empty(dtype, device, zeroed), size)
    strided = None if zeroed or device == HOST else _strided(id(sys.modules.get("torch")))
    if strided is None:
        return make
    stride, kind = _strides(size), _dtype(dtype)

    def made() -> Any:
        tensor = strided(size, stride, kind)
        # It takes the current device, which may be another.
        return tensor if tensor.get_device() == device else make()

    return made


@functools.lru_cache(maxsize=256)
def torch_empty(dtype: str, device: int, zeroed: bool = False) -> Callable[[Sequence[int]], Any]:
    """``torch.empty``, or ``torch.zeros``, of a dtype on a device."""
    torch: Any = sys.modules["torch"]
    place = torch.device("cpu") if device == HOST else torch.device("cuda", device)
    return functools.partial(
        torch.zeros if zeroed else torch.empty, dtype=_dtype(dtype), device=place
    )


def _dtype(name: str) -> Any:
    torch: Any = sys.modules["torch"]
    return getattr(torch, _TORCH_DTYPES[name])


def _strides(size: Sequence[int]) -> tuple[int, ...]:
    """As torch has them, also of tensors without elements."""
    found, step = list[int](), 1
    for n in reversed(size):
        found.append(step)
        step *= max(n, 1)
    return tuple(reversed(found))


@functools.lru_cache(maxsize=4)
def _strided(torch_identity: int) -> Callable[..., Any] | None:
    """The function of Inductor, where this torch has it and it makes what ``torch.empty`` does."""
    torch: Any = sys.modules.get("torch")
    found: Any = torch
    for name in ("_C", "_dynamo", "guards", "_empty_strided_cuda"):
        found = getattr(found, name, None)
    if not callable(found):
        return None
    try:
        for shape, dtype in (((2, 3), torch.float32), ((), torch.bfloat16), ((3, 0), torch.int8)):
            made: Any = found(shape, _strides(shape), dtype)
            like = torch.empty(shape, dtype=dtype, device=made.device)
            same = all(
                getattr(made, name) == getattr(like, name)
                for name in ("shape", "dtype", "device", "requires_grad", "is_cuda", "layout")
            )
            if not (same and type(made) is torch.Tensor and made.stride() == like.stride()):
                return None
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None
    return found
