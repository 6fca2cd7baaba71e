"""Examples, standard library and tile kernels on a GPU, small: what compute-sanitizer watches.

compute-sanitizer --tool memcheck python tests/run/on_a_gpu.py [examples arrays linalg nn tiles]

initcheck does not see what TMA writes: it is for `arrays linalg nn`.

Results are compared too, so that a tool that changes the timing may show a race. The cache of
kernels makes a second run short.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tessera_lang as tessera
from tessera_lang.driver.cli import main as tesserac

ROOT = Path(__file__).resolve().parents[2]
BF16 = np.dtype(ml_dtypes.bfloat16)
F8 = np.dtype(ml_dtypes.float8_e4m3fn)
Array = np.ndarray[Any, np.dtype[Any]]

# Tiles that fit and tiles that are cut, copies by TMA and by lanes, products by wgmma and by
# mma.sync, groups that stay, clusters, groups of warps with roles.
SCHEDULES = (
    (),
    ("schedule.tile((128, 128, 64))", "schedule.pipeline_stages(3)",
     "schedule.warp_specialize(True)", "schedule.persistent(True)"),
    ("schedule.tile((64, 64, 64))", "schedule.cluster((2, 1))", "schedule.pipeline_stages(2)",
     "schedule.warp_specialize(True)"),
    ("schedule.warp_specialize(False)", "schedule.pipeline_stages(2)"),
    ("schedule.async_copy(False)", "schedule.use_shared_memory(True, padding=8)"),
)  # fmt: skip
SIZES = ((256, 128, 192), (129, 67, 72))


def run_examples() -> None:
    """Every host program among the examples, in this process."""
    examples = ROOT / "examples"
    for file in (*sorted(examples.glob("*.tessera")), *sorted(examples.glob("*/[1-9]*.tessera"))):
        try:
            tesserac(["run", "--target", "cuda", str(file)])
        except SystemExit as end:
            assert not end.code, (file.name, end.code)


def std(name: str) -> Any:
    return tessera.load(f"std.{name}", target="cuda")


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def run_arrays() -> None:
    """What works on arrays, lane by lane."""
    x, y = (tessera.to_device(normal(70001, seed=s)) for s in (0, 1))
    out = tessera.to_device(np.zeros(70001, np.float32))
    elementwise, reduce, scan = std("elementwise"), std("reduce"), std("scan")
    for name in ("add", "multiply", "maximum", "divide"):
        getattr(elementwise, name)(x, y, out)
    for name in ("copy", "relu", "square"):
        getattr(elementwise, name)(x, out)
    for name in ("sum", "mean", "max", "min", "argmax", "argmin"):
        np.asarray(getattr(reduce, name)(x))
    for name in ("inclusive", "exclusive", "running_max"):
        np.asarray(getattr(scan, name)(x))
    heads = tessera.to_device(np.arange(70001) % 1000 == 0)
    np.asarray(scan.segmented(x, heads))
    square = tessera.to_device(normal(33, 65))
    for axis in (0, 1):
        for name in ("sum", "max", "argmax"):
            np.asarray(getattr(reduce, name)(square, axis=axis))
    words = np.random.default_rng(0).integers(0, 256, 70001)
    assert np.asarray(std("histogram").histogram(words.astype(np.uint8))).sum() == len(words)
    for bins in (300, 9000):
        std("histogram").bincount(words.astype(np.int32), bins)
    sort = std("sort")
    keys = normal(20001)
    assert np.array_equal(np.asarray(sort.sort(keys)), np.sort(keys))
    np.asarray(sort.argsort(keys.astype(np.float16)))
    for name in ("uniform", "normal", "integers"):
        np.asarray(getattr(std("random"), name)((5001,), seed=1))
    np.asarray(std("stencil").convolve1d(keys, normal(7)))
    np.asarray(std("stencil").laplace2d(normal(67, 129)))
    assert np.array_equal(np.asarray(std("transpose").transpose(normal(67, 129))),
                          normal(67, 129).T)  # fmt: skip
    offsets = np.array([0, 3, 3, 70, 100], np.int32)
    columns = np.arange(100, dtype=np.int32) % 40
    np.asarray(std("sparse").matvec(offsets, columns, normal(100), normal(40)))


def near(found: Any, right: Array, error: float) -> None:
    got = np.asarray(found).astype(np.float64)
    assert got.shape == right.shape and np.abs(got - right).max(initial=0) <= error, error


def run_linalg() -> None:
    linalg = std("linalg")
    for m, n, k in SIZES:
        for dtype, error in ((np.float32, 1e-4), (BF16, 0.3), (np.float16, 0.05)):
            a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
            near(linalg.matmul(a, b), a.astype(np.float64) @ b.astype(np.float64), error)
        a, b, bias = (normal(*s, dtype=BF16, seed=1) for s in ((m, k), (n, k), (n,)))
        for how in ("none", "relu", "gelu", "silu"):
            np.asarray(linalg.linear(a, b, bias, how))
        c, other = normal(m, n), normal(k, n)
        right = 0.5 * c + 2.0 * a.astype(np.float64) @ other
        near(linalg.addmm(c, a.astype(np.float32), other, 2.0, 0.5), right, 1e-3)
        wide = a.astype(np.float32)
        near(linalg.matmul_tf32(wide, other), wide.astype(np.float64) @ other, 0.1)
        eight = a.astype(F8), np.ascontiguousarray(b.astype(F8).T)
        near(linalg.matmul_f8(*eight, np.ones(m, np.float32), np.ones(n, np.float32)),
             eight[0].astype(np.float64) @ eight[1].astype(np.float64), 1.0)  # fmt: skip
        near(linalg.gemv(a, normal(k, dtype=BF16)), a.astype(np.float64) @
             normal(k, dtype=BF16).astype(np.float64), 0.3)  # fmt: skip
    batch = normal(3, 65, 64, dtype=BF16)
    np.asarray(linalg.matmul(batch, batch.transpose(0, 2, 1).copy()))


def run_nn() -> None:
    nn = std("nn")
    for shape in ((5, 1), (7, 129), (3, 8192), (2, 40000)):
        for dtype in (np.float32, BF16):
            x, weight = normal(*shape, dtype=dtype), normal(shape[1], dtype=dtype)
            for found in (nn.softmax(x), nn.log_softmax(x), nn.rmsnorm(x, weight),
                          nn.layernorm(x, weight, weight)):  # fmt: skip
                assert np.isfinite(np.asarray(found).astype(np.float32)).all()
    np.asarray(nn.softmax(normal(5, 33, 6), axis=1))
    assert np.array_equal(np.asarray(nn.transpose(normal(131, 67))), normal(131, 67).T)


def run_tiles() -> None:
    """Tile kernels of the fuzzer under schedules, sums of small integers exactly."""
    sys.path.insert(0, str(ROOT))
    from tests.fuzz.tile_schedules import KERNELS, Case, tried

    layouts = (("plain",) * 3, ("turned", "stepped", "reversed"))
    for kernel in KERNELS:
        for number, lines in enumerate(SCHEDULES):
            if not kernel.axes:
                lines = [line for line in lines if "tile(" not in line]
            sizes = dict(zip("mnk", SIZES[number % 2], strict=True), d=64)
            case = Case(kernel, "bf16", list(lines), sizes, number, layouts[number % 4 == 3])
            outcome = tried(case, "cuda")
            assert not outcome.wrong, f"{outcome.wrong}\n{case}"


PARTS = {"examples": run_examples, "arrays": run_arrays, "linalg": run_linalg, "nn": run_nn,
         "tiles": run_tiles}  # fmt: skip


def main(names: Sequence[str]) -> None:
    for name in names or PARTS:
        PARTS[name]()
        tessera.synchronize()
        print(f"{name} ran")


if __name__ == "__main__":
    main(sys.argv[1:])
