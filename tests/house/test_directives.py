"""No directive is read by nobody: a pass honours it, and the language page names it."""

from __future__ import annotations

import re

import pytest
from tessera_grammar.directives import DIRECTIVES, attributes

from tests.house.places import ROOT, source_files

PASSES = ("opt/schedule", "lower/schedule_to_tile", "lower/ast_to_schedule")
NAMES = [name for name, _ in attributes()]


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_reads_its_attribute(name: str) -> None:
    read = re.compile(rf"""(attributes\.get\(|attributes\[|_?said\w*\([^)]*)"{name}"[\]),]""")
    files = [p for p in source_files() if any(folder in p.as_posix() for folder in PASSES)]
    assert [p.name for p in files if read.search(p.read_text(encoding="utf-8"))]


def test_the_language_page_names_them() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert not [n for n in DIRECTIVES if not re.search(rf"\b{n}\(", text)]


def test_what_a_row_says() -> None:
    for name, one in DIRECTIVES.items():
        for p in one.parameters:
            assert (p.kind == "int") == bool(p.allowed), name
            assert bool(p.wanted) or not p.allowed, name
            assert (p.kind == "ints") == bool(p.example), name
            assert p is one.parameters[0] or p.attribute, name
