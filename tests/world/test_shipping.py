"""The commands and programs of docs/artifacts.md do what the page says."""

from __future__ import annotations

import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.world.conftest import Command
from tests.world.test_documents import ROOT, blocks

PAGE = (ROOT / "docs" / "artifacts.md").read_text(encoding="utf-8")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="builds for x86-64")
@pytest.mark.slow
def test_the_page(tesserac: Command, tmp_path: Path) -> None:
    (tmp_path / "kernels.tessera").write_text(blocks("tessera", PAGE)[0], encoding="utf-8")
    lines = [line for block in blocks("sh", PAGE) for line in block.splitlines()]
    builds = [shlex.split(line)[1:] for line in lines if line.startswith("tesserac ")]
    for build in builds:
        done = tesserac(*build)
        assert done.status == 0, (build, done.err)
    assert len(builds) == 4
    for name in ("tessera_product_1.native.o", "tessera_scale_1.native.o", "tessera_scale.h",
                 "tessera.h", "manifest.json"):  # fmt: skip
        assert (tmp_path / "built" / name).is_file() and f"`{name}`" in PAGE
    assert (tmp_path / "mine" / "mylib_product.h").is_file()
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    _, use, gpu = blocks("c", PAGE)
    (tmp_path / "use.c").write_text(use)
    (command,) = [line for line in lines if line.startswith("cc ")]
    strict = command.replace("cc ", "cc -Wall -Wextra -Werror ", 1)
    done = subprocess.run(strict, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([str(tmp_path / "use")], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "4 5 10 11\n" and "It prints `4 5 10 11`" in PAGE
    (tmp_path / "gpu.c").write_text(gpu)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Igpu", "-c", "gpu.c", "-o", "gpu.o"]
    done = subprocess.run([compiler, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
