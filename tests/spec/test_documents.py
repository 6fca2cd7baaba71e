"""The code blocks of the documents are checked: clean, or exactly the codes they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera_lang.driver.session import Session

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```tessera\n(.*?)^```", re.S | re.M)
MARK = re.compile(r"# (?:error|warning): (T\d{4})")


def blocks() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append((f"{page.relative_to(ROOT).as_posix()}:{line}", match.group(1)))
    return found


@pytest.mark.parametrize(
    ("place", "source"),
    blocks(),
    ids=lambda v: v if v.startswith(("README", "docs")) else "block",
)
@pytest.mark.sample(19)
def test_block(place: str, source: str, tmp_path: Path) -> None:
    path = str(tmp_path / "block.tessera")
    session = Session()
    session.set_text(path, source, 1)
    want = sorted(
        (number, code)
        for number, line in enumerate(source.splitlines(), 1)
        for code in MARK.findall(line)
    )
    got: list[tuple[int, str]] = []
    for d in session.check(path):
        assert d.span is not None, d
        got.append((source.count("\n", 0, d.span.lo) + 1, d.code))
    assert sorted(got) == want
