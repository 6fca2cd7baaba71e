"""The tests that the library's files hold, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.quick_code import environment

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "stdlib/tessera_stdlib"
TESTED = [
    file.name
    for file in sorted((ROOT / LIBRARY).glob("*.tessera"), key=lambda f: (f.stat().st_size, f))
    if "@test" in file.read_text("utf-8")
]  # the shortest first, whose tests `make test` runs: other folders look at what the files compute
LEAST = 11
"""Files with tests: fewer are a fault of the line above."""


def results(path: str, target: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tessera_lang.driver.cli", "test", path, f"--target={target}",
         "--format=json"],
        capture_output=True, text=True, timeout=280, check=False, cwd=ROOT,
        env={**os.environ, **environment()},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [r for line in done.stdout.splitlines() if "test" in (r := json.loads(line))]


def passed(path: str, target: str) -> set[str]:
    found = results(path, target)
    assert all(r["outcome"] == "passed" and r["target"] == target for r in found)
    return {Path(r["file"]).name for r in found}


def test_files_with_tests() -> None:
    assert len(TESTED) >= LEAST


@pytest.mark.parametrize("file", TESTED)
@pytest.mark.sample(1)
def test_on_the_cpu(file: str) -> None:
    assert passed(f"{LIBRARY}/{file}", "cpu") == {file}


@pytest.mark.gpu
@pytest.mark.parametrize("file", TESTED)
def test_on_a_gpu(file: str) -> None:
    assert passed(f"{LIBRARY}/{file}", "cuda") == {file}
