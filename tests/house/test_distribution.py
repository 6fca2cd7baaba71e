"""What is shipped: the contents of the wheel, and that it runs where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house.places import PACKAGES, ROOT, short

PROGRAM = 'print("from the wheel", 6 * 7)\n'


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel, built from the source archive, and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    (source,) = out.glob("*.tar.gz")
    return wheel, source


@pytest.mark.slow
def test_wheel_contents(archives: tuple[Path, Path]) -> None:
    with ZipFile(archives[0]) as wheel:
        names = set(wheel.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == set(PACKAGES)
    for package, root in PACKAGES.items():
        assert f"{package}/py.typed" in names
        kept = {p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
        missing = {p for p in kept if f"{package}/{p.relative_to(root).as_posix()}" not in names}
        assert not {short(p) for p in missing}
    assert "tessera_grammar/tessera.table.json" in names
    assert any(n.startswith("tessera_stdlib/") and n.endswith(".tessera") for n in names)
    pages = {n for n in names if n.startswith("tessera_lang/diagnostics/pages/")}
    on_disk = {p.name for p in (ROOT / "docs" / "errors").glob("*.md")}
    assert {n.rpartition("/")[2] for n in pages} == on_disk
    assert any(n.endswith("/licenses/LICENSE") for n in names)


@pytest.mark.slow
def test_source_contents(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[1]) as source:
        names = {n.partition("/")[2] for n in source.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"} <= names
    assert not {n for n in names if "node_modules/" in n or n.startswith((".venv/", "dist/"))}


def fresh(folder: Path) -> Path:
    """The Python of a new, empty environment."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["wheel", "sdist"])
def test_runs_in_an_empty_environment(
    archives: tuple[Path, Path], which: int, tmp_path: Path
) -> None:
    python = fresh(tmp_path / "env")
    done = run(python, "-m", "pip", "install", "-q", archives[which], cwd=tmp_path)
    if done.returncode and "NewConnectionError" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    tesserac = python.with_name("tesserac" + python.suffix)
    done = run(tesserac, "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "hello.tessera").write_text(PROGRAM, encoding="utf-8")
    done = run(tesserac, "run", "hello.tessera", "--target", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "from the wheel 42" in done.stdout
    done = run(tesserac, "explain", "T0801", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "T0801" in done.stdout
    done = run(python, "-m", "pip", "uninstall", "-q", "-y", "tessera-lang", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    left = [p for p in (tmp_path / "env").rglob("tessera*") if p.is_file()]
    assert not left
