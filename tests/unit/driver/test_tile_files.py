"""Tile kernels through the command line: run, build and load, and the cache of code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]

KERNELS = """\
from tessera import op

@op.kernel
def added(A, B, C, tile_size: int = 16):
    for i, j, k in op.tile_range(A.shape[0], B.shape[1], A.shape[1], step=tile_size):
        a = A[i:i+tile_size, k:k+tile_size]
        C[i:i+tile_size, j:j+tile_size] += a @ B[k:k+tile_size, j:j+tile_size]

@op.kernel
def product(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:
    return A @ B

@op.kernel
def sums(A: f32[m, n]) -> (f32[m], f64[n]):
    rows = op.empty((m,), f32)
    columns = op.empty((n,), f64)
    rows[:] = op.sum(A, axis=1)
    columns[:] = op.sum(A, axis=0).to(f64)
    return rows, columns
"""
PROGRAM = f"""{KERNELS}
A = op.full((40, 30), 1.0, dtype="f32")
B = op.full((30, 20), 2.0, dtype="f32")
C = op.zeros((40, 20), dtype="f32")
added(A, B, C)
added(A, B, C, tile_size=8)
added(A, B, C, 24)
y = product(A, B)
rows, columns = sums(y)
print(C[39, 19], y[0, 0], rows[0], columns[19])
"""


def test_a_program_runs(tesserac: Tesserac, folder: Folder, tmp_path: Path) -> None:
    """Compile-time arguments by name and by position; one result and several."""
    folder({"p.tessera": PROGRAM})
    done = tesserac("run", "p.tessera", env={"TESSERA_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["180.0", "60.0", "1200.0", "2400.0"]


def test_wrong_calls_of_a_program(tesserac: Tesserac, folder: Folder) -> None:
    folder({"p.tessera": f'{KERNELS}\nx = op.zeros((4, 4), dtype="f32")\nadded(x, x, x, "no")\n'})
    done = tesserac("check", "p.tessera")
    assert done.returncode == 1 and "T0902" not in done.stderr
    folder({"p.tessera": KERNELS.replace("(f32[m], f64[n])", "(f32[m], f64[m, n])")})
    assert "T0604" in tesserac("check", "p.tessera").stderr
    folder({"p.tessera": KERNELS.replace("(f32[m], f64[n])", "(f32[m], f64[n], f32)")})
    found = tesserac("check", "p.tessera").stderr
    assert "T0208" in found and "returns 3 arrays, and this is 2" in found


RUN_BUILT = """
import sys, numpy as np, tessera_lang as tessera
m = tessera.load_built(sys.argv[1])
a, b = np.full((5, 7), 1, np.float32), np.full((7, 3), 2, np.float32)
y = m.product(a, b)
assert y.shape == (5, 3) and (y == 14).all(), y
print([n for n in ("lark", "llvmlite", "tessera_lang.syntax", "tessera_lang.sema",
                   "tessera_lang.opt", "tessera_lang.lower") if n in sys.modules])
"""


def test_built_code_runs_without_the_compiler(
    tesserac: Tesserac, folder: Folder, tmp_path: Path
) -> None:
    folder({"p.tessera": KERNELS})
    out = str(tmp_path / "out")
    done = tesserac("build", "p.tessera", "-o", out, "--target", "cpu", "--kernel", "product")
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [sys.executable, "-c", RUN_BUILT, out], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.strip() == "[]", ran.stderr


RUN_CACHED = """
import sys, numpy as np, tessera_lang as tessera
m = tessera.load("p.tessera", target="cpu")
a, b = np.full((64, 32), 1, np.float32), np.full((32, 48), 2, np.float32)
y = m.product(a, b)
assert (y == 64).all()
print("llvmlite" in sys.modules, "tessera_lang.lower.schedule_to_lanes" in sys.modules)
"""


def test_the_next_process_takes_code_from_the_cache(folder: Folder, tmp_path: Path) -> None:
    import os

    folder({"p.tessera": KERNELS})
    seen: list[str] = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", RUN_CACHED], capture_output=True, text=True, timeout=60,
            cwd=tmp_path, env={**os.environ, "TESSERA_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip
        seen.append(done.stdout.strip() or done.stderr)
    assert seen == ["True True", "False False"]
