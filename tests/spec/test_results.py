"""docs/performance.md shows the kept results as they are."""

from __future__ import annotations

import json

import pytest

from benchmarks.harness import RESULTS
from benchmarks.table import MARKED, PAGE, in_page, table

TEXT = PAGE.read_text(encoding="utf-8")


def test_tables_are_those_of_the_kept_results() -> None:
    assert in_page(TEXT) == TEXT, "run: python -m benchmarks.table --write"


def test_all_measurements_beside_others_are_shown() -> None:
    shown = {match[2] for match in MARKED.finditer(TEXT)}
    kept: set[str] = set()
    for path in RESULTS.glob("*.json"):
        rows = json.loads(path.read_text(encoding="utf-8")).get("rows") or [{}]
        if "ratios" in rows[0]:
            kept.add(path.stem)
    assert shown == kept | {"all"}


@pytest.mark.parametrize("name", ["gemm", "cpu", "checked"])
def test_table_has_every_row(name: str) -> None:
    rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    lines = table(name).splitlines()
    assert len(lines) == 4 + len(rows)
    assert len({line.count("|") for line in lines[2:]}) == 1
    for row, line in zip(rows, lines[4:], strict=True):
        assert line.startswith(f"| {row['name']} |")
