"""Wrong programs end in the right diagnostics and nothing else (B145: triton#10341).

Each ``golden/errors/NAME.tessera`` stands beside ``NAME.err``, what ``check`` says of it in the
short format; ``--update-golden`` writes it anew (read the difference).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera_lang.diagnostics.render import render
from tessera_lang.driver.session import Session

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "errors"
PROGRAMS = sorted(FOLDER.glob("*.tessera"))


def said(file: Path) -> str:
    session = Session()
    session.set_text(file.name, file.read_text(encoding="utf-8"), 1)
    found = session.check(file.name)
    assert found, "a wrong program that nothing is said about"
    return render(found, session.files.known(), format="human", color=False)


def test_there_are_forty() -> None:
    assert len(PROGRAMS) >= 40


@pytest.mark.parametrize("file", PROGRAMS, ids=lambda p: p.stem)
def test_wrong_program(file: Path, request: pytest.FixtureRequest) -> None:
    text = said(file)
    golden = file.with_suffix(".err")
    if request.config.getoption("--update-golden"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
