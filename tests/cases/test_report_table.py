"""The public reports that kernels can express: each has a test, those of tile kernels on both
targets.

The reports are those that the docstrings of the tests name (B01 ...).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = ("test_tile_reports.py", "test_tile_reports_values.py")

BOTH_TARGETS = {
    "size": ("B01", "B03", "B05", "B07", "B09", "B11", "B13"),
    "stride": ("B21", "B23", "B25", "B27", "B29"),
    "integers": ("B30",),
    "floats": ("B46", "B48", "B50", "B52", "B54"),
    "flow": ("B62",),
    "shared": ("B85", "B91"),
    "scan": ("B103", "B107"),
    "reduce": ("B109", "B111", "B113", "B115"),
    "matmul": ("B116", "B124", "R1"),
    "tma": ("B120",),
    "pipe": ("B122",),
    "softmax, norm, attention": ("B125", "B127", "B129", "R2"),
    "axes of one": ("R5",),
}
ONCE = {
    "B15": "more memory than a CPU's test should take; on the GPU",
    "B17": "as B15",
    "B19": "numbers of tiles; nothing of it is a target's",
    "B87": "said by the compiler",
    "B89": "said by the compiler",
    "B131": "time of the compiler",
    "B133": "time of the compiler",
}


LANES = {
    "size": ("B03", "B07", "B09", "B11", "B13"), "overflow": ("B15", "B17", "B19", "B162", "B164"),
    "stride": ("B21", "B23", "B25", "B27", "B29"),
    "int": ("B30", "B32", "B34", "B36", "B38", "B40", "B42", "B44"),
    "float": ("B46", "B48", "B50", "B52", "B54"),
    "flow": ("B56", "B58", "B60", "B62", "B64", "B66", "B68", "B70", "B72"),
    "barrier": ("B73", "B75", "B77", "B81"), "uninit": ("B80",), "race": ("B83", "B91"),
    "shared": ("B85", "B87", "B89"), "uniform": ("B93", "B95", "B97"), "atomic": ("B99", "B101"),
    "scan": ("B103", "B105", "B107"), "reduce": ("B109", "B111", "B113", "B115"),
    "compile": ("B131", "B133"), "process": ("B141",), "device": ("B143",),
    "message": ("B145", "B147"), "parser": ("B156",), "security": ("B158", "B160"),
    "cache": ("B135",),
}  # fmt: skip
"""What lane kernels can express: the tests stand here, and beside the part that they are of."""


def named() -> dict[str, list[ast.FunctionDef]]:
    """The tests by the reports that their docstrings begin with."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for file in FILES:
        for node in ast.parse((HERE / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for report in re.findall(r"\b[BR]\d+\b", ast.get_docstring(node) or ""):
                    found.setdefault(report, []).append(node)
    return found


@pytest.mark.parametrize("kind", BOTH_TARGETS)
def test_a_kind_of_report_runs_on_both_targets(kind: str) -> None:
    tests = named()
    for report in BOTH_TARGETS[kind]:
        assert report in tests, report
        assert any(a.arg == "target" for t in tests[report] for a in t.args.args), report


def test_what_runs_once_is_there() -> None:
    assert not [report for report in ONCE if report not in named()]


def test_every_report_of_lane_kernels_has_a_test() -> None:
    """Reports that a file of tests names, other than those of tile kernels and this table."""
    apart = {*FILES, Path(__file__).name}
    texts = [p.read_text(encoding="utf-8") for p in HERE.parent.rglob("test_*.py")
             if p.name not in apart]  # fmt: skip
    there = {report for text in texts for report in re.findall(r"\bB\d+\b", text)}
    assert not [r for reports in LANES.values() for r in reports if r not in there]
