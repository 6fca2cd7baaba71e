"""CUB as CuPy binds it, for tensors of torch without a copy: what the library is measured beside.

``CUPY_ACCELERATORS`` is set before CuPy is loaded, so CuPy's own sums, extremes, scans and
counts are CUB's as well, with what CuPy does around them. What CuPy does not bind is compiled by
the toolkit's ``nvcc``, where there is one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tessera_backend.nvptx.toolchain.nvidia_tools import find_tool

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


def sum_by_key(x: Any, heads: Any) -> tuple[Callable[[], None], Any] | None:
    """``cub::DeviceScan::InclusiveSumByKey`` of f32 by bools that say where a segment starts, and
    the tensor it writes; None where there is no ``nvcc``."""
    import torch

    function = _sum_by_key()
    if function is None:
        return None
    out, size = torch.empty_like(x), ctypes.c_size_t()
    count, address = ctypes.c_longlong(len(x)), ctypes.c_void_p
    arrays = [address(tensor.data_ptr()) for tensor in (heads, x, out)]
    stream = address(torch.cuda.current_stream().cuda_stream)

    def call(room: Any = None) -> None:
        at = address(None if room is None else room.data_ptr())
        assert function(at, ctypes.byref(size), *arrays, count, stream) == 0

    call()
    room = torch.empty(max(size.value, 1), dtype=torch.uint8, device="cuda")
    return functools.partial(call, room), out


@functools.cache
def _sum_by_key() -> Any:
    compiler = find_tool("nvcc")
    if compiler is None:
        return None
    source = Path(__file__).with_name("cub_by_key.cu")
    library = Path(tempfile.mkdtemp()) / "cub_by_key.so"
    options = ["-O3", "-arch=native", "-std=c++17", "-shared", "-Xcompiler", "-fPIC"]
    command = [compiler.path, *options, str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"CUB by key was not compiled: {done.stderr.strip().splitlines()[:1]}")
        return None
    return ctypes.CDLL(str(library)).sum_by_key
