"""Memory-bound kernels of the standard library beside torch on one GPU.

Run: python -m benchmarks.gpu_memory
"""

from __future__ import annotations

import tessera_lang as tessera
from benchmarks.harness import Report, Row, median_device_seconds


def main() -> None:
    import torch

    report = Report("memory-bound kernels")
    torch.manual_seed(0)
    reduce = tessera.load("std.reduce")
    elementwise = tessera.load("std.elementwise")
    for power in (29, 24):
        n = 1 << power
        x = torch.randn(n, device="cuda")
        want = float(x.double().sum())
        got = float(torch.as_tensor(reduce.sum(x), device="cuda"))
        assert abs(got - want) < 1e-5 * float(x.abs().double().sum()), (got, want)
        times = median_device_seconds(
            {"tessera": lambda x=x: reduce.sum(x), "torch": lambda x=x: torch.sum(x)}
        )
        report.add(Row(f"std.reduce.sum f32 2^{power}", times, 4 * n, ">= 0.99x torch"))
        del x
        n = min(n, 1 << 28)
        a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
        out = torch.full((n,), float("nan"), device="cuda")
        elementwise.add(a, b, out)
        assert torch.equal(out, a + b)
        times = median_device_seconds(
            {
                "tessera": lambda a=a, b=b, o=out: elementwise.add(a, b, o),
                "torch": lambda a=a, b=b, o=out: torch.add(a, b, out=o),
            }
        )
        report.add(Row(f"std.elementwise.add f32 {n}", times, 12 * n, ">= 0.99x torch"))
        source, target = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        elementwise.copy(source, target)
        assert torch.equal(source, target)
        times = median_device_seconds(
            {
                "tessera": lambda s=source, t=target: elementwise.copy(s, t),
                "torch": lambda s=source, t=target: t.copy_(s),
            }
        )
        report.add(Row(f"std.elementwise.copy f32 {n}", times, 8 * n))
    report.save("gpu_memory")


if __name__ == "__main__":
    main()
