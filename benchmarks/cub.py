"""CUB as CuPy binds it, for tensors of torch without a copy: what the library is measured beside.

``CUPY_ACCELERATORS`` is set before CuPy is loaded, so CuPy's own sums, extremes, scans and
counts are CUB's as well, with what CuPy does around them.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["CUPY_ACCELERATORS"] = "cub"


def cupy() -> Any:
    """CuPy, with CUB behind it, on torch's stream (the default one)."""
    import cupy as module

    return module


def array(tensor: Any) -> Any:
    """The memory of a tensor as CuPy's array."""
    return cupy().asarray(tensor)


def scan_in_place(values: Any) -> Any:
    """``cub::DeviceScan::InclusiveSum`` of an array onto itself: the least that it moves."""
    from cupy.cuda import cub

    return cub.device_scan(values, getattr(cub, "CUPY_CUB_CUMSUM", 6))


def histogram_even(values: Any, bins: int) -> Any:
    """``cub::DeviceHistogram::HistogramEven`` of integers, one bin for each from 0 on."""
    from cupy.cuda import cub

    counts = cupy().zeros((bins,), dtype="int64")
    return cub.device_histogram(values, counts, bins + 1)
