"""The standard library beside torch, CuPy and CUB on one GPU, with the copy ceiling.

Run: python -m benchmarks.library [scan] [histogram] [transpose] [reduce] [sort] [sparse]
[stencil] [random]

Each row is to reach 0.97 of the copy's bytes a second (of a fill's, where it only writes), or the
faster of CuPy and CUB in this run; whether it did stands beside it. Results are checked before
anything is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from benchmarks import library_rows
from benchmarks.harness import Report, Row, median_device_seconds

BAR = ">= 0.97 of copy or >= 1.0x CuPy and CUB"
PEERS = ("cupy", "cub")
SECTIONS = ("scan", "histogram", "transpose", "reduce", "sort", "sparse", "stencil", "random")


class Library:
    """One report; ``ceiling`` is bytes per second of a copy in this run."""

    def __init__(self) -> None:
        import torch

        torch.manual_seed(0)
        self.report = Report("standard library")
        n = 1 << 28
        a, b = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        times = median_device_seconds({"torch": lambda: b.copy_(a)})
        self.ceiling = 8 * n / times["torch"]
        print(f"copy {self.ceiling / 1e9:.0f} GB/s")

    def row(self, name: str, contenders: Mapping[str, Callable[[], object]], bytes_: int) -> None:
        """Measures one thing; ``bytes_`` are the least that it moves, 0 where they do not count."""
        times = median_device_seconds(contenders, runs=20)
        share = bytes_ / times["tessera"] / self.ceiling
        peers = [times[peer] / times["tessera"] for peer in PEERS if peer in times]
        fill = times.get("fill", 0.0) / times["tessera"]
        reached = max(share, fill) >= 0.97 or bool(peers) and min(peers) >= 1.0
        notes = [f"{share:.3f} of copy"] if bytes_ else []
        notes += [f"{fill:.3f} of a fill"] if fill else []
        notes.append("reached" if reached else "under the bar")
        self.report.add(Row(name, times, bytes_, BAR, ", ".join(notes)))


def main() -> None:
    library = Library()
    names = sys.argv[1:] or SECTIONS
    for name in names:
        try:
            getattr(library_rows, name)(library)
        except Exception as error:
            if not sys.argv[1:]:
                raise
            print(f"{name}: {type(error).__name__}: {error}")
    if not sys.argv[1:]:
        library.report.save("library")


if __name__ == "__main__":
    main()
