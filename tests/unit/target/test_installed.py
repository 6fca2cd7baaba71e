"""What is installed, as ``importlib.metadata`` says it."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tessera_lang.target.backend import backend_named, backend_names
from tessera_lang.target.installed import entry_points, version_of


@pytest.mark.parametrize("group", ["console_scripts", "tessera.backends", "tessera.runtime", "-"])
def test_entry_points_agree(group: str) -> None:
    theirs = {(e.name, e.value) for e in metadata.entry_points(group=group)}
    assert {tuple(e) for e in entry_points(group)} == theirs


@pytest.mark.parametrize("name", ["llvmlite", "numpy", "ml_dtypes", "cuda-python", "no-such-thing"])
def test_versions_agree(name: str) -> None:
    try:
        theirs = metadata.version(name)
    except metadata.PackageNotFoundError:
        theirs = ""
    assert version_of(name) == theirs


def distribution(folder: Path, name: str, entries: str) -> None:
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(entries)


def test_a_backend_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "# a note\n[other]\nx = y:z\n\n[tessera.backends]\nmine = mine_backend : BACKEND\n"
    distribution(tmp_path, "mine_backend", entries)
    (tmp_path / "mine_backend.py").write_text("class _B:\n    name = 'mine'\n\nBACKEND = _B()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert {"cpu", "cuda", "mine"} <= set(backend_names())
    assert backend_named("mine").name == "mine"
    assert version_of("Mine.Backend") == "1.5"
    assert not [e for e in entry_points("other") if e.name == "mine"]


def test_the_first_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, value in (("second", "b"), ("first", "a")):
        distribution(tmp_path / place, "twice", f"[tessera.test]\nx = {value}\n")
        monkeypatch.syspath_prepend(tmp_path / place)
    assert [e.value for e in entry_points("tessera.test")] == ["a"]


def test_something_else_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a zip there, importlib.metadata answers."""
    archive = tmp_path / "some.zip"
    archive.write_bytes(b"PK\x05\x06" + bytes(18))
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    assert {"cpu", "cuda"} <= set(backend_names())
    assert version_of("numpy") == metadata.version("numpy")
    assert version_of("no-such-thing") == ""
