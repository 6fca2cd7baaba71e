"""For tests: NumPy arrays in the memory of a GPU, element for element where they were.

A call with NumPy arrays copies them row-major; these keep strides, gaps, offsets and alignment, so
that a test of a layout is one on a GPU too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from tessera_backend.runtime.arrays import ArrayView, describe

import tessera_lang as tessera
from tessera_lang.record import replace

Array = np.ndarray[Any, np.dtype[Any]]
_LINE = 256  # addresses agree in their remainders by this


class Placed:
    """An array on the first GPU, laid out as ``array`` is."""

    def __init__(self, array: Array) -> None:
        self.array = array
        host = describe(array, "array")
        assert host is not None
        low, high = host.extent() if host.size else (0, 0)
        self._start, self._length = host.pointer + low, high - low
        self._lead = self._start % _LINE if host.size else 0
        self._memory = tessera.to_device(
            np.concatenate([np.zeros(self._lead, np.uint8), self._bytes(), np.zeros(1, np.uint8)])
        )
        there: ArrayView = self._memory.__tessera_view__()
        at = there.pointer + self._lead - low if host.size else there.pointer
        self._view = replace(host, pointer=at, device=there.device, owner=self._memory)

    def _bytes(self) -> Array:
        if not self._length:
            return np.zeros(0, np.uint8)
        memory: Any = (ctypes.c_ubyte * self._length).from_address(self._start)
        return np.frombuffer(memory, np.uint8)

    def __tessera_view__(self) -> ArrayView:
        return self._view

    def bring_back(self) -> None:
        """Overwrite the host's elements, and what is between them, with what is there now."""
        found = self._memory.numpy()
        if self._length:
            ctypes.memmove(self._start, found[self._lead :].ctypes.data, self._length)


def call(function: Any, arguments: Sequence[Any], target: str, **named: Any) -> Any:
    """What a kernel gives, and what it writes to arrays, with the layouts they have."""
    if target != "cuda":
        return function(*arguments, **named)
    given = [Placed(a) if isinstance(a, np.ndarray) else a for a in arguments]
    by_name = {k: Placed(a) if isinstance(a, np.ndarray) else a for k, a in named.items()}
    found = function(*given, **by_name)
    tessera.synchronize()
    for a in given:
        if isinstance(a, Placed) and a.array.flags.writeable:
            a.bring_back()
    if isinstance(found, tuple):
        return tuple(np.asarray(x) for x in found)
    return found if found is None else np.asarray(found)


class PlacedCalls:
    """The kernels of a module, called with arrays on the GPU in the layouts they have here."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._module, name)
        return lambda *arguments, **named: call(kernel, arguments, "cuda", **named)


def with_layouts(module: Any, target: str) -> Any:
    """A module whose calls keep layouts on every target."""
    return PlacedCalls(module) if target == "cuda" else module
