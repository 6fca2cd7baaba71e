"""The workloads of `benchmarks.cpu_peers` as a user of Numba writes them: loops, prange outside."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

Array = Any
parallel = numba.njit(parallel=True)


@parallel
def triad(a: Array, b: Array, out: Array) -> None:
    for i in numba.prange(a.shape[0]):
        out[i] = a[i] * np.float32(2.5) + b[i]


@numba.njit
def triad_serial(a: Array, b: Array, out: Array) -> None:
    for i in range(a.shape[0]):
        out[i] = a[i] * np.float32(2.5) + b[i]


@parallel
def gelu(a: Array, out: Array) -> None:
    for i in numba.prange(a.shape[0]):
        v = a[i]
        inner = np.float32(0.7978845608) * (v + np.float32(0.044715) * v * v * v)
        out[i] = np.float32(0.5) * v * (np.float32(1) + math.tanh(inner))


@parallel
def conv2d(x: Array, k: Array, out: Array) -> None:
    for i in numba.prange(out.shape[0]):
        for j in range(out.shape[1]):
            acc = np.float32(0)
            for p in range(k.shape[0]):
                for q in range(k.shape[1]):
                    acc += x[i + p, j + q] * k[p, q]
            out[i, j] = acc


@parallel
def life(x: Array, out: Array) -> None:
    m, n = x.shape
    for i in numba.prange(m):
        up = (i - 1) % m
        down = (i + 1) % m
        for j in range(n):
            left = j - 1 if j > 0 else n - 1
            right = j + 1 if j < n - 1 else 0
            c = x[up, left] + x[up, j] + x[up, right] + x[i, left] + x[i, right]
            c = c + x[down, left] + x[down, j] + x[down, right]
            out[i, j] = 1 if c == 3 or (x[i, j] == 1 and c == 2) else 0


@parallel
def ring(x: Array, out: Array) -> None:
    n = x.shape[0]
    for i in numba.prange(n):
        left = x[i - 1] if i > 0 else x[n - 1]
        right = x[i + 1] if i < n - 1 else x[0]
        out[i] = np.float32(0.25) * left + np.float32(0.5) * x[i] + np.float32(0.25) * right


@parallel
def heat(x: Array, out: Array) -> None:
    for i in numba.prange(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            out[i, j] = np.float32(0.25) * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@parallel
def nbody(x: Array, y: Array, z: Array, ax: Array, ay: Array, az: Array) -> None:
    n = x.shape[0]
    for i in numba.prange(n):
        sx = np.float32(0)
        sy = np.float32(0)
        sz = np.float32(0)
        for j in range(n):
            dx = x[j] - x[i]
            dy = y[j] - y[i]
            dz = z[j] - z[i]
            r = dx * dx + dy * dy + dz * dz + np.float32(0.01)
            w = np.float32(1) / (r * np.sqrt(r))
            sx += dx * w
            sy += dy * w
            sz += dz * w
        ax[i] = sx
        ay[i] = sy
        az[i] = sz


@parallel
def histogram(x: Array, counts: Array) -> None:
    threads = numba.get_num_threads()
    parts = np.zeros((threads, 256), np.int32)
    n = x.shape[0]
    for t in numba.prange(threads):
        for i in range(t * n // threads, (t + 1) * n // threads):
            parts[t, x[i]] += 1
    for t in range(threads):
        for b in range(256):
            counts[b] += parts[t, b]


@parallel
def mandelbrot(out: Array, width: int) -> None:
    for i in numba.prange(out.shape[0]):
        cx = np.float32(i % width) / np.float32(width) * np.float32(3) - np.float32(2)
        cy = np.float32(i // width) / np.float32(width) * np.float32(3) - np.float32(1.5)
        zx = np.float32(0)
        zy = np.float32(0)
        k = 0
        while k < 50 and zx * zx + zy * zy < np.float32(4):
            t = zx * zx - zy * zy + cx
            zy = np.float32(2) * zx * zy + cy
            zx = t
            k += 1
        out[i] = k


@parallel
def csr(starts: Array, columns: Array, values: Array, x: Array, y: Array) -> None:
    for i in numba.prange(y.shape[0]):
        acc = np.float32(0)
        for k in range(starts[i], starts[i + 1]):
            acc += values[k] * x[columns[k]]
        y[i] = acc
