"""The kept results as the tables of docs/performance.md, which a test compares with them.

Run: python -m benchmarks.table --write            writes all tables into the page
     python -m benchmarks.table gemm attention     prints tables
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.harness import RESULTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
MARKED = re.compile(r"(<!-- results of (\w+) -->\n).*?(\n<!-- end of the results -->)", re.S)
NAMES = {
    "cublas": "cuBLAS", "cublas exact": "cuBLAS exact", "cudnn": "cuDNN", "numpy": "NumPy",
    "numba": "Numba", "triton": "Triton", "cupy": "CuPy", "cub": "CUB", "off": "`--bounds=off`",
}  # fmt: skip
"""Contenders as the page spells them; others as they are."""
SLOWER = ("checked",)
"""Files that say how much slower the other contender is, not how much faster we are."""
NOTES = 4
"""The column of notes; a note that all rows have stands above the table."""
SORTED = ("gemm_sweep",)
"""Files whose rows stand in the order of their ratios: their shapes have no order of their own."""
VERSIONS = {
    "torch": ("torch", "compile", "cublas", "cudnn", "flash"), "triton": ("triton",),
    "numpy": ("numpy",), "numba": ("numba",), "cupy-cuda13x": ("cupy", "cub"),
}  # fmt: skip
"""The packages whose versions are named, with the contenders that are theirs."""


AREAS = (
    ("gpu_memory", "reductions and element-wise kernels", "memory-launches-and-start-up", "torch"),
    ("launch", "launches from Python", "memory-launches-and-start-up", "torch"),
    ("gemm", "matrix products", "matrix-products", "cublas"),
    ("gemm_sweep", "matrix products of other shapes", "other-shapes", "cublas"),
    ("gemm_triton", "matrix products", "beside-triton", "triton"),
    ("attention", "attention", "attention", "cudnn"),
    ("rows", "softmax, norms, transpose", "memory-bound-tile-kernels", "copy"),
    ("rows", "softmax, norms, transpose", "memory-bound-tile-kernels", "torch"),
    ("library", "standard library", "standard-library", "cupy"),
    ("library", "standard library", "standard-library", "cub"),
    ("cpu", "CPU target, vectors and products", "cpu-target", "numpy"),
    ("checked", "checked runs beside unchecked ones", "checked-runs", "checked"),
)
"""Rows of the summary: a file, what it is about, where it stands on the page, and a contender."""


def summary() -> str:
    """The least, the mean and the greatest ratio of each area."""
    columns = ["area", "machine", "beside", "least", "geometric mean", "greatest"]
    lines = [columns, ["---"] * len(columns)]
    for name, title, anchor, who in AREAS:
        record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        ratios = [row["ratios"][who] for row in record["rows"] if who in row["ratios"]]
        machine = record["machine"].get("card") or record["machine"]["processor"]
        found = (min(ratios), geometric_mean(ratios), max(ratios))
        beside = f"{NAMES.get(who, who)}{', times slower' if name in SLOWER else ''}"
        lines.append([f"[{title}](#{anchor})", machine.partition(",")[0], beside,
                      *(f"{ratio:.2f}" for ratio in found)])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table(name: str) -> str:
    """A result file as Markdown: a line about the run, and a row for each measured thing."""
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = record["rows"]
    if name in SORTED:
        rows = sorted(rows, key=lambda r: min(r["ratios"].values()))
    slower = name in SLOWER
    columns = ["what", "Tessera", "others", "slower" if slower else "speed over", "notes", "goal"]
    cells = [cells_of(row, slower) for row in rows]
    note = cells[0][NOTES] if len({line[NOTES] for line in cells}) == 1 else ""
    kept = [i for i in range(len(columns)) if any(line[i] for line in cells)]
    kept = [i for i in kept if i != NOTES or not note]
    lines = [columns, ["---"] * len(columns), *cells]
    text = "\n".join("| " + " | ".join(line[i] for i in kept) + " |" for line in lines)
    contenders = {who for row in rows for who in row["seconds"]}
    return f"{about(record['machine'], contenders, note)}\n\n{text}"


def about(machine: dict[str, str], contenders: set[str], note: str) -> str:
    """The machine, the versions and the revision of a run."""
    card, _, rest = str(machine.get("card") or machine["processor"]).partition(", ")
    driver = f"driver {rest.partition(', ')[0]}" if rest else ""
    versions = [
        f"{package.partition('-')[0]} {machine[package]}"
        for package, theirs in VERSIONS.items()
        if package in machine and contenders.intersection(theirs)
    ]
    revision = f"revision {machine['commit']}" if machine.get("commit") else ""
    parts = [card, driver, *versions, str(machine["date"]), revision, note]
    return f"Measured on: {', '.join(part for part in parts if part)}."


def cells_of(row: dict[str, Any], slower: bool) -> list[str]:
    seconds = {NAMES.get(who, who): s for who, s in row["seconds"].items()}
    ours = seconds.pop("tessera")
    others = ", ".join(f"{who} {duration(s)}" for who, s in seconds.items())
    ratios = [f"{v:.3g}x" if slower else f"{v:.3f} {NAMES.get(who, who)}"
              for who, v in row["ratios"].items()]  # fmt: skip
    notes = re.sub(r"(; |, )?(best of|reached).*", "", row["notes"])
    if not notes and row["bytes"]:
        notes = f"{row['bytes'] / ours / 1e9:.0f} GB/s"
    return [row["name"], duration(ours), others, ", ".join(ratios), notes, row["goal"]]


def duration(seconds: float) -> str:
    """Microseconds below a millisecond, milliseconds above."""
    return f"{seconds * 1e6:.4g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def in_page(text: str) -> str:
    """A page with the tables of the kept results between their marks."""

    def made(match: re.Match[str]) -> str:
        name = match[2]
        return f"{match[1]}\n{summary() if name == 'all' else table(name)}\n{match[3]}"

    return MARKED.sub(made, text)


def main() -> None:
    if "--write" in sys.argv:
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for name in sys.argv[1:]:
        if not name.startswith("-"):
            print(table(name), end="\n\n")


if __name__ == "__main__":
    main()
