"""Start-up: commands as whole processes, the first compile in a process, a cached start, memory.

Run: python -m benchmarks.startup
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Report, Row

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "examples" / "sum_reduce.tessera"

FIRST_COMPILE = """
import json, sys, time
import numpy as np
import tessera_lang as tessera
target = sys.argv[1]
if target == "cuda":
    import torch
    t0 = time.perf_counter(); a = torch.ones(1000, device="cuda"); torch.cuda.synchronize()
    context = time.perf_counter() - t0
    b, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
else:
    context = 0.0
    a, b, out = np.ones(1000, np.float32), np.ones(1000, np.float32), np.zeros(1000, np.float32)
t0 = time.perf_counter()
m = tessera.load("std.elementwise", target=target)
m.add(a, b, out)
if target == "cuda": torch.cuda.synchronize()
print(json.dumps({"compile": time.perf_counter() - t0, "context": context}))
"""

CACHED = """
import numpy as np
import tessera_lang as tessera
m = tessera.load("std.elementwise", target="cpu")
a, b, out = np.ones(1000, np.float32), np.ones(1000, np.float32), np.zeros(1000, np.float32)
m.add(a, b, out)
assert out[0] == 2
"""


def process_seconds(command: list[str], runs: int = 15, **env: str) -> float:
    """Median wall clock of a whole process, after two warm-up runs."""
    samples: list[float] = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=os.environ | env, timeout=60)
        samples.append(time.perf_counter() - start)
    return statistics.median(samples[2:])


def first_compile(target: str, runs: int = 7) -> tuple[float, float]:
    """Median seconds of the first compile in a process with an empty cache, and of the context."""
    compiles: list[float] = []
    contexts: list[float] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-c", FIRST_COMPILE, target],
                check=True, capture_output=True, text=True, timeout=120,
                env=os.environ | {"TESSERA_CACHE_DIR": cache},
            )  # fmt: skip
            times = json.loads(done.stdout.splitlines()[-1])
            compiles.append(times["compile"])
            contexts.append(times["context"])
    return statistics.median(compiles), statistics.median(contexts)


def sixty_lines() -> str:
    """A file of about 60 lines with several kernels."""
    text = SAMPLE.read_text()
    body = text[text.index("@kernel") :]
    return (
        text + "\n\n" + "\n\n".join(body.replace("sum_reduce", f"sum_reduce_{i}") for i in range(3))
    )


def main() -> None:
    report = Report("start-up")
    tesserac = str(Path(sys.executable).parent / "tesserac")
    command = (
        [tesserac] if Path(tesserac).exists() else [sys.executable, "-m", "tessera_lang.driver.cli"]
    )
    report.add(
        Row(
            "tesserac --version",
            {"tessera": process_seconds([*command, "--version"])},
            goal="<= 0.12 s",
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sixty.tessera"
        file.write_text(sixty_lines())
        lines = len(file.read_text().splitlines())
        report.add(
            Row(
                f"tesserac check, {lines} lines",
                {"tessera": process_seconds([*command, "check", str(file)])},
                goal="<= 0.35 s",
            )
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        subprocess.run([*command, "check", str(file)], check=True, capture_output=True)
        peak = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
        print(f"peak memory of check (children so far): {peak / 1024:.0f} MB, goal <= 80 MB")
        cache = str(Path(folder) / "cache")
        seconds = process_seconds([sys.executable, "-c", CACHED], TESSERA_CACHE_DIR=cache)
        report.add(
            Row(
                "process that finds its kernel in the cache (cpu)",
                {"tessera": seconds},
                goal="<= 0.5 s",
                notes=f"peak RSS of check {peak / 1024:.0f} MB",
            )
        )
    compile_seconds, _ = first_compile("cpu")
    report.add(Row("first compile, element-wise, cpu", {"tessera": compile_seconds}))
    if _has("nvidia-smi"):
        compile_seconds, context = first_compile("cuda")
        report.add(
            Row(
                "first compile, element-wise, cuda with ptxas",
                {"tessera": compile_seconds},
                goal="<= 0.25 s",
                notes=f"context {context:.2f} s beside it",
            )
        )
    report.save("startup_gpu" if _has("nvidia-smi") else "startup")


def _has(tool: str) -> bool:
    return shutil.which(tool) is not None


if __name__ == "__main__":
    main()
