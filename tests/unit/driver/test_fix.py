"""``tesserac fix``: what is applied, and what is taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tessera_lang.diagnostics import Diagnostic, Edit, Fix
from tessera_lang.driver.fixes import apply_fixes
from tessera_lang.driver.session import Session
from tessera_lang.source import Anchor, Span

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]

BROKEN = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], factor: f32, out: f32[n]):
    i = grid_tile_linear_id()
    if i < n
        out[i] = x[i] * factr


@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def copy(x: f32[n], out: f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i]
"""
SAFE = BROKEN.replace("out: f32", "out: mut f32").replace("i < n\n", "i < n:\n")
ALL = SAFE.replace("factr", "factor")


def test_safe_fixes_in_place(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": BROKEN}) / "a.tessera"
    at.chmod(0o640)
    done = tesserac("fix", "a.tessera")
    assert done.returncode == 1 and "a.tessera: applied 3 fixes" in done.stderr
    assert at.read_text() == SAFE and at.stat().st_mode & 0o777 == 0o640
    assert "error[T0101]: `factr` is not defined" in done.stderr and "1 error" in done.stderr
    again = tesserac("fix", "a.tessera")
    assert "applied" not in again.stderr and at.read_text() == SAFE


def test_unsafe_fixes(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": BROKEN}) / "a.tessera"
    done = tesserac("fix", "--unsafe", ".")
    assert done.returncode == 0 and at.read_text() == ALL
    assert "4 fixes" in done.stderr


def test_a_difference_writes_nothing(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": BROKEN}) / "a.tessera"
    done = tesserac("fix", "--diff", "a.tessera")
    assert at.read_text() == BROKEN and "would apply 3 fixes" in done.stderr
    assert "+++ b/a.tessera" in done.stdout and "+    if i < n:\n" in done.stdout


def test_standard_input(tesserac: Tesserac) -> None:
    assert tesserac("fix", "-", "--unsafe", stdin=BROKEN).stdout == ALL


def test_line_ends_stay(tesserac: Tesserac, folder: Folder) -> None:
    at = folder({"a.tessera": ""}) / "a.tessera"
    at.write_bytes(BROKEN.replace("\n", "\r\n").encode())
    tesserac("fix", "--unsafe", "a.tessera")
    assert at.read_bytes() == ALL.replace("\n", "\r\n").encode()


def test_a_missing_file(tesserac: Tesserac) -> None:
    done = tesserac("fix", "gone.tessera")
    assert done.returncode == 1 and "T0810" in done.stderr


class Proposing(Session):
    """Proposes fixes for words of a text: ``word`` becomes another."""

    def __init__(self, text: str, rules: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(overlay={"a": text})
        self.rules = rules
        self.checks = 0

    def check(self, path: str, *_: Any, **__: Any) -> tuple[Diagnostic, ...]:
        self.checks += 1
        text = self.source(path).text
        found: list[Diagnostic] = []
        for word, replacements in self.rules.items():
            at = text.find(word)
            if at >= 0:
                span = Span(Anchor("a"), at, at + len(word))
                fixes = tuple(Fix(f"write {r}", (Edit(span, r),)) for r in replacements)
                found.append(Diagnostic("T0101", f"`{word}`", span, fixes=fixes))
        return tuple(found)


@pytest.mark.parametrize(
    ("text", "rules", "after"),
    [
        ("aa bb", {"aa": ("cc",), "bb": ("dd",)}, "cc dd"),
        ("aa bb", {"aa": ("zz",), "bb": ("dd",), "zz": ()}, "aa dd"),  # brings a new error
        ("aa bb", {"aa": ("aa!",), "bb": ("dd",)}, "aa dd"),  # does not mend
        ("aa", {"aa": ("zz", "cc"), "zz": ()}, "cc"),  # the second one does
        ("aa bb", {"aa bb": ("cc",), "bb": ("dd",)}, "cc"),  # one place, one fix
    ],
)
def test_what_does_not_help_is_taken_back(
    text: str, rules: Mapping[str, tuple[str, ...]], after: str
) -> None:
    assert apply_fixes(Proposing(text, rules), "a").text == after


def test_fixes_that_feed_each_other_end() -> None:
    rules = {f"w{i}.": (f"w{i + 1}.",) for i in range(40)}
    rules["w3."] = ("w4.",)
    session = Proposing("w0.", rules)
    assert apply_fixes(session, "a").text == "w0."  # each brings the next one's error
    assert session.checks < 100
