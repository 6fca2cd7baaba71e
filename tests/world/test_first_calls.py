"""First calls from several threads at the same moment, each time in a process of its own.

What they call and how is ``tests/first_calls.py``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick_code import environment

pytest.importorskip("llvmlite")
ROOT = Path(__file__).parents[2]


def run(mode: str, threads: int, rounds: int = 1, folder: str = "off") -> None:
    cache = {"TESSERA_CACHE": "off"} if folder == "off" else {"TESSERA_CACHE_DIR": folder}
    made = subprocess.run(
        [sys.executable, "-m", "tests.first_calls", mode, str(threads), str(rounds)],
        cwd=ROOT, env={**os.environ, **environment(), **cache}, capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip
    assert made.returncode == 0, (made.stdout + made.stderr)[-6000:]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", [pytest.param(2, marks=pytest.mark.slow), 16])
@pytest.mark.slow
def test_on_the_cpu(threads: int) -> None:
    run("cpu", threads)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_from_the_cache(tmp_path: Path) -> None:
    """Nothing is compiled the second time: what is left of a first call meets at once."""
    folder = str(tmp_path / "cache")
    run("cpu", 2, folder=folder)
    run("cpu", 8, 3, folder=folder)


@pytest.mark.gpu
@pytest.mark.timeout(300, method="thread")
@pytest.mark.parametrize("threads", [2, 6, 16])
@pytest.mark.parametrize("mode", ["host", "default", "own", "torch"])
def test_on_a_gpu(mode: str, threads: int) -> None:
    if mode == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    run(mode, threads, 2)


@pytest.mark.gpu
@pytest.mark.timeout(600, method="thread")
def test_on_a_gpu_from_the_cache(tmp_path: Path) -> None:
    """The code is there: threads meet where modules are loaded and copies made."""
    folder = str(tmp_path / "cache")
    run("default", 1, folder=folder)
    modes = ["default", "own", *(["torch"] if importlib.util.find_spec("torch") else [])]
    for mode in modes:
        for _ in range(4):
            run(mode, 6, 2, folder=folder)
