"""Fixtures: a folder with files, and the command line, here or in a child process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tessera_lang.driver.cli import run


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Tesserac = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Writes files by name; the folder they lie in."""

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    unset = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_") and k not in unset}
    return {**clean, "TESSERA_REPORTS": str(folder), **more}


@pytest.fixture
def tesserac(tmp_path: Path) -> Tesserac:
    """Runs ``tesserac`` in the test's folder, in this process."""

    def call(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(3)]
        streams[0].buffer.write(stdin.encode())
        streams[0].buffer.seek(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(os, "environ", environment(tmp_path, env or {}))
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            code = run(list(arguments))
            sys.stdout.flush()
            sys.stderr.flush()
        texts = [s.buffer.getvalue().decode() for s in streams]  # type: ignore[attr-defined]
        return Done(code, texts[1], texts[2])

    return call


@pytest.fixture
def child(tmp_path: Path) -> Tesserac:
    """Runs ``tesserac`` in the test's folder, in a process of its own."""

    def call(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "tessera_lang.driver.cli", *arguments],
            input=stdin, capture_output=True, text=True, cwd=tmp_path, timeout=60,
            env=environment(tmp_path, env or {}),
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    return call
