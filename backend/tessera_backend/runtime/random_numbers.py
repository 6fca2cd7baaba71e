"""Random numbers by counter: element i of a seed is the same in every process and target.

The bits are those of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom
number generators") at state ``seed + (i + 1) * golden``. Must not know arrays' devices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tessera_backend.runtime.dtypes import TO_NUMPY
from tessera_lang.types.dtype import DType

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1
_CHUNK = 1 << 20

Array = np.ndarray[Any, np.dtype[Any]]


def _bits(start: int, count: int, seed: int) -> Array:
    """64 random bits for each counter from ``start``."""
    base = np.uint64((_mix(seed & _MASK) + (start + 1) * _GOLDEN) & _MASK)
    z = np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN) + base
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def _mix(seed: int) -> int:
    """Spread near seeds apart, so that theirs are not shifted copies of one sequence."""
    z = (seed + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * int(_FIRST)) & _MASK
    z = ((z ^ (z >> 27)) * int(_SECOND)) & _MASK
    return z ^ (z >> 31)


def uniform(shape: tuple[int, ...], dtype: DType, seed: int, low: float, high: float) -> Array:
    """Numbers in [low, high), uniform; of an integer dtype whole numbers in that range."""
    count = math.prod(shape)
    numpy = TO_NUMPY[dtype.name]
    result = np.empty(count, numpy)
    for start in range(0, count, _CHUNK):
        part = min(_CHUNK, count - start)
        # 53 bits make every double of the grid equally likely.
        u = (_bits(start, part, seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = low + u * (high - low)
        if dtype.is_integer:
            values = np.floor(values)
        elif dtype.kind == "bool":
            values = values >= (low + high) / 2
        rounded = values.astype(numpy)
        if dtype.is_float:
            # Rounding to a narrow type may reach the open end.
            outside = rounded.astype(np.float64) >= high
            if outside.any() and low < high:
                rounded[outside] = low
        result[start : start + part] = rounded
    return result.reshape(shape)
