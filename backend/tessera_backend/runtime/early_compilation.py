"""Code of launches that are still to come, begun by the layouts of what they will take.

Owns what stands for arrays that are not there yet. Must not know which kernels these are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.dtypes import Array
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.module_interface import KernelInterface
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.target.host_world import KernelReference, Outline
from tessera_lang.types.dtype import DType


class CompilingEarly:
    """What a world needs to begin code."""

    _device: int

    def _empty(self, shape: tuple[int, ...], dtype: DType) -> Array:
        raise NotImplementedError

    def _kernel(self, kernel: KernelReference) -> tuple[Launcher, KernelInterface]:
        raise NotImplementedError

    def begin(self, kernel: KernelReference, arguments: Sequence[float | Outline]) -> None:
        """See ``tessera_lang.target.host_world.CompilingWorld``."""
        if self._device != HOST:
            return
        launcher, _ = self._kernel(kernel)
        given = [self._outline(*a) if isinstance(a, tuple) else a for a in arguments]
        try:
            launcher.begin(given)
        except TesseraError:
            return  # the launch says what is wrong

    def _outline(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """An array that nobody may read: of a layout, in memory of one element."""
        whole = math.prod(shape) == 0
        found = self._empty(shape if whole else (1,), dtype)
        strides = [found.itemsize]
        for n in reversed(shape[1:]):
            strides.append(strides[-1] * n)
        made = np.lib.stride_tricks.as_strided
        return found if whole else made(found, shape, strides[::-1][: len(shape) or 0])
