"""The examples of docs/frameworks.md run, where their packages are installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```", re.S | re.M)
_PRINTS = re.compile(r"# prints (.*)$", re.M)


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({k for _, k, _ in _BLOCK.findall(PAGE) if k}))
def test_the_examples(package: str, tmp_path: Path) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    blocks = _BLOCK.findall(PAGE)
    (file,) = [text for language, _, text in blocks if language == "tessera"]
    (tmp_path / "nets.tessera").write_text(file, encoding="utf-8")
    text = "\n".join(text for _, kind, text in blocks if kind == package)
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True,
        timeout=200, check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    prints = _PRINTS.findall(text)
    assert done.stdout.splitlines() == prints and len(prints) > 3
