"""Reshaping of what already lies somewhere, against NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tessera_backend.runtime.reshaping import reshaped

SHAPES = [s for r in range(4) for s in itertools.product((1, 2, 3, 4, 6), repeat=r)
          if math.prod(s) in (1, 4, 6, 12, 24)]  # fmt: skip
BASE = np.arange(2000).reshape(10, 20, 10)


def views(shape: tuple[int, ...]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    whole = BASE[tuple(slice(0, n) for n in shape)] if shape else BASE[0, 0, 0]
    whole = np.asarray(whole)[..., 0] if whole.ndim > len(shape) else np.asarray(whole)
    if whole.shape != shape:
        whole = np.zeros(shape, np.int64)
    dense = np.arange(math.prod(shape)).reshape(shape)
    return [dense, dense.T, whole, dense[..., ::-1] if shape else dense,
            np.broadcast_to(dense[:1], shape) if shape else dense]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_as_numpy_does_without_a_copy(shape: tuple[int, ...]) -> None:
    for view in views(shape):
        for wanted in (s for s in SHAPES if math.prod(s) == view.size):
            found = reshaped(view.shape, [s // 8 for s in view.strides], wanted)
            copied = view.reshape(wanted)
            is_view = copied.size and np.shares_memory(copied, view)
            if found is None:
                assert not is_view, (view.shape, view.strides, wanted)
                continue
            again = np.lib.stride_tricks.as_strided(view, wanted, [8 * s for s in found])
            assert np.array_equal(again, copied), (view.shape, view.strides, wanted, found)


def test_of_no_elements() -> None:
    assert reshaped((3, 0), (7, 5), (0, 4)) == (4, 1)
