"""The address of a NumPy array's data, without the dictionary of ``__array_interface__``.

The C API of NumPy fixes that the address stands behind an array's object header; reading it
there takes a tenth of the time. Used only where it proves right on arrays of this process.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

_HEADER = object.__basicsize__


def _by_protocol(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _by_header(array: Any) -> int:
    return _word_at(id(array) + _HEADER).value


_word_at = ctypes.c_size_t.from_address


@lru_cache(maxsize=1)
def address_function() -> Callable[[Any], int]:
    """What gives the address of an array's data. Only for objects that are arrays."""
    if sys.implementation.name != "cpython":
        return _by_protocol
    whole = np.zeros((3, 5), np.float32)
    samples: list[Any] = [
        whole,
        whole[1:, ::2],
        whole.T,
        np.zeros(()),
        np.zeros((0, 4)),
        np.frombuffer(b"abcd", np.uint8),
    ]
    right = all(_by_header(a) == _by_protocol(a) for a in samples)
    return _by_header if right else _by_protocol
