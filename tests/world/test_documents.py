"""The commands of docs/cli.md and docs/start.md do what the pages say; cli.md is complete."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tessera_lang.driver.commands import COMMANDS
from tests.world.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")


def blocks(kind: str, text: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.S | re.M)


def run_all(tesserac: Command, text: str) -> int:
    lines = [line.partition("  #")[0] for block in blocks("sh", text) for line in block.split("\n")]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("tesserac ")]
    for command in commands:
        done = tesserac(*command)
        assert done.status == 0, (command, done.err)
    return len(commands)


@pytest.mark.slow
def test_commands_of_the_page(tesserac: Command, tmp_path: Path) -> None:
    names = ("scale", "gemm", "attention")
    for name, program in zip(names, blocks("tessera", PAGE), strict=True):
        (tmp_path / f"{name}.tessera").write_text(program, encoding="utf-8")
    (tmp_path / "kernels").mkdir()
    shutil.copy(tmp_path / "scale.tessera", tmp_path / "kernels")
    assert run_all(tesserac, PAGE) > 15
    assert (tmp_path / "scale.ptx").is_file()
    assert tesserac("run", "scale.tessera", "--target=cpu", "--set", "factor=2.0").out == "90.0\n"


@pytest.mark.slow
def test_commands_of_the_first_steps(tesserac: Command, tmp_path: Path) -> None:
    program = blocks("tessera", START)[0]
    (tmp_path / "scale.tessera").write_text(program, encoding="utf-8")
    assert run_all(tesserac, START) >= 7
    (script,) = blocks("python", START)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[0.  0.5 1.  1.5 2.  2.5 3.  3.5 4.  4.5]\n")


def test_every_command_is_there() -> None:
    for name in COMMANDS:
        assert f"`{name}" in PAGE and f"tesserac {name}" in PAGE


def test_every_variable_is_there() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("tessera_lang", "backend")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    used = set(re.findall(r"\"(TESSERA_[A-Z_]+)\"", sources))
    assert used and not {name for name in used if name not in PAGE}
