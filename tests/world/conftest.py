"""The command line in a child process, with a home of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

DOUBLE = """\
@kernel tile[(64,)]
def double(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * 2.0


x = op.arange(100, dtype=f32)
out = op.zeros((100,), f32)
double[(2,)](x, out)
print("last", out[99])
"""
_CODE = re.compile(r"^(?:error|warning|note)\[(T\d{4})\]", re.MULTILINE)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str
    seconds: float

    @property
    def codes(self) -> list[str]:
        return _CODE.findall(self.err)


Command = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def tesserac(tmp_path: Path, home: Path) -> Command:
    """Runs ``tesserac`` in the test's folder."""
    return command_in(tmp_path, home)


def command_in(folder: Path, home: Path) -> Command:
    """Runs ``tesserac`` in a folder. No command may show a traceback."""

    def call(
        *arguments: str,
        stdin: str = "",
        env: Mapping[str, str | None] | None = None,
        limit: float = 60,
    ) -> Done:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "XDG_"))}
        asked = {"HOME": str(home), "USERPROFILE": str(home), "LOCALAPPDATA": str(home)}
        wanted: dict[str, str | None] = {
            **kept, **asked, "TESSERA_REPORTS": str(folder), **(env or {})
        }  # fmt: skip
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "tessera_lang.driver.cli", *arguments],
            input=stdin, capture_output=True, text=True, cwd=folder, timeout=limit,
            env={k: v for k, v in wanted.items() if v is not None}, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        seconds = time.perf_counter() - start
        return Done(done.returncode, done.stdout, done.stderr, seconds)

    return call


@pytest.fixture
def double(tmp_path: Path) -> Path:
    """A program with one launch that prints ``last 198.0``."""
    path = tmp_path / "double.tessera"
    path.write_text(DOUBLE, encoding="utf-8")
    return path
