"""The public reports that tile kernels can express: each has a test, on both targets.

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
