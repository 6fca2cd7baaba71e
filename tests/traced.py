"""Functions of device arrays without a device: what such a call records runs on the CPU.

The world is that of a call with arrays of a GPU (``runtime/traced_world.py``): it takes the ways
that the library takes there and refuses what is refused there. Only its memory is the host's, and
its kernels are those of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import numpy as np
from tessera_backend.runtime import traced_world
from tessera_backend.runtime.arrays import HOST, describe
from tessera_backend.runtime.dtypes import TO_NUMPY
from tessera_backend.runtime.functions import Function
from tessera_backend.runtime.recorded_calls import Allocation, Handle
from tessera_backend.runtime.traced_world import TracedWorld


def _made(wanted: Allocation, ordinal: int, stream: int) -> tuple[Any, int]:
    array = np.zeros(wanted.shape, TO_NUMPY[wanted.dtype.name])
    if not wanted.zeroed and array.dtype.kind == "f":
        array[...] = np.nan
    return array, array.ctypes.data


@contextmanager
def _no_device() -> Iterator[None]:
    with (
        patch.object(traced_world, "device", _nothing),
        patch.object(traced_world, "zero_function", _nothing),
        patch.object(traced_world, "_step", _nothing),
    ):
        yield


def _nothing(*_: Any) -> None:
    return None


def traced(function: Function, *arguments: Any, **named: Any) -> Any:
    """What a call with device arrays gives, as NumPy arrays. Raises TesseraError as it does."""
    private: Any = function
    with _no_device():

        def kernel(reference: Any) -> Any:
            return private._provider.beside(reference.path).kernel(reference.name, "cpu")

        world = TracedWorld(kernel, HOST, 0, _made)
        with patch.object(type(private), "in_place", False):
            given = private._by_leaves([*arguments, *named.values()], tuple(named))
        function, leaves = given or (function, (*arguments, *named.values()))
        named = {} if given else named
        views = [view for a in leaves if (view := describe(a, "argument"))]
        arguments = leaves if given else arguments
        return _as_numpy(function.traced(world, arguments, named, views), world)


def _as_numpy(found: Any, world: TracedWorld) -> Any:
    if isinstance(found, (tuple, list)):
        return tuple(_as_numpy(f, world) for f in cast("tuple[Any, ...]", found))
    if not isinstance(found, Handle):
        return found
    owner = world.owners[found.base]
    start = (world.pointers[found.base] - owner.ctypes.data) // owner.itemsize + found.offset
    flat = owner.reshape(-1)[start:]
    steps = [s * owner.itemsize for s in found.strides]
    return np.lib.stride_tricks.as_strided(flat, found.shape, steps).copy()
