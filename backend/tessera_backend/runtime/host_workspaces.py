"""Arrays of ``op.workspace`` in host memory: each launch has to leave them as zeros.

Must not know launches.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from tessera_backend.runtime.dtypes import Array


class Workspaces:
    """Those that are in use; the memory that an array is a view of says so."""

    def __init__(self) -> None:
        self._used: list[tuple[weakref.ref[Any], int, int]] = []

    def add(self, array: Array) -> None:
        memory: Any = array.base
        start = array.ctypes.data - memory.ctypes.data
        self._used.append((weakref.ref(memory), start, array.nbytes))

    def hold_zeros(self) -> bool:
        self._used = [use for use in self._used if use[0]() is not None]
        return not any(
            np.count_nonzero(memory[start : start + size])
            for of, start, size in self._used
            if (memory := of()) is not None
        )
