"""Products of matrices from the standard library beside cuBLAS (torch), and Triton if asked for.

Run: python -m benchmarks.gemm [name ...]
Names: square, large, odd, waves, small, f8, tf32, f32; triton beside them adds what plain kernels
in it reach (benchmarks/triton_kernels.py).
Every result is checked against float64 (a sample of rows) over a poisoned output before timing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import tessera_lang as tessera
from benchmarks.harness import Report, Row, median_device_seconds

SHAPES: dict[str, list[tuple[int, int, int, str]]] = {
    "square": [
        (1024, 1024, 1024, ">= 1.2x"),
        (2048, 2048, 2048, ">= 1.0x"),
        (4096, 4096, 4096, ">= 1.03x"),
        (8192, 8192, 8192, ">= 1.05x"),
        (4096, 4096, 14336, ">= 1.02x"),
    ],
    "large": [(16384, 16384, 16384, ">= 1.05x"), (8192, 28672, 8192, ">= 1.03x")],
    "odd": [(1000, 1000, 1000, ">= 1.5x"), (4097, 4095, 4099, ">= 3x")],
    "waves": [(1792, 1792, 8192, ""), (2304, 2304, 16384, ""), (2560, 2560, 8192, "")],
    "small": [
        (512, 512, 512, ">= 1.3x"),
        (16, 8192, 8192, ">= 1.2x"),
        (1, 8192, 8192, ">= 1.25x"),
        (64, 28672, 8192, ">= 1.08x"),
        (256, 8192, 28672, ">= 1.0x"),
    ],
}
"""M, N, K and the goal against cuBLAS (design/performance). ``waves``: a few tiles more than the
device has multiprocessors, with long loops."""


def main() -> None:
    import torch

    with_triton = "triton" in sys.argv
    names = [n for n in sys.argv[1:] if n != "triton"] or [*SHAPES, "f8", "tf32", "f32"]
    report = Report("products of matrices")
    torch.manual_seed(0)
    linalg = tessera.load("std.linalg")
    for name in names:
        for m, n, k, goal in SHAPES.get(name, []):
            for layout in ("tn", "nn"):
                a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
                b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
                if layout == "tn":
                    b = b.t().contiguous().t()
                others = _triton(a, b) if with_triton else {}
                _measure(report, f"bf16 {m},{n},{k} {layout}", linalg, a, b, goal, others=others)
        if name == "f8":
            for size in (4096, 8192):
                _measure_f8(report, linalg, size)
        if name in ("tf32", "f32"):
            for size in (4096, 8192):
                torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
                a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
                product = linalg.matmul_tf32 if name == "tf32" else linalg.matmul
                precision = "tf32" if name == "tf32" else "ieee"
                others = _triton(a, b, precision) if with_triton else {}
                _measure(report, f"{name} {size}", linalg, a, b, ">= 1.0x", product, others)
        if report.rows:
            report.save("gemm")  # what is measured is kept if the rest is cut off


def _measure(
    report: Report, name: str, linalg: object, a, b, goal: str,
    product: Callable[..., object] | None = None,
    others: Mapping[str, Callable[[], object]] | None = None,
) -> None:  # fmt: skip
    import torch

    product = product or linalg.matmul
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    try:
        got = torch.as_tensor(product(a, b), device="cuda")
        _check(name, got, a, b)
    except Exception as error:  # one row that fails must not end the others
        print(f"{name:<44} FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return
    contenders = {"tessera": lambda: product(a, b), "cublas": lambda: torch.matmul(a, b)}
    contenders |= _right(name, others or {}, a, b)
    runs = 20 if 2 * m * n * k > 1e12 else 50
    times = median_device_seconds(contenders, runs=runs)
    rate = 2 * m * n * k / times["tessera"] / 1e12
    moved = (m * k + k * n + m * n) * a.element_size()
    note = f"{rate:.0f} TFLOP/s {moved / times['tessera'] / 1e9:.0f} GB/s"
    report.add(Row(name, times, 0, goal, note))


def _triton(a, b, precision: str = "tf32") -> dict[str, Callable[[], object]]:
    try:
        from benchmarks.triton_kernels import product

        return {"triton": product(a, b, precision)}
    except Exception as error:
        print(f"no triton: {type(error).__name__}: {str(error)[:160]}", flush=True)
        return {}


def _right(
    name: str, peers: Mapping[str, Callable[[], object]], a, b
) -> dict[str, Callable[[], object]]:
    """Those peers whose results are right."""
    found: dict[str, Callable[[], object]] = {}
    for peer, run in peers.items():
        try:
            _check(name, run(), a, b)
        except AssertionError as error:
            print(f"{name:<44} {peer} is wrong: {error}", flush=True)
            continue
        found[peer] = run
    return found


def _check(name: str, got, a, b) -> None:
    """Against float64 on a sample of rows, relative to the norm."""
    import torch

    rows = torch.randperm(a.shape[0], device="cuda")[:64]
    want = a[rows].double() @ b.double()
    error = (got[rows].double() - want).norm() / want.norm()
    limit = 1e-2 if a.element_size() < 4 else (2e-3 if "tf32" in name else 1e-5)
    assert got.shape == (a.shape[0], b.shape[1]), got.shape
    assert not got.isnan().any(), "poison in the result"
    assert error < limit, f"relative error {error:.2e}"


def _measure_f8(report: Report, linalg: object, size: int) -> None:
    import torch

    a = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn).t()
    one, ones = torch.ones((), device="cuda"), torch.ones(size, device="cuda")
    name = f"f8e4m3 {size} tn"
    try:
        got = torch.as_tensor(linalg.matmul_f8(a, b, ones, ones), device="cuda")
        want = a[:64].double() @ b.double()
        error = (got[:64].double() - want).norm() / want.norm()
        assert error < 2e-2, f"relative error {error:.2e}"
    except Exception as error:
        print(f"{name:<44} FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return

    def peer(fast: bool) -> Callable[[], object]:
        """With fast accumulation all products are added in the unit; else in f32, as ours."""
        return lambda: torch._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    times = median_device_seconds({
        "tessera": lambda: linalg.matmul_f8(a, b, ones, ones),
        "cublas": peer(fast=True), "cublas exact": peer(fast=False),
    })  # fmt: skip
    note = f"{2 * size**3 / times['tessera'] / 1e12:.0f} TFLOP/s"
    report.add(Row(name, times, 0, ">= 1.05x", note))


if __name__ == "__main__":
    main()
