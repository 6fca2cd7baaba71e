"""The standard library beside torch and CuPy (CUB) on one GPU, with the copy ceiling.

Run: python -m benchmarks.library [scan] [histogram] [transpose] [reduce] [sort]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tessera_lang as tessera
from benchmarks.harness import Report, Row, median_device_seconds

CEILING = ">= 0.97 of copy"
PEER = f"{CEILING} or >= 1.0x CUB"
"""Where the vendor's library has the same; torch's cumsum is its scan."""


class Library:
    """One report; ``ceiling`` is bytes per second of a copy in this run."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(0)
        self.report = Report("standard library")
        n = 1 << 28
        a, b = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        times = median_device_seconds({"torch": lambda: b.copy_(a)})
        self.ceiling = 8 * n / times["torch"]
        print(f"copy {self.ceiling / 1e9:.0f} GB/s")

    def row(
        self, name: str, contenders: dict[str, Callable[[], object]], bytes_: int, goal: str
    ) -> None:
        times = median_device_seconds(contenders, runs=20)
        share = bytes_ / times["tessera"] / self.ceiling
        note = f"{share:.3f} of copy" if bytes_ else ""
        self.report.add(Row(name, times, bytes_, goal, note))

    def scan(self) -> None:
        torch, std = self.torch, tessera.load("std.scan")
        for power in (28, 24, 20):
            n = 1 << power
            x = torch.randn(n, device="cuda")
            got = torch.as_tensor(std.inclusive(x), device="cuda")
            want = torch.cumsum(x.double(), 0)
            bound = 1e-5 * torch.cumsum(x.double().abs(), 0) + 1e-6
            assert bool(((got.double() - want).abs() <= bound).all())
            again = torch.as_tensor(std.inclusive(x), device="cuda")
            assert torch.equal(got, again)
            del got, again, want, bound
            contenders = {
                "tessera": lambda x=x: std.inclusive(x),
                "torch": lambda x=x: torch.cumsum(x, 0),
            }
            self.row(f"std.scan.inclusive f32 2^{power}", contenders, 8 * n, PEER)

    def histogram(self) -> None:
        import cupy

        torch, std = self.torch, tessera.load("std.histogram")
        n = 1 << 28
        for name, top in (("random bytes", 256), ("one byte", 1)):
            x = torch.randint(0, top, (n,), dtype=torch.uint8, device="cuda")
            got = torch.as_tensor(std.histogram(x), device="cuda")
            assert torch.equal(got.long(), torch.bincount(x, minlength=256))
            y = cupy.asarray(x)
            contenders = {
                "tessera": lambda x=x: std.histogram(x),
                "cupy": lambda y=y: cupy.bincount(y, minlength=256),
            }
            self.row(f"std.histogram {name} 2^28", contenders, n, PEER)
        n = 1 << 26
        x = torch.randint(0, 1000, (n,), dtype=torch.int32, device="cuda")
        got = torch.as_tensor(std.bincount(x, 1000), device="cuda")
        assert torch.equal(got.long(), torch.bincount(x, minlength=1000))
        contenders = {
            "tessera": lambda: std.bincount(x, 1000),
            "torch": lambda: torch.bincount(x, minlength=1000),
        }
        self.row("std.bincount i32 1000 bins 2^26", contenders, 4 * n, CEILING)

    def transpose(self) -> None:
        torch, std = self.torch, tessera.load("std.transpose")
        for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
            x = torch.randn(16384, 16384, device="cuda").to(dtype)
            got = torch.as_tensor(std.transpose(x), device="cuda")
            assert torch.equal(got, x.T)
            del got
            contenders: dict[str, Callable[[], object]] = {
                "tessera": lambda x=x: std.transpose(x),
                "torch": lambda x=x: x.T.contiguous(),
            }
            self.row(f"std.transpose {dtype} 16384^2", contenders, 2 * size * x.numel(), CEILING)

    def reduce(self) -> None:
        torch, std = self.torch, tessera.load("std.reduce")
        n = 1 << 28
        x = torch.randn(n, device="cuda")
        m = x.view(16384, 16384)
        pairs: list[tuple[str, Any, Callable[[], object], Callable[[], object]]] = [
            ("sum", x, lambda: std.sum(x), lambda: torch.sum(x)),
            ("max", x, lambda: std.max(x), lambda: torch.max(x)),
            ("argmax", x, lambda: std.argmax(x), lambda: torch.argmax(x)),
            ("sum of rows", m, lambda: std.sum(m, axis=1), lambda: torch.sum(m, 1)),
            ("sum of columns", m, lambda: std.sum(m, axis=0), lambda: torch.sum(m, 0)),
        ]
        for name, _, ours, theirs in pairs:
            got = torch.as_tensor(ours(), device="cuda").double().reshape(-1)
            want = torch.as_tensor(theirs()).double().reshape(-1)
            assert bool(((got - want).abs() <= 1e-3 * want.abs() + 1.0).all()), name
            self.row(f"std.reduce {name} f32 2^28", {"tessera": ours, "torch": theirs}, 4 * n,
                     CEILING)  # fmt: skip

    def sort(self) -> None:
        torch, std = self.torch, tessera.load("std.sort")
        for power in (26, 20):
            n = 1 << power
            for name, x in (
                ("i32", torch.randint(-(1 << 31), 1 << 31, (n,), device="cuda").int()),
                ("f32", torch.randn(n, device="cuda")),
            ):
                got = torch.as_tensor(std.sort(x), device="cuda")
                assert torch.equal(got, torch.sort(x).values)
                import cupy

                y = cupy.asarray(x)
                contenders = {
                    "tessera": lambda x=x: std.sort(x),
                    "torch": lambda x=x: torch.sort(x),
                    "cupy": lambda y=y: cupy.sort(y),
                }
                self.row(f"std.sort {name} 2^{power}", contenders, 0, ">= 1.0x cupy")


def main() -> None:
    library = Library()
    names = sys.argv[1:] or ["scan", "histogram", "transpose", "reduce", "sort"]
    for name in names:
        try:
            getattr(library, name)()
        except Exception as error:
            if not sys.argv[1:]:
                raise
            print(f"{name}: {type(error).__name__}: {error}")
    if not sys.argv[1:]:
        library.report.save("library")


if __name__ == "__main__":
    main()
