"""``tesserac fmt``: files on disk; the layout itself is tested in ``syntax/test_format.py``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tessera_lang.syntax import format as formatting

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]


def test_in_place(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": "x=1\n", "b/c.tessera": "y  =2", "d.tessera": "z = 1\n"})
    (at / "a.tessera").chmod(0o755)
    before = (at / "d.tessera").stat().st_mtime_ns
    done = tesserac("fmt", ".")
    assert done.returncode == 0 and not done.stdout
    assert done.stderr == f"formatted a.tessera\nformatted {os.path.join('b', 'c.tessera')}\n"
    assert (at / "a.tessera").read_text() == "x = 1\n"
    assert (at / "b" / "c.tessera").read_text() == "y = 2\n"
    assert (at / "a.tessera").stat().st_mode & 0o777 == 0o755
    assert (at / "d.tessera").stat().st_mtime_ns == before
    assert sorted(p.name for p in at.iterdir()) == ["a.tessera", "b", "d.tessera"]
    assert tesserac("fmt", ".").stderr == ""


def test_a_link_stays_a_link(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": "x=1\n"})
    try:
        (at / "b.tessera").symlink_to(at / "a.tessera")
    except OSError:
        pytest.skip("links cannot be made here")
    tesserac("fmt", "b.tessera")
    assert (at / "b.tessera").is_symlink() and (at / "a.tessera").read_text() == "x = 1\n"


def test_check_and_diff(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": "x=1\n", "b.tessera": "x = 1\n"})
    check = tesserac("fmt", "--check", "a.tessera", "b.tessera")
    assert check.returncode == 1 and check.stderr == (
        "would format a.tessera\n1 file would be formatted\n"
    )
    diff = tesserac("fmt", "--diff", "a.tessera", "b.tessera")
    assert diff.returncode == 1 and diff.stdout == (
        "--- a/a.tessera\n+++ b/a.tessera\n@@ -1 +1 @@\n-x=1\n+x = 1\n"
    )
    assert (at / "a.tessera").read_text() == "x=1\n"
    assert tesserac("fmt", "--check", "b.tessera").returncode == 0


def test_standard_input(tesserac: Tesserac) -> None:
    done = tesserac("fmt", "-", stdin="x=1\r\ny=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "x = 1\r\ny = 2\r\n", "")
    assert tesserac("fmt", "-", stdin="\ufeffx=1").stdout == "\ufeffx = 1\n"


def test_what_cannot_be_read_is_left_alone(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": "x = (\n", "b.tessera": "y=1\n"})
    done = tesserac("fmt", "a.tessera", "b.tessera", "gone.tessera")
    assert done.returncode == 1 and "error[T0031]" in done.stderr and "T0810" in done.stderr
    assert (at / "a.tessera").read_text() == "x = (\n"
    assert (at / "b.tessera").read_text() == "y = 1\n"


def test_a_fault_of_the_formatter(
    tesserac: Tesserac, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise formatting.FormatFault("the result has another tree")

    monkeypatch.setattr(formatting, "format_source", fail)
    at = folder({"a.tessera": "x=1\n"})
    done = tesserac("fmt", "a.tessera")
    assert done.returncode == 101 and "error[T0901]: a.tessera was left as it is" in done.stderr
    assert (at / "a.tessera").read_text() == "x=1\n"
