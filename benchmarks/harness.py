"""What every benchmark shares: timing, the printed table, the JSON record.

Peers and we run in one process, alternating, after warm-up; the median of many runs counts
(on the CPU, where other work disturbs more, the shortest).
Outputs are poisoned and checked before anything is timed.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Row:
    """One measured thing. ``seconds`` by contender; ``bytes`` moved by one run, 0 = not counted."""

    name: str
    seconds: dict[str, float]
    bytes: int = 0
    goal: str = ""
    notes: str = ""

    def ratio(self, ours: str, peer: str) -> float:
        """Speed of ours over the peer's: above 1 is faster."""
        return self.seconds[peer] / self.seconds[ours]


def median_seconds(
    contenders: Mapping[str, Callable[[], object]], runs: int = 30, warmup: int = 3
) -> dict[str, float]:
    """Wall-clock medians of host functions, alternating between contenders."""
    samples = _samples(contenders, runs, warmup, 0.0)
    return {name: statistics.median(s) for name, s in samples.items()}


def best_seconds(
    contenders: Mapping[str, Callable[[], object]], runs: int = 60, pause: float = 0.02
) -> tuple[dict[str, float], str]:
    """The shortest of many alternating runs, and a note with the medians: for work on all
    cores of a machine that others use too, where most runs wait for a core.

    ``pause`` seconds before each: threads of OpenMP spin for a while after their work, and
    would take a core from whoever comes next.
    """
    samples = _samples(contenders, runs, 3, pause)
    medians = ", ".join(f"{n} {1e6 * statistics.median(s):.0f} us" for n, s in samples.items())
    return {n: min(s) for n, s in samples.items()}, f"best of {runs}; medians {medians}"


def _samples(
    contenders: Mapping[str, Callable[[], object]], runs: int, warmup: int, pause: float
) -> dict[str, list[float]]:
    for f in contenders.values():
        for _ in range(warmup):
            f()
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, f in contenders.items():
            if pause:
                time.sleep(pause)
            start = time.perf_counter()
            f()
            samples[name].append(time.perf_counter() - start)
    return samples


def median_device_seconds(
    contenders: Mapping[str, Callable[[], object]], runs: int = 50, warmup: int = 5
) -> dict[str, float]:
    """Device medians by CUDA events, alternating; the L2 cache is flushed before each run."""
    import torch

    flush = torch.empty(256 * 1024 * 1024, dtype=torch.int8, device="cuda")
    for f in contenders.values():
        for _ in range(warmup):
            f()
    pairs: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {n: [] for n in contenders}
    for _ in range(runs):
        for name, f in contenders.items():
            flush.zero_()
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            f()
            end.record()
            pairs[name].append((begin, end))
    torch.cuda.synchronize()
    return {
        name: statistics.median(b.elapsed_time(e) for b, e in p) / 1e3 for name, p in pairs.items()
    }


@dataclass
class Report:
    """Rows of one benchmark, printed and kept."""

    title: str
    ours: str = "tessera"
    rows: list[Row] = field(default_factory=list[Row])

    def add(self, row: Row) -> None:
        self.rows.append(row)
        peers = [p for p in row.seconds if p != self.ours]
        cells = [f"{name} {1e6 * s:.2f} us" for name, s in row.seconds.items()]
        if row.bytes:
            cells.append(f"{row.bytes / row.seconds[self.ours] / 1e9:.0f} GB/s")
        cells += [f"{row.ratio(self.ours, p):.3f}x {p}" for p in peers]
        goal = f"   goal {row.goal}" if row.goal else ""
        print(f"{row.name:<44} {'  '.join(cells)}{goal}  {row.notes}", flush=True)

    def save(self, name: str) -> None:
        """Rows of an earlier run on the same card stay where this one has not measured them."""
        measured: dict[str, object] = {
            r.name: {
                **asdict(r),
                "ratios": {p: r.ratio(self.ours, p) for p in r.seconds if p != self.ours},
            }
            for r in self.rows
        }
        path, here = RESULTS / f"{name}.json", machine()
        before = json.loads(path.read_text()) if path.exists() else {}
        if before.get("machine", {}).get("card") == here.get("card"):
            measured = {r["name"]: r for r in before.get("rows", ())} | measured
        record = {"title": self.title, "machine": here, "rows": list(measured.values())}
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")


def machine() -> dict[str, object]:
    """Card, driver, versions and commit."""
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": _processor(),
        "date": time.strftime("%Y-%m-%d"),
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
    }
    card = _output(
        "nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"
    )
    if card:
        facts["card"] = card.splitlines()[0]  # of several alike
    for package in (
        "numpy",
        "llvmlite",
        "torch",
        "triton",
        "numba",
        "cupy-cuda13x",
        "cuda-bindings",
    ):
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return facts


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
