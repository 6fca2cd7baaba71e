"""Checked mode beside the CPU target, over the standard library and the examples.

A checked call runs every launch in all orders of lanes.

Run: python -m benchmarks.checked [names] [--write]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tessera_backend.cpu.thread_count import thread_count

import tessera_lang as tessera
from benchmarks.harness import Report, Row

ROOT = Path(__file__).resolve().parents[1]
GOAL = "<= 50x"
Call = Callable[[Any], object]


def both(name: str) -> dict[str, Any]:
    """A module on the CPU, and in checked mode."""
    found: dict[str, Any] = {"tessera": tessera.load(name, target="cpu")}
    os.environ["TESSERA_CHECKED"] = "1"
    found["checked"] = tessera.load(name, target="cpu")
    del os.environ["TESSERA_CHECKED"]
    return found


def example(name: str) -> str:
    return str(ROOT / "examples" / f"{name}.tessera")


def calls(r: np.random.Generator) -> dict[str, tuple[str, Call]]:
    """By name of a row: a module and what is done with it."""
    n = 1 << 19
    x, y = (r.standard_normal(n).astype(np.float32) for _ in range(2))
    square = np.ascontiguousarray(x.reshape(512, 1024))
    other = np.ascontiguousarray(y.reshape(1024, 512))
    rows = np.ascontiguousarray(x.reshape(256, 2048))
    words = r.integers(0, 256, n).astype(np.uint8)
    few = r.integers(0, 1000, n).astype(np.int32)
    weights = r.standard_normal(9).astype(np.float32)
    heads = r.random(n) < 0.01
    columns = r.integers(0, n // 8, n).astype(np.int32)
    starts = np.arange(0, n + 1, 8, dtype=np.int32)
    gain = np.ones(2048, np.float32)
    out = np.zeros_like(x)
    sums = np.zeros(64, np.float32)
    counts = np.zeros(256, np.int32)
    return {
        "reduce.sum": ("std.reduce", lambda m: m.sum(x)),
        "reduce.sum of rows": ("std.reduce", lambda m: m.sum(square, 1)),
        "reduce.sum of columns": ("std.reduce", lambda m: m.sum(square, 0)),
        "reduce.argmax": ("std.reduce", lambda m: m.argmax(x)),
        "scan.inclusive": ("std.scan", lambda m: m.inclusive(x)),
        "scan.segmented": ("std.scan", lambda m: m.segmented(x, heads)),
        "histogram.histogram": ("std.histogram", lambda m: m.histogram(words)),
        "histogram.bincount": ("std.histogram", lambda m: m.bincount(few, 1000)),
        "transpose.transpose": ("std.transpose", lambda m: m.transpose(square)),
        "stencil.laplace2d": ("std.stencil", lambda m: m.laplace2d(square)),
        "stencil.convolve1d": ("std.stencil", lambda m: m.convolve1d(x, weights)),
        "sort.sort": ("std.sort", lambda m: m.sort(x)),
        "random.uniform": ("std.random", lambda m: m.uniform((n,), 1)),
        "random.normal": ("std.random", lambda m: m.normal((n,), 1)),
        "sparse.matvec": ("std.sparse",
                          lambda m: m.matvec(starts, columns, x, y[: n // 8])),
        "elementwise.add": ("std.elementwise", lambda m: m.add(x, y, out)),
        "nn.softmax": ("std.nn", lambda m: m.softmax(rows)),
        "nn.layernorm": ("std.nn", lambda m: m.layernorm(rows, gain, gain)),
        "nn.rmsnorm": ("std.nn", lambda m: m.rmsnorm(rows, gain)),
        "linalg.matmul": ("std.linalg", lambda m: m.matmul(square, other)),
        "examples/sum_reduce": (example("sum_reduce"), lambda m: m.sum_reduce(x, sums)),
        "examples/histogram": (example("histogram"), lambda m: m.histogram(words, counts)),
        "examples/moving_average": (example("moving_average"), lambda m: m.moving_average(x, out)),
    }  # fmt: skip


def busy_seconds(f: Callable[[], object]) -> float:
    """The least time of processors in some calls: what waits for a core does not count."""
    f()  # compiled
    found: list[float] = []
    while len(found) < 3 or (len(found) < 30 and sum(found) < 0.5):
        start = time.process_time()
        f()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """What the CPU target takes of processors is divided among them, as if that were perfect; all
    that checked mode takes counts, which runs on one of them, or on all."""
    wanted = [a for a in sys.argv[1:] if a != "--write"]
    report, threads = Report("checked mode, standard library and examples"), thread_count()
    for name, (module, call) in calls(np.random.default_rng(0)).items():
        if wanted and not any(a in name for a in wanted):
            continue
        modules = both(module)
        seconds = {k: busy_seconds(lambda m=m, call=call: call(m)) for k, m in modules.items()}
        seconds["tessera"] /= threads
        report.add(Row(name, seconds, 0, GOAL, f"{threads} threads of the CPU target"))
    if "--write" in sys.argv:
        report.save("checked")


if __name__ == "__main__":
    main()
