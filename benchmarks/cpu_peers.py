"""The CPU target beside NumPy, Numba and torch: about 45 workloads, ratios to the best of them.

Run: python -m benchmarks.cpu_peers [--only WORD] [--runs N] [--threads N]

With one thread each the shortest of many runs says what the code takes also where the machine does
other work; with several the contenders wait for each other's cores, and a quiet machine is needed.
"""

# ruff: noqa: B023 - each workload is measured before the next one is made
from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tessera_lang as tessera
from benchmarks import cpu_numba
from benchmarks.harness import Report, Row, best_seconds

HERE = Path(__file__).resolve().parent
Work = tuple[str, dict[str, Callable[[], object]], Callable[[], tuple[Any, Any]]]
"""A name, the contenders, and what gives (ours, the reference) once all have run."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="workloads whose name has this word")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0, help="of each contender; 0: all")
    options = parser.parse_args()
    if options.threads:
        with_threads(options.threads)
    threads = f"{options.threads or os.cpu_count()} threads each".replace("1 threads", "1 thread")
    report = Report(f"CPU target and its peers, {threads}")
    ratios: list[float] = []
    for make in (elementwise, reductions, products, stencils, irregular, library, small):
        for name, contenders, check in make():
            if options.only not in name:
                continue
            ratios.append(measure(report, name, contenders, check, options.runs, threads))
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} workloads: geometric mean {mean:.2f}, least {min(ratios):.2f}")
    if not options.only:
        report.save("cpu_peers")


LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMBA", "TESSERA")


def with_threads(count: int) -> None:
    """Begins again where the libraries were loaded with another number of threads."""
    wanted = {f"{library}_NUM_THREADS": str(count) for library in LIBRARIES}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        command = [sys.executable, "-m", "benchmarks.cpu_peers", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **wanted})


def measure(
    report: Report, name: str, contenders: dict[str, Callable[[], object]],
    check: Callable[[], tuple[Any, Any]], runs: int, threads: str,
) -> float:  # fmt: skip
    """One row; our speed over that of the fastest peer."""
    for run in contenders.values():
        run()
    start = time.perf_counter()
    for run in contenders.values():
        run()
    got, want = (np.asarray(x) for x in check())
    assert np.allclose(got, want, rtol=2e-3, atol=2e-3 * float(np.abs(want).max() or 1)), name
    if time.perf_counter() - start > 2:
        runs = min(runs, 7)
    batched = {n: batch(f) for n, f in contenders.items()}
    seconds, _ = best_seconds({n: f for n, (f, _) in batched.items()}, runs, 0.002)
    seconds = {n: s / batched[n][1] for n, s in seconds.items()}
    ratio = min(s for n, s in seconds.items() if n != "tessera") / seconds["tessera"]
    how = f"{threads}, best of {runs} runs in turn, load {os.getloadavg()[0]:.1f}"
    report.add(Row(name, seconds, 0, "", f"{how}; {ratio:.2f} beside the best"))
    return ratio


def batch(run: Callable[[], object]) -> tuple[Callable[[], object], int]:
    """A short call is timed many times over, with the number of times. It is made often before: a
    layout that comes again is remembered, by us and by Numba, and a cold call says nothing."""
    begin, seconds = time.perf_counter(), math.inf
    for _ in range(64):
        start = time.perf_counter()
        run()
        seconds = min(seconds, time.perf_counter() - start)
        if time.perf_counter() - begin > 5e-3:
            break
    count = max(1, min(1000, int(2e-4 / max(1e-7, seconds))))

    def repeated() -> None:
        for _ in range(count):
            run()

    return (run if count == 1 else repeated), count


def kernels() -> Any:
    return tessera.load(str(HERE / "cpu_kernels.tessera"), target="cpu")


def tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def elementwise() -> Iterator[Work]:
    import torch

    k = kernels()
    library = tessera.load("std.elementwise", target="cpu")
    for n in (1000, 1_000_000, 30_000_000):
        a, b, out = normal(n), normal(n, seed=1), np.empty(n, np.float32)
        ta, tb, to = tensor(a), tensor(b), torch.empty(n)
        yield f"add {n}", {
            "tessera": lambda: library.add(a, b, out), "numpy": lambda: np.add(a, b, out=out),
            "torch": lambda: torch.add(ta, tb, out=to),
        }, lambda: (out, a + b)  # fmt: skip
        numba_out = np.empty_like(out)
        yield f"triad in lanes {n}", {
            "tessera": lambda: k.triad(a, b, out),
            "numba": lambda: cpu_numba.triad(a, b, numba_out),
            "torch": lambda: torch.add(tb, ta, alpha=2.5, out=to),
        }, lambda: (out, a * np.float32(2.5) + b)  # fmt: skip
    a, out = normal(1_000_000), np.empty(1_000_000, np.float32)
    other, ta = np.empty_like(out), tensor(a)
    yield "gelu in tiles 10^6", {
        "tessera": lambda: k.gelu(a, out), "numba": lambda: cpu_numba.gelu(a, other),
        "torch": lambda: torch.nn.functional.gelu(ta, approximate="tanh"),
    }, lambda: (out, other)  # fmt: skip


def reductions() -> Iterator[Work]:
    import torch

    k = kernels()
    reduce = tessera.load("std.reduce", target="cpu")
    for n in (1000, 1_000_000, 30_000_000):
        x = normal(n)
        t = tensor(x)
        for name in ("sum", "max", "argmax"):
            own, plain, torch_one = getattr(reduce, name), getattr(np, name), getattr(torch, name)
            yield f"{name} {n}", {
                "tessera": lambda: own(x), "numpy": lambda: plain(x), "torch": lambda: torch_one(t)
            }, lambda: (own(x), plain(x.astype(np.float64)))  # fmt: skip
    a, x = normal(2000, 2000), normal(2000, seed=1)
    y, z = np.empty(2000, np.float32), np.empty((2000, 2000), np.float32)
    ta, tx = tensor(a), tensor(x)
    yield "gemv in tiles 2000^2", {
        "tessera": lambda: k.gemv(a, x, y), "numpy": lambda: a @ x, "torch": lambda: ta @ tx
    }, lambda: (y, a @ x)  # fmt: skip
    for name, axis in (("row_sums", 1), ("row_sums_loop", 1), ("column_sums", 0)):
        own = getattr(k, name)
        yield f"{name} in tiles 2000^2", {
            "tessera": lambda: own(a, y), "numpy": lambda: a.sum(axis),
            "torch": lambda: ta.sum(axis),
        }, lambda: (y, a.sum(axis))  # fmt: skip
    yield "row_max in tiles 2000^2", {
        "tessera": lambda: k.row_max(a, y), "numpy": lambda: a.max(1), "torch": lambda: ta.amax(1)
    }, lambda: (y, a.max(1))  # fmt: skip
    yield "softmax in tiles 2000^2", {
        "tessera": lambda: k.softmax(a, z), "torch": lambda: torch.softmax(ta, 1)
    }, lambda: (z, torch.softmax(ta, 1))  # fmt: skip
    yield "cumsum in tiles 2000^2", {
        "tessera": lambda: k.cumulative(a, z), "numpy": lambda: np.cumsum(a, 1),
        "torch": lambda: torch.cumsum(ta, 1),
    }, lambda: (z, np.cumsum(a, 1))  # fmt: skip


def products() -> Iterator[Work]:
    k = kernels()
    linalg = tessera.load("std.linalg", target="cpu")
    for n in (64, 512):
        a, b, c = normal(n, n), normal(n, n, seed=1), np.empty((n, n), np.float32)
        ta, tb = tensor(a), tensor(b)
        others = {"numpy": lambda: a @ b, "torch": lambda: ta @ tb}
        yield f"product in tiles {n}^3", {
            "tessera": lambda: k.product(a, b, c), **others
        }, lambda: (c, a @ b)  # fmt: skip
        yield f"std.linalg.matmul {n}^3", {
            "tessera": lambda: linalg.matmul(a, b), **others
        }, lambda: (linalg.matmul(a, b), a @ b)  # fmt: skip
    yield "product in lanes, shared memory 512^3", {
        "tessera": lambda: k.shared_product(a, b, c), **others
    }, lambda: (c, a @ b)  # fmt: skip
    x, y = normal(2000, 2000), np.empty((2000, 2000), np.float32)
    tx = tensor(x)
    yield "transpose in lanes 2000^2", {
        "tessera": lambda: k.transpose(x, y), "numpy": lambda: np.ascontiguousarray(x.T),
        "torch": lambda: tx.T.contiguous(),
    }, lambda: (y, x.T)  # fmt: skip


def stencils() -> Iterator[Work]:
    import torch

    k = kernels()
    x, w = normal(1024, 1024), normal(5, 5, seed=1)
    y, other = np.empty((1020, 1020), np.float32), np.empty((1020, 1020), np.float32)
    tx, tw = tensor(x)[None, None], tensor(w)[None, None]
    yield "convolution in lanes 1024^2, 5 x 5", {
        "tessera": lambda: k.conv2d(x, w, y), "numba": lambda: cpu_numba.conv2d(x, w, other),
        "torch": lambda: torch.conv2d(tx, tw),
    }, lambda: (y, other)  # fmt: skip
    cells = (np.random.default_rng(0).random((1024, 1024)) < 0.4).astype(np.uint8)
    new, numba_new = np.empty_like(cells), np.empty_like(cells)
    yield "Life, a torus 1024^2", {
        "tessera": lambda: k.life(cells, new), "numba": lambda: cpu_numba.life(cells, numba_new)
    }, lambda: (new, numba_new)  # fmt: skip
    line, out, out2 = normal(1_000_000), np.empty(10**6, np.float32), np.empty(10**6, np.float32)
    yield "a ring 10^6", {
        "tessera": lambda: k.ring(line, out), "numba": lambda: cpu_numba.ring(line, out2)
    }, lambda: (out, out2)  # fmt: skip
    heat, heat2 = np.zeros_like(x), np.zeros_like(x)
    yield "heat equation 1024^2", {
        "tessera": lambda: k.heat(x, heat), "numba": lambda: cpu_numba.heat(x, heat2)
    }, lambda: (heat, heat2)  # fmt: skip


def irregular() -> Iterator[Work]:
    k = kernels()
    points = normal(3, 4096)
    forces, forces2 = np.empty_like(points), np.empty_like(points)
    yield "n-body 4096", {
        "tessera": lambda: k.nbody(*points, *forces),
        "numba": lambda: cpu_numba.nbody(*points, *forces2),
    }, lambda: (forces, forces2)  # fmt: skip
    bytes_ = np.random.default_rng(0).integers(0, 256, 4_000_000).astype(np.uint8)
    counts, counts2 = np.zeros(256, np.int32), np.zeros(256, np.int32)
    for name in ("histogram", "histogram_global"):
        own = getattr(k, name)
        yield f"{name} in lanes 4 * 10^6", {
            "tessera": lambda: own(bytes_, counts),
            "numba": lambda: cpu_numba.histogram(bytes_, counts2),
            "numpy": lambda: np.bincount(bytes_, minlength=256),
        }, lambda: (counts.argmax() >= 0, True)  # fmt: skip
    steps, steps2 = np.empty(512 * 512, np.int32), np.empty(512 * 512, np.int32)
    yield "Mandelbrot 512^2", {
        "tessera": lambda: k.mandelbrot(steps, 512),
        "numba": lambda: cpu_numba.mandelbrot(steps2, 512),
    }, lambda: (abs(steps - steps2).mean() < 0.1, True)  # fmt: skip
    rng = np.random.default_rng(1)
    starts = np.arange(100_001, dtype=np.int32) * 16
    columns = rng.integers(0, 100_000, 1_600_000).astype(np.int32)
    values, x = normal(1_600_000), normal(100_000, seed=2)
    y, y2 = np.empty(100_000, np.float32), np.empty(100_000, np.float32)
    yield "sparse product in lanes 10^5 rows", {
        "tessera": lambda: k.csr(starts, columns, values, x, y),
        "numba": lambda: cpu_numba.csr(starts, columns, values, x, y2),
    }, lambda: (y, y2)  # fmt: skip


def library() -> Iterator[Work]:
    import torch

    names = ("scan", "sort", "histogram", "nn")
    scan, sort, histogram, nn = (tessera.load(f"std.{x}", target="cpu") for x in names)
    for n in (1000, 1_000_000):
        x = normal(n)
        t = tensor(x)
        yield f"std.scan.inclusive {n}", {
            "tessera": lambda: scan.inclusive(x), "numpy": lambda: np.cumsum(x),
            "torch": lambda: torch.cumsum(t, 0),
        }, lambda: (scan.inclusive(x), np.cumsum(x.astype(np.float64)))  # fmt: skip
        yield f"std.sort.sort {n}", {
            "tessera": lambda: sort.sort(x), "numpy": lambda: np.sort(x),
            "torch": lambda: torch.sort(t),
        }, lambda: (sort.sort(x), np.sort(x))  # fmt: skip
        yield f"std.nn.softmax {n}", {
            "tessera": lambda: nn.softmax(x), "torch": lambda: torch.softmax(t, 0)
        }, lambda: (nn.softmax(x), torch.softmax(t, 0))  # fmt: skip
    bytes_ = np.random.default_rng(0).integers(0, 256, 4_000_000).astype(np.uint8)
    yield "std.histogram 4 * 10^6", {
        "tessera": lambda: histogram.histogram(bytes_),
        "numpy": lambda: np.bincount(bytes_, minlength=256),
        "numba": lambda: cpu_numba.histogram(bytes_, np.zeros(256, np.int32)),
    }, lambda: (histogram.histogram(bytes_), np.bincount(bytes_, minlength=256))  # fmt: skip


def small() -> Iterator[Work]:
    """Calls on tiny arrays: what a call costs."""
    k = kernels()
    a, b, out, out2 = normal(16), normal(16), np.empty(16, np.float32), np.empty(16, np.float32)
    yield "a call, 16 elements", {
        "tessera": lambda: k.triad(a, b, out), "numba": lambda: cpu_numba.triad_serial(a, b, out2)
    }, lambda: (out, out2)  # fmt: skip
    bound = k.triad.bind(a, b, out)
    yield "a bound call, 16 elements", {
        "tessera": bound, "numba": lambda: cpu_numba.triad_serial(a, b, out2)
    }, lambda: (out, out2)  # fmt: skip


if __name__ == "__main__":
    main()
