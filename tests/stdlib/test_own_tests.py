"""The tests that the library's files hold, run as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTED = {
    "elementwise",
    "histogram",
    "linalg",
    "nn",
    "random",
    "reduce",
    "scan",
    "sparse",
    "stencil",
    "transpose",
}


def results(target: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tessera_lang.driver.cli", "test", "stdlib/tessera_stdlib",
         f"--target={target}", "--format=json"],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def passed(target: str) -> set[str]:
    found = [r for r in results(target) if "test" in r]
    assert all(r["outcome"] == "passed" and r["target"] == target for r in found)
    return {Path(r["file"]).stem for r in found}


def test_on_the_cpu() -> None:
    assert passed("cpu") >= TESTED


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    assert passed("cuda") >= TESTED
