"""The README is what a newcomer types: every command runs as written and prints what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tessera_lang.driver.commands import COMMANDS
from tests.house.places import ROOT, kept_files

README = (ROOT / "README.md").read_text(encoding="utf-8")
SAVED = re.compile(r"`([\w.]+)`:\n\n```(?:tessera|python)\n(.*?)^```", re.S | re.M)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.S | re.M)
PRINTED = re.compile(r"#.*\bprints ([\w.]+\d|[\w.]+\.\w+)")
INSTALLS = ("make", "pip ", ". ")
"""How lines begin that set something up, which takes minutes: a slow test runs them."""
WHOLE_SUITE = ("make test", "make check")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="lines of a shell")


def lines() -> list[str]:
    return [line for block in SHELL.findall(README) for line in block.splitlines()]


def write_programs(folder: Path) -> list[str]:
    """Saves every program under the name that the README gives it."""
    programs = SAVED.findall(README)
    for name, text in programs:
        (folder / name).write_text(text, encoding="utf-8")
    return [name for name, _ in programs]


def ran(line: str, folder: Path, path: str, home: Path) -> str:
    """What a line of the README prints, which must end well."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "VIRTUAL"))}
    env = {**kept, "HOME": str(home), "PATH": f"{path}{os.pathsep}{kept['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line], input="y\n", capture_output=True, text=True, cwd=folder,
        timeout=900, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    wanted = PRINTED.search(line)
    assert wanted is None or wanted[1] in done.stdout, (line, done.stdout)
    if "prints nothing" in line:
        assert not done.stdout + done.stderr
    return done.stdout


def test_commands(tmp_path: Path, home: Path) -> None:
    names = write_programs(tmp_path)
    assert {Path(name).suffix for name in names} == {".tessera", ".py"}
    commands = [line for line in lines() if not line.startswith(INSTALLS)]
    assert len(commands) > 9 and all(any(n in "".join(commands) for n in (name,)) for name in names)
    for line in commands:
        assert line.startswith(("tesserac ", "python ")), line
        ran(line, tmp_path, str(Path(sys.executable).parent), home)


def test_what_is_made_and_installed_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in lines():
        for target in re.findall(r"^make (\w+)", line):
            assert f"\n{target}:" in makefile, line
        for extra in re.findall(r"^pip install '\.\[(\w+)\]'", line):
            assert f"\n{extra} = [" in project, line


def test_every_command_and_page_is_named() -> None:
    assert not [name for name in COMMANDS if f"tesserac {name}" not in README]
    pages = sorted(p.name for p in (ROOT / "docs").glob("*.md") if p.name != "index.md")
    assert not [name for name in pages if f"(docs/{name})" not in README]
    assert "(docs/errors/index.md)" in README


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_from_a_fresh_clone(tmp_path: Path, home: Path) -> None:
    """Every line, in order, in one shell's environment: from `make run` to the uninstallation."""
    clone = tmp_path / "clone"
    for file in kept_files():
        target = clone / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    if not clone.exists():
        pytest.skip("not a checkout")
    write_programs(clone)
    for line in lines():
        if not line.startswith(WHOLE_SUITE):
            ran(line, clone, str(clone / ".venv" / "bin"), home)
    assert not list((clone / ".venv" / "lib").rglob("*tessera_lang*.dist-info"))
