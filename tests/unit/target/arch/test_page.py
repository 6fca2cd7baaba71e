"""The page of the architectures is the rows'."""

from __future__ import annotations

from tessera_lang.target.arch import MEMBERS, ROWS
from tessera_lang.target.arch.page import in_page, table
from tests.house.places import ROOT


def test_the_page_has_the_table_of_now() -> None:
    text = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
    assert in_page(text) == text, "run python -m tessera_lang.target.arch.page"


def test_every_row_and_member_is_in_the_table() -> None:
    made = table()
    assert all(f"`{name}`" in made for name in (*ROWS, *MEMBERS))
    assert "| `sm_90a` | H100, H200 | 8.1 | 132 |" in made
