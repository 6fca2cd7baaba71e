"""The CPU target beside NumPy and Numba: sum, add, and the reduction of the documents.

Run: python -m benchmarks.cpu
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tessera_lang as tessera
from benchmarks.harness import Report, Row, best_seconds

ROOT = Path(__file__).resolve().parents[1]


def numba_sum_reduce() -> Callable[[np.ndarray, np.ndarray], None]:
    """The reduction of the documents as a user of Numba writes it: a prange over groups.

    Unsigned indices spare Numba the test for negative ones: of five ways to write the loop
    this is the fastest, and its inner loop is vectorized.
    """
    import numba

    @numba.njit(parallel=True, fastmath=False)
    def sum_reduce(x: np.ndarray, out: np.ndarray) -> None:
        n = np.uint64(x.shape[0])
        for g in numba.prange(out.shape[0]):
            smem = np.zeros(128, np.float32)
            k = np.uint64(0)
            while k + np.uint64(128) <= n:
                for i in range(128):
                    smem[i] += x[k + np.uint64(i)]
                k += np.uint64(128)
            for i in range(n - k):
                smem[i] += x[k + i]
            s = 64
            while s > 0:
                for i in range(s):
                    smem[i] += smem[i + s]
                s //= 2
            out[g] += smem[0]

    return sum_reduce


def load() -> str:
    """What else the machine is doing: runnable threads over the last minute, ours included."""
    return f"; load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""


def compare(
    report: Report, name: str, contenders: dict[str, Callable[[], object]], size: int, goal: str
) -> None:
    """One row. ``size``: bytes that a run moves."""
    seconds, note = best_seconds(contenders)
    report.add(Row(name, seconds, size, goal, note + load()))


def main() -> None:
    report = Report("CPU target, two cores")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1 << 25, dtype=np.float32)
    y = rng.standard_normal(1 << 25, dtype=np.float32)
    reduce = tessera.load("std.reduce", target="cpu")
    elementwise = tessera.load("std.elementwise", target="cpu")
    document = tessera.load(str(ROOT / "examples" / "sum_reduce.tessera"), target="cpu")

    scale = float(np.abs(x).sum())
    total = float(np.asarray(reduce.sum(x)))
    assert abs(total - float(x.sum(dtype=np.float64))) < 1e-5 * scale
    both: dict[str, Callable[[], object]] = {
        "tessera": lambda: reduce.sum(x), "numpy": lambda: np.sum(x)
    }  # fmt: skip
    compare(report, "sum f32 2^25", both, x.nbytes, ">= 1.0x numpy")

    out = np.full_like(x, np.nan)
    elementwise.add(x, y, out)
    assert np.array_equal(out, x + y)
    both = {"tessera": lambda: elementwise.add(x, y, out), "numpy": lambda: np.add(x, y, out=out)}
    compare(report, "add f32 2^25", both, 3 * x.nbytes, ">= 1.0x numpy")

    out.fill(np.nan)
    elementwise.copy(x, out)
    assert np.array_equal(out, x)
    both = {"tessera": lambda: elementwise.copy(x, out), "numpy": lambda: np.copyto(out, x)}
    compare(report, "copy f32 2^25", both, 2 * x.nbytes, "")

    numba_kernel = numba_sum_reduce()
    for groups in (2, 4):
        sums = np.zeros(groups, np.float32)
        for kernel in (document.sum_reduce, numba_kernel):
            sums.fill(0)
            kernel(x, sums)
            assert np.allclose(sums, total, rtol=1e-4, atol=1e-5 * scale)
        both = {
            "tessera": lambda s=sums: document.sum_reduce(x, s),
            "numba": lambda s=sums: numba_kernel(x, s),
        }
        name = f"sum_reduce of the documents 2^25, {groups} groups"
        compare(report, name, both, groups * x.nbytes, ">= 1.0x numba")
    products(report)
    report.save("cpu")


def products(report: Report) -> None:
    """f32 products beside NumPy's OpenBLAS, which uses as many threads as we do."""
    linalg = tessera.load("std.linalg", target="cpu")
    rng = np.random.default_rng(1)
    for n in (512, 1024, 2048):
        a, b = rng.standard_normal((2, n, n), dtype=np.float32)
        got, want = np.asarray(linalg.matmul(a, b)), a.astype(np.float64) @ b
        assert np.abs(got - want).max() <= 1e-6 * n**0.5 * np.abs(want).max()
        both: dict[str, Callable[[], object]] = {
            "tessera": lambda a=a, b=b: linalg.matmul(a, b), "numpy": lambda a=a, b=b: a @ b
        }  # fmt: skip
        seconds, note = best_seconds(both)
        note = f"{2 * n**3 / seconds['tessera'] / 1e9:.0f} GFLOP/s; {note}{load()}"
        report.add(Row(f"product f32 {n} cubed", seconds, 0, ">= 0.6x numpy", note))


if __name__ == "__main__":
    main()
