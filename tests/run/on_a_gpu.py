"""Examples and standard library on a GPU, small: what compute-sanitizer watches.

compute-sanitizer --tool memcheck python tests/run/on_a_gpu.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tessera_lang as tessera
from tessera_lang.driver.cli import main as tesserac

ROOT = Path(__file__).resolve().parents[2]


def run_examples() -> None:
    """Every host program among the examples, in this process."""
    for file in sorted((ROOT / "examples").glob("*.tessera")):
        try:
            tesserac(["run", "--target", "cuda", str(file)])
        except SystemExit as end:
            assert not end.code, (file.name, end.code)


def run_library() -> None:
    rng = np.random.default_rng(0)
    x = tessera.to_device(rng.standard_normal(70001).astype(np.float32))
    y = tessera.to_device(rng.standard_normal(70001).astype(np.float32))
    out = tessera.to_device(np.zeros(70001, np.float32))
    elementwise, reduce, scan = (
        tessera.load(f"std.{name}", target="cuda") for name in ("elementwise", "reduce", "scan")
    )
    for name in ("add", "multiply", "maximum", "divide"):
        getattr(elementwise, name)(x, y, out)
    for name in ("copy", "relu", "square"):
        getattr(elementwise, name)(x, out)
    for name in ("sum", "mean", "max", "min", "argmax", "argmin"):
        tessera.from_device(getattr(reduce, name)(x))
    for name in ("inclusive", "exclusive", "running_max"):
        tessera.from_device(getattr(scan, name)(x))
    square = tessera.to_device(rng.standard_normal((33, 65)).astype(np.float32))
    for axis in (0, 1):
        for name in ("sum", "max", "argmax"):
            tessera.from_device(getattr(reduce, name)(square, axis=axis))


if __name__ == "__main__":
    run_examples()
    run_library()
    tessera.synchronize()
    print("all ran")
