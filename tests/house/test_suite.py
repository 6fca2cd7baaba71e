"""How the tests are run: samples, parts, limits, and failures that are told at once."""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.imports import order
from tests.sampling import covering, part, part_of, spread

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("count", "most", "kept"), [
    (5, 9, [0, 1, 2, 3, 4]), (5, 1, [0]), (5, 2, [0, 4]), (11, 3, [0, 5, 10]), (0, 3, []),
])  # fmt: skip
def test_a_sample_is_spread_from_end_to_end(count: int, most: int, kept: list[int]) -> None:
    assert spread(count, most) == kept


def test_a_sample_holds_every_value() -> None:
    axes = {"a": range(5), "b": "xyz", "c": (True, False)}
    cases = [frozenset(zip(axes, values, strict=True)) for values in product(*axes.values())]
    kept = covering(cases)
    assert len(kept) == 5  # as many as the longest axis has
    assert set().union(*(cases[i] for i in kept)) == set().union(*cases)
    assert covering([frozenset()] * 3) == []


def test_every_test_is_in_one_part() -> None:
    names = [f"tests/a.py::b[{n}]" for n in range(1000)]
    sizes = [sum(part_of(n, 12) == one for n in names) for one in range(1, 13)]
    assert sum(sizes) == 1000 and min(sizes) > 40
    assert part("3/12") == (3, 12)
    for text in ("0/3", "4/3", "3", "a/b", "1/"):
        with pytest.raises(argparse.ArgumentTypeError):
            part(text)


def test_each_process_begins_to_import_elsewhere() -> None:
    orders = [order(7, process, 3) for process in range(3)]
    assert all(sorted(numbers) == list(range(7)) for numbers in orders)
    assert [numbers[0] for numbers in orders] == [0, 2, 4]
    assert order(7, 0, 1) == list(range(7))


FILE = """
import os, time
import pytest

@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("a", range(4))
@pytest.mark.sample
def test_sampled(a, b):
    pass

def test_fails():
    assert 1 == 2, "the reason"

def test_is_slow():
    time.sleep(3)

@pytest.mark.gpu
@pytest.mark.timeout(2, method="thread")
def test_ends_never():
    time.sleep(60)
"""


@pytest.fixture
def ran(tmp_path: Path) -> str:
    """What a run in two processes writes, in the order it does."""
    (tmp_path / "test_file.py").write_text(FILE, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["tests.reporting", "tests.sampling"]\n', encoding="utf-8"
    )
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT}\nmarkers =\n  sample: x\n  slow: x\n  gpu: x\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-n", "2", "-m", "not slow",
               "-p", "no:cacheprovider", "--cpu-times", str(tmp_path / "times")]  # fmt: skip
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + (tmp_path / "times").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_tells_failures_at_once_and_outlives_a_hang(ran: str) -> None:
    told = ran.index("FAILED AT ONCE test_file.py::test_fails")
    assert told < ran.index("the reason") < ran.index("= FAILURES =")
    assert ran.index("FAILED AT ONCE test_file.py::test_ends_never") < ran.index("= FAILURES =")
    assert "2 failed, 5 passed" in ran  # four of twelve cases are the sample
    times = ran.split(" .\n")[-1]
    assert times.count("::") == 7 and " test_file.py::test_is_slow" in times
