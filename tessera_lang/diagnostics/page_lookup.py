"""Finds the page that explains a code.

Owns where pages lie: beside this file in an installed package, in ``docs/errors`` of a
checkout. Must not know how a page is shown.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def page_file(code: str) -> str | None:
    """The path of a code's page, or None where there is none."""
    if not code.isalnum():
        return None
    for folder in (_HERE / "pages", _HERE.parent.parent / "docs" / "errors"):
        path = folder / f"{code.upper()}.md"
        if path.is_file():
            return str(path)
    return None


def page_of(code: str) -> str | None:
    """The Markdown text of a code's page, or None where there is none."""
    path = page_file(code)
    return None if path is None else Path(path).read_text(encoding="utf-8")
