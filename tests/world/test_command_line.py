"""Help, exit codes, streams and report files of every command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tessera_lang.driver.commands import COMMANDS
from tests.world.conftest import Command
from tests.world.test_machine import patched

posix = pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
WRONG = "x = y\n"


def test_help(tesserac: Command) -> None:
    done = tesserac("--help")
    assert (done.status, done.err) == (0, "")
    assert all(re.search(rf"^  {name} ", done.out, re.MULTILINE) for name in COMMANDS)
    assert tesserac("-h").out == done.out


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.sample(4)
def test_help_of_commands(tesserac: Command, name: str) -> None:
    done = tesserac(name, "--help")
    assert (done.status, done.err) == (0, "")
    examples = done.out.partition("Examples:")[2].strip().splitlines()
    assert len(examples) >= 2
    assert all(line.strip().startswith(f"tesserac {name}") for line in examples)
    assert max(map(len, done.out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("biuld", "`build`"), ("runn", "`run`"), ("expalin", "`explain`"), ("docter", "`doctor`"),
        ("a.tessera", "`tesserac run a.tessera`"), ("zzzzzz", "There is no command"),
    ],
)  # fmt: skip
def test_unknown_commands(tesserac: Command, word: str, hint: str) -> None:
    done = tesserac(word)
    assert (done.status, done.out) == (2, "") and hint in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("fmt",), ("run",), ("run", "a", "b"), ("run", "a", "--target"), ("emit", "a"),
        ("check", "a", "--format=xml"), ("check", "a", "--color=red"), ("--bogus",),
        ("cache", "bogus"), ("explain",), ("explain", "T1234"), ("build", "a"),
        ("emit", "double.tessera", "--stage=ptx", "--bounds=maybe"),
    ],
)  # fmt: skip
@pytest.mark.sample(4)
def test_usage(tesserac: Command, double: Path, arguments: tuple[str, ...]) -> None:
    done = tesserac(*arguments)
    assert (done.status, done.out) == (2, "") and done.err


def test_exit_codes(tesserac: Command, double: Path, tmp_path: Path) -> None:
    (tmp_path / "w.tessera").write_text(WRONG)
    (tmp_path / "f.tessera").write_text("assert 1 > 2\n")
    assert tesserac("run", "double.tessera", "--target=cpu").status == 0
    for command in ("check", "run"):
        done = tesserac(command, "w.tessera")
        assert (done.status, done.codes, done.out) == (1, ["T0101"], "")
    assert tesserac("run", "f.tessera", "--target=cpu").status in (1, 3)
    assert tesserac("run", "double.tessera", "--target=tpu").status == 3


def test_standard_input(tesserac: Command, double: Path) -> None:
    text = double.read_text()
    assert tesserac("run", "-", "--target=cpu", stdin=text).out == "last 198.0\n"
    assert tesserac("check", "-", stdin=text).status == 0
    assert "tile.kernel" in tesserac("emit", "-", "--stage=tile", stdin=text).out
    done = tesserac("check", "-", stdin="")
    assert (done.status, done.codes) == (1, ["T0811"])


def test_formats(tesserac: Command) -> None:
    short = tesserac("check", "-", "--format=short", stdin=WRONG)
    assert short.out == "<stdin>:1:5: error[T0101]: `y` is not defined\n" and not short.err
    (line,) = tesserac("check", "-", "--format=json", stdin=WRONG).out.splitlines()
    assert json.loads(line)["code"] == "T0101"
    human = tesserac("check", "-", stdin=WRONG)
    assert not human.out and "1 | x = y" in human.err


@pytest.mark.parametrize(
    ("env", "flag", "colors"),
    [
        ({}, "auto", False), ({}, "always", True), ({"FORCE_COLOR": "1"}, "auto", True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        ({"NO_COLOR": "1"}, "always", True), ({"FORCE_COLOR": "1"}, "never", False),
    ],
)  # fmt: skip
@pytest.mark.sample(1)
def test_colors(tesserac: Command, env: dict[str, str], flag: str, colors: bool) -> None:
    clean = {"NO_COLOR": None, "FORCE_COLOR": None, "CLICOLOR_FORCE": None, **env}
    done = tesserac("check", "-", f"--color={flag}", stdin=WRONG, env=clean)
    assert ("\x1b[" in done.err) == colors


BROKEN = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tessera_lang.sema.module_symbols":
            raise ZeroDivisionError("a fault that was planted")
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_fault_of_ours(tesserac: Command, double: Path, tmp_path: Path, command: str) -> None:
    done = tesserac(command, "double.tessera", env=patched(tmp_path, BROKEN))
    assert (done.status, done.out) == (101, "") and "error[T0902]" in done.err
    (report,) = tmp_path.glob("tessera-report-*.txt")
    assert str(report) in done.err
    text = report.read_text()
    assert "a fault that was planted" in text and "version:" in text
    if os.name == "posix":
        assert report.stat().st_mode & 0o077 == 0


def test_a_report_that_cannot_be_written(tesserac: Command, double: Path, tmp_path: Path) -> None:
    env = {**patched(tmp_path, BROKEN), "TESSERA_REPORTS": str(tmp_path / "none" / "here")}
    done = tesserac("check", "double.tessera", env={**env, "TMPDIR": str(tmp_path / "none")})
    assert done.status == 101 and "report was written to" in done.err


@posix
def test_a_reader_that_leaves(tmp_path: Path) -> None:
    (tmp_path / "a.tessera").write_text("for i in range(100000):\n    print(i)\n")
    command = f"{sys.executable} -m tessera_lang.driver.cli run a.tessera --target=cpu | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.stdout == "0\n" and done.stderr == "target: cpu\n"
