"""Colours of the terminal by hand.

Owns the codes of the styles. Whether there is colour at all is the caller's choice.
"""

from __future__ import annotations

from typing import Literal

Style = Literal["error", "warning", "note", "hint", "frame", "bold", "added", "removed", ""]

_CODES: dict[str, str] = {
    "error": "1;31", "warning": "1;33", "note": "1;36", "hint": "1;32", "frame": "1;34",
    "bold": "1", "added": "32", "removed": "31",
}  # fmt: skip


def paint(text: str, style: Style, color: bool) -> str:
    """``text`` in a style, or as it is."""
    if not color or not style or not text:
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
