"""A real VS Code without a screen: its workbench in a browser, its extension host, our package.

What a user sees on the way of docs/editor-path.md is what the page says.
"""

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

from tessera_lang.driver.session import Session

ROOT = Path(__file__).resolve().parents[2]
VSCODE = Path(os.environ.get("TESSERA_VSCODE", ROOT / "build" / "vscode"))
VSIX = ROOT / "vscode-extension" / "tessera.vsix"
PAGE = ROOT / "docs" / "editor-path.md"
BROWSERS = ("chromium", "google-chrome")


def programs() -> list[str]:
    """The programs of the page, as first written and at the end."""
    found = re.findall(r"```tessera\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return [re.sub(r" +# error: .*", "", program) for program in found]


def run_vscode(folder: Path, script: str) -> dict[str, Any]:
    """What a script of tests/lsp/vscode writes, or a skip."""
    node = shutil.which("node")
    browser = next((found for b in BROWSERS if (found := shutil.which(b)) is not None), None)
    if node is None or browser is None or not (VSCODE / ".installed").exists():
        pytest.skip("there is no VS Code for a browser, or no browser (make test-editors)")
    if not VSIX.exists():
        pytest.skip("the extension is not built (make vsix)")
    server = folder / "bin" / "tessera-lsp"
    server.parent.mkdir()
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tessera_lsp.server.main "$@"\n')
    server.chmod(0o755)
    (folder / "home").mkdir()
    names = {
        "VSCODE": VSCODE, "FOLDER": folder / "work", "HOME_FOLDER": folder / "home", "VSIX": VSIX,
        "SERVER": server, "CHROMIUM": browser, "TESSERA_OUT": folder / "out.json",
    }  # fmt: skip
    done = subprocess.run(
        [node, str(ROOT / "tests" / "lsp" / "vscode" / script)],
        env={**os.environ, **{name: str(value) for name, value in names.items()}},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (folder / "out.json").exists(), done.stderr
    found = json.loads((folder / "out.json").read_text())
    assert "fault" not in found, (found["fault"], done.stderr)
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("vscode")
    (folder / "work").mkdir()
    (folder / "work" / "turned.tessera").write_text(programs()[0], encoding="utf-8")
    return run_vscode(folder, "path.mjs")


def test_the_programs_of_the_page() -> None:
    """One mistake hides the next; the last program has none."""
    first, last = programs()
    session = Session()
    session.set_text("<p>", first)
    assert [d.code for d in session.check("<p>")] == ["T0111"]
    session.set_text("<p>", first.replace("out: f32", "out: mut f32"))
    assert [d.code for d in session.check("<p>")] == ["T0401"]
    session.set_text("<p>", last)
    assert session.check("<p>") == ()


@pytest.mark.slow
def test_mistakes_and_their_fixes(seen: dict[str, Any]) -> None:
    for name, code, place in (
        ("first", "T0111", "[Ln 11, Col 9]"), ("second", "T0401", "[Ln 8, Col 9]"),
        ("third", "P1001", "[Ln 11, Col 21]"), ("more", "T0501", "[Ln 3, Col 11]"),
    ):  # fmt: skip
        assert any(code in row and place in row for row in seen[name]), (name, seen[name])
    assert seen["fixes"][0] == "add `mut`"
    assert seen["signature"] == ["tshared.alloc(shape, dtype)"]
    assert seen["text"] == programs()[1]


@pytest.mark.slow
def test_what_is_known_beside_the_code(seen: dict[str, Any]) -> None:
    """Hints, the lines above the kernel before and after the assembler, and the run."""
    hints = " ".join(seen["hints"])
    for hint in ("buf: f32[32, 33] @shared =", "r: index, c: index =", "x: f32[100, 60] ="):
        assert hint in hints
    before, after = (" ".join(seen[when]) for when in ("before", "after"))
    assert "4096 bytes of shared memory (buf 4096) · 2 groups at once" in before
    assert "4224 bytes of shared memory (buf 4224)" in after
    assert "registers" in after
    assert "62.0" in seen["ran"] and "(exit code 0)" in seen["ran"]


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "instruction"), [("ptx", "ld.shared"), ("sass", "LDS")])
def test_code_in_step_with_the_cursor(seen: dict[str, Any], stage: str, instruction: str) -> None:
    found = seen[stage]
    if found is None:
        pytest.skip("there is no ptxas or no nvdisasm")
    assert found["lines"] >= 3
    assert any(instruction in line for line in found["texts"])
