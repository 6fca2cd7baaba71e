"""The kept results as Markdown rows, for docs/performance.md.

Run: python -m benchmarks.table gpu_memory launch startup_gpu cpu
     python -m benchmarks.table --notes library
"""

from __future__ import annotations

import json
import sys

from benchmarks.harness import RESULTS


def rows(name: str) -> list[str]:
    """One Markdown row for each measured thing of a result file."""
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    lines: list[str] = []
    for r in record["rows"]:
        times = ", ".join(f"{who} {duration(s)}" for who, s in r["seconds"].items())
        rate = f"{r['bytes'] / r['seconds']['tessera'] / 1e9:.0f} GB/s" if r["bytes"] else ""
        ratios = ", ".join(f"{v:.2f}x {who}" for who, v in r["ratios"].items())
        lines.append(f"| {r['name']} | {times} | {rate} | {ratios} | {r['goal']} |")
    return lines


def with_notes(name: str) -> list[str]:
    """The same for rows whose notes say what was reached."""
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return [
        f"| {r['name']} | {duration(r['seconds']['tessera'])} | {r['notes']} | "
        f"{', '.join(f'{v:.2f}x {who}' for who, v in r['ratios'].items())} |"
        for r in record["rows"]
    ]


def duration(seconds: float) -> str:
    """Microseconds below a millisecond, milliseconds above."""
    return f"{seconds * 1e6:.2f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--notes"]
    if "--notes" in sys.argv:
        print("| what | tessera | the bar | speed over |")
        print("|---|---|---|---|")
        lines = with_notes
    else:
        print("| what | times | rate | speed over the peer | goal |")
        print("|---|---|---|---|---|")
        lines = rows
    for name in names:
        print("\n".join(lines(name)))


if __name__ == "__main__":
    main()
