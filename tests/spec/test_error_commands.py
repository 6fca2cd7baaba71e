"""The scripts, commands and settings on the pages of the codes: the wrong one ends in the code of
the page, the right one in none.

Each runs in a folder with ``kernels.tessera`` and ``program.tessera``; a script finds the kernels
in ``m`` and arrays of 100 zeros in ``x``, ``y`` and ``out``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.codes import all_codes
from tessera_lang.driver.cli import run as tesserac

PAGES = Path(__file__).resolve().parents[2] / "docs" / "errors"
BLOCK = re.compile(r"^```(python|sh|toml) (wrong|right)\n(.*?)^```", re.S | re.M)
ON_A_DEVICE = ("T0847",)
NEEDS = {"T0858": "torch"}
"""Packages without which a right program is refused."""
KERNELS = """
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def add(x: f32[n], y: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i] + y[i]

@kernel tile[(128,)]
def clear(x: mut f32[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()): x[i] = 0.0

@kernel tile[(128,)] grid[(1,)]
def tiled(x: mut f32[n], size: int):
    if tile_linear_id() < min(size, n): x[tile_linear_id()] = 1.0
"""
PROGRAM = """
from kernels import add

x = 3
out = op.zeros((x,), f32)
add(op.ones((x,)), op.ones((x,)), out)
print(out)
"""
CODE = re.compile(r"\b(?:T0|P1)\d{3}\b")


def examples(*languages: str) -> list[Any]:
    return [
        pytest.param(page.stem, match[2], match[3], id=f"{page.stem}-{match[2]}",
                     marks=[pytest.mark.gpu] if page.stem in ON_A_DEVICE else [])
        for page in sorted(PAGES.glob("*.md"))
        for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if match[1] in languages
    ]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernels.tessera").write_text(KERNELS, encoding="utf-8")
    (tmp_path / "program.tessera").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("code", "kind", "script"), examples("python"))
def test_script(code: str, kind: str, script: str, folder: Path) -> None:
    if kind == "right" and code in NEEDS:
        pytest.importorskip(NEEDS[code])
    target = "cuda" if code in ON_A_DEVICE else "cpu"
    names = {name: np.zeros(100, np.float32) for name in ("x", "y", "out")}
    given = {"np": np, "tessera": tessera, "m": tessera.compile(KERNELS, target=target), **names}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            exec(script, dict(given))  # a text of ours
            said = " ".join(str(w.message) for w in seen)
        except tessera.TesseraError as error:
            said = " ".join(d.code for d in error.diagnostics)
    assert set(CODE.findall(said)) == ({code} if kind == "wrong" else set())


def ran(line: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What a line of a shell says: a plain command of ours here, any other in a process."""
    words = shlex.split(line)
    if words[0] == "tesserac":
        tesserac(words[1:])
        return "".join(capfd.readouterr())
    command = f'tesserac() {{ "{sys.executable}" -m tessera_lang.driver.cli "$@"; }}\n'
    command += f'python() {{ "{sys.executable}" "$@"; }}\n{line}\n'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60,
                          check=False, env=dict(os.environ))  # fmt: skip
    return done.stdout + done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="lines of a shell")
@pytest.mark.parametrize(("code", "kind", "lines"), examples("sh"))
@pytest.mark.sample(4)
def test_commands(
    code: str, kind: str, lines: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "".join(ran(line, capfd) for line in lines.splitlines())
    assert set(CODE.findall(said)) == ({code} if kind == "wrong" else set()), said


@pytest.mark.parametrize(("code", "kind", "text"), examples("toml"))
def test_settings(
    code: str, kind: str, text: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tessera.toml").write_text(text, encoding="utf-8")
    (folder / "lib").mkdir()
    status = tesserac(["check", "kernels.tessera"])
    said = CODE.findall("".join(capfd.readouterr()))
    assert (status, code in said) == ((1, True) if kind == "wrong" else (0, False))


def test_every_code_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    for code, row in all_codes().items():
        assert tesserac(["explain", code]) == 0
        said = capfd.readouterr().out
        assert code in said and row.slug in said
