"""One rounding where NumPy has two: f64 and 64-bit integers to floats narrower than f32.

Must not know dtypes of the language.
"""

from __future__ import annotations

import numpy as np

from tessera_backend.runtime.dtypes import Array


def once(array: Array) -> Array:
    """An f32 from which a narrower float is rounded as from the number itself: where digits are
    lost the last bit is set, so that no tie is made of what was none."""
    wide = array
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        lost = array & 0xFFF  # more than the eleven bits that an f64 has not
        rounded = (array - lost) | np.where(lost != 0, 0x800, 0).astype(array.dtype)
        wide = np.where((array >> 53) + (array < 0) == 0, array, rounded)
    wide = wide.astype(np.float64)
    near = wide.astype(np.float32)
    bits = near.view(np.uint32)
    inexact = np.isfinite(wide) & (near != wide)
    bits = np.where(inexact, bits - (np.abs(near) > np.abs(wide)).astype(np.uint32) | 1, bits)
    return bits.view(np.float32)
