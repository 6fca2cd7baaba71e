"""Lines of the program in IR, PTX and SASS: of the right place; code is the same without them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tessera_backend.nvptx.toolchain.nvidia_tools import find_tool
from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

Tesserac = Callable[..., Any]
LANES = """\
import std.reduce as r


def half(v):
    return v * 0.5


@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = half(x[i]) + 1.0
"""
TILES = """\
@op.kernel
def product(a: bf16[512, 256], b: bf16[256, 384]):
    return op.relu(a @ b)


@op.kernel
def normed(x: f32[64, 4096]):
    return x / op.sum(x, axis=1, keepdims=True)
"""
MARKS = r"^\s*\.(?:loc|file)\s.*\n|^\$L__(?:tmp|func_)\w+:\n"
LOCATION = re.compile(r"^\s*\.loc\s+(\d+) (\d+) (\d+)$", re.M)


def emitted(tesserac: Tesserac, path: Path, stage: str, *more: str) -> str:
    done = tesserac("emit", str(path), f"--stage={stage}", "--arch=sm_90", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["lanes", "tiles", "ünï cödé"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.tessera"
    path.write_text(TILES if request.param == "tiles" else LANES, encoding="utf-8")
    return path


def test_ptx_is_the_same_without_its_lines(tesserac: Tesserac, program: Path) -> None:
    with_lines = emitted(tesserac, program, "ptx", "--lines")
    plain = re.sub(MARKS, "", with_lines, flags=re.M)
    other = re.sub(MARKS, "", emitted(tesserac, program, "ptx"), flags=re.M)
    assert plain.split() == other.split()


def test_lines_of_ptx(tesserac: Tesserac, program: Path, tmp_path: Path) -> None:
    text = emitted(tesserac, program, "ptx", "--lines")
    files = dict(re.findall(r'\.file\s+(\d+) "([^"]*)"', text))
    own = [int(line) for file, line, _ in LOCATION.findall(text)
           if files[file].endswith(".tessera") and "stdlib" not in files[file]]  # fmt: skip
    lines = {n for n in own if n}
    last = len(program.read_text(encoding="utf-8").splitlines())
    assert max(lines) <= last
    wanted = {2, 3, 8} if program.stem == "tiles" else {10, 11, 12}
    assert lines & wanted and (program.stem == "tiles" or {5, 12} <= lines)
    tool = find_ptxas()
    if tool is None:
        pytest.skip("there is no ptxas")
    (tmp_path / "k.ptx").write_text(text, encoding="utf-8")
    done = subprocess.run([tool.path, "-arch=sm_90a" if "sm_90a" in text else "-arch=sm_90",
                           "-lineinfo", "k.ptx", "-o", "k.cubin"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_lines_of_sass(tesserac: Tesserac, program: Path) -> None:
    """Those of its PTX that code is left of; the code is the same without them."""
    if find_ptxas() is None or find_tool("nvdisasm") is None:
        pytest.skip("there is no ptxas or no nvdisasm")
    text = emitted(tesserac, program, "sass", "--lines")
    mark = re.compile(r'^\s*//## File "(.*)", line (\d+)\n', re.M)
    own = {int(line) for file, line in mark.findall(text) if file == str(program)}
    assert {3, 8} & own if program.stem == "tiles" else {5, 10, 12} <= own
    assert max(own) <= len(program.read_text(encoding="utf-8").splitlines())
    assert mark.sub("", text).split() == emitted(tesserac, program, "sass").split()


@pytest.mark.parametrize("stage", ["tile", "schedule"])
@pytest.mark.slow
def test_lines_of_ir(tesserac: Tesserac, stage: str, tmp_path: Path) -> None:
    path = tmp_path / "tiles.tessera"
    path.write_text(TILES)
    text = emitted(tesserac, path, stage, "--lines")
    assert {int(n) for n in re.findall(r'loc\(".*?":(\d+):\d+\)', text)} >= {3, 8}
    assert "loc(" not in emitted(tesserac, path, stage)
