"""Host memory that calls leave behind, for the arrays of later calls.

A large array is memory of the system's, which is cleared page by page when first written: that
takes as long as a pass over it. What a recorded call made and does not give to its caller is kept
for the next one. Must not know calls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from tessera_backend.runtime.dtypes import Array
from tessera_backend.runtime.numpy_address import address_function
from tessera_backend.runtime.results import aligned_empty
from tessera_lang.locks import free_lock

FEWEST, MOST = 1 << 16, 1 << 26
"""Bytes of a block that is worth it, and of all that are kept."""
_PAGE, _LINE = 4096, 64


class SpareMemory:
    """Blocks of whole pages, the longest unused first."""

    def __init__(self) -> None:
        self._lock = free_lock()
        self._blocks: deque[Any] = deque()
        self._bytes = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array at a multiple of 64 bytes that holds what its memory held."""
        size = math.prod(shape) * dtype.itemsize
        if size < FEWEST:
            return aligned_empty(shape, dtype)
        whole = -(-(size + _LINE) // _PAGE) * _PAGE
        block = self._taken(whole)
        if block is None:
            block = np.empty(whole, np.uint8)
        return np.ndarray(shape, dtype, block, -address_function()(block) % _LINE)

    def _taken(self, size: int) -> Any:
        with self._lock:
            for at, block in enumerate(self._blocks):
                if block.size == size:
                    del self._blocks[at]
                    self._bytes -= size
                    return block
        return None

    def give(self, arrays: Iterable[Array]) -> None:
        """Arrays of ``empty`` that nobody has any more: their memory is for others."""
        with self._lock:
            for array in arrays:
                block: Any = array.base
                if array.nbytes < FEWEST or block.size > MOST:
                    continue
                self._blocks.append(block)
                self._bytes += block.size
                while self._bytes > MOST:
                    self._bytes -= self._blocks.popleft().size


spare_memory = SpareMemory()
