"""The steps of ``examples/matmul``: each runs and checks itself."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tessera_lang.driver.session import Session

STEPS = sorted((Path(__file__).resolve().parents[2] / "examples" / "matmul").glob("[1-9]*.tessera"))


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("path", STEPS, ids=lambda p: p.stem)
@pytest.mark.sample(1)
def test_a_step_runs_and_is_checked(path: Path, target: str) -> None:
    assert not Session().check(str(path))
    done = subprocess.run(
        [sys.executable, "-m", "tessera_lang.driver.cli", "run", f"--target={target}", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worst error" in done.stdout


def test_each_step_names_the_next() -> None:
    for path, after in pairwise(STEPS):
        assert f"Next: {after.name}." in path.read_text()
