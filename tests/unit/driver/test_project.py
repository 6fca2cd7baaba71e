"""``tessera.toml``: which file counts, what it sets, what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.options import from_environment
from tessera_lang.driver.project import project

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]

LIBRARY = "def twice(x):\n    return x * 2\n"
PROGRAM = "from helper import twice\nprint(twice(21))\n"
GUARDED = """\
@kernel tile[(32,)] grid[(1,)]
def k(x: f32[n], out: mut f32[m]):
    i = tile_linear_id()
    out[i] = x[i]
"""


def test_folders_of_imports_stand_by_the_file(
    folder: Folder, tesserac: Tesserac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder({"tessera.toml": 'path = ["lib"]\n', "lib/helper.tessera": LIBRARY,
            "inner/main.tessera": PROGRAM})  # fmt: skip
    assert tesserac("run", "--target", "cpu", "inner/main.tessera").stdout == "42\n"
    monkeypatch.chdir(tmp_path / "inner")  # found from below, whatever the working folder
    assert project() == project() and from_environment().path == (str(tmp_path / "lib"),)


def test_the_line_and_the_environment_stand_above(
    folder: Folder, tesserac: Tesserac, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder({"tessera.toml": 'target = "nowhere"\n'.replace("nowhere", "cuda"),
            "main.tessera": "print(1)\n"})  # fmt: skip
    assert tesserac("run", "--target", "cpu", "main.tessera").returncode == 0
    monkeypatch.chdir(tmp_path)
    assert from_environment().target == "cuda"
    monkeypatch.setenv("TESSERA_TARGET", "cpu")
    assert from_environment().target == "cpu"
    assert from_environment({}).target == "auto"


def test_checks_are_switched_on(folder: Folder, tesserac: Tesserac) -> None:
    folder({"tessera.toml": "[check]\nexplain-guards = true\n", "k.tessera": GUARDED})
    assert "P1004" in tesserac("check", "k.tessera").stderr


@pytest.mark.parametrize(("text", "message"), [
    ("path = 3\n", "`path` is a list of folders"),
    ('path = ["../lib"]\n', "outside of the project's folder"),
    ('path = ["/"]\n', "outside of the project's folder"),
    ('path = ["no"]\n', "which is no folder"),
    ("optimize = 2\n", "`optimize` is `0` or `3`"),
    ("optimize = true\n", "`optimize` is `0` or `3`"),
    ('bounds = "on"\n', "`bounds` is `guard` or `off`"),
    ('traget = "cpu"\n', "has no setting `traget`"),
    ("[check]\nstrickt = true\n", "did you mean `check.strict`?"),
    ("[check]\nstrict = 1\n", "`check.strict` is `true` or `false`"),
    ("check = 1\n", "`check` is a table"),
    ("arch = 90\n", "`arch` is a string"),
    ("target = \n", "is not TOML"),
    ("a" * 10 + "=" + "[" * 3000 + "\n", "tessera.toml is"),
])  # fmt: skip
def test_what_is_wrong_is_said(
    folder: Folder, tesserac: Tesserac, tmp_path: Path, text: str, message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder({"tessera.toml": text, "main.tessera": "print(1)\n"})
    done = tesserac("run", "--target", "cpu", "main.tessera")
    assert done.returncode == 1 and "T0820" in done.stderr and message in done.stderr
    assert tesserac("run", "--help").returncode == 0
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TesseraError):
        from_environment()


@pytest.mark.parametrize(("text", "place", "line"), [
    ('target = "cpu"\n\n[check]\nstrict = 1\n', "4:1", "strict = 1"),
    ('[check]\nlints = true\n  explain-guard = true # x\n', "3:3", "explain-guard = true # x"),
    ('"check".strickt = true\n', "1:1", '"check".strickt = true'),
    ("check = {strict = 2}\n", "1:1", "check = {strict = 2}"),
    ('optimize = 3\r\ntraget = "cpu"\r\n', "2:1", 'traget = "cpu"'),
    ("optimize = 3\r\ntarget = \r\n", "2:10", "target ="),
    ("path = [1,\n", "1:11", "path = [1,"),
    ("\n[build]\nx = 1\n", "2:1", "[build]"),
    ("[check]\n[check]\n", "2:7", "cannot declare `check` twice"),
    ("check = 1", "1:1", "check = 1"),
])  # fmt: skip
def test_the_line_is_shown(
    folder: Folder, tesserac: Tesserac, text: str, place: str, line: str
) -> None:
    folder({"tessera.toml": text, "main.tessera": "print(1)\n"})
    done = tesserac("check", "main.tessera")
    assert done.returncode == 1 and f"--> tessera.toml:{place}\n" in done.stderr
    assert line in done.stderr


def test_a_mark_of_the_byte_order_and_other_encodings(folder: Folder, tesserac: Tesserac) -> None:
    where = folder({"tessera.toml": "\ufefftarget = 'cpu'\n", "main.tessera": "print(1)\n"})
    assert tesserac("run", "main.tessera").returncode == 0
    (where / "tessera.toml").write_bytes("target = 'cpu'\n".encode("utf-16"))
    done = tesserac("run", "main.tessera")
    assert done.returncode == 1 and "no UTF-8" in done.stderr and "T0820" in done.stderr
