"""What a terminal may be given: text without control, of a known width.

Owns escaping and widths. Must not know diagnostics. Control characters are dropped, tabs
become four blanks, and characters that would hide or reorder text (bidirectional controls,
zero-width ones, lone surrogates) are shown by number.
"""

from __future__ import annotations

from unicodedata import category, combining, east_asian_width

from tessera_lang.record import dataclass

TAB = "    "
_JOINERS = "\u200d\ufe0e\ufe0f"


def shown(character: str) -> str:
    """How one character is written to a terminal."""
    if " " <= character <= "~":
        return character
    if character == "\t":
        return TAB
    kind = category(character)
    if kind == "Cc":
        return ""
    if kind in ("Cf", "Cs", "Zl", "Zp") and character not in _JOINERS:
        return f"\\u{{{ord(character):x}}}"
    return character


def width(text: str) -> int:
    """Columns that shown text takes."""
    return sum(_width(c) for c in text)


def _width(character: str) -> int:
    if character < "\u0300":
        return 1
    if combining(character) or character in _JOINERS or category(character) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def clean(text: str) -> str:
    """One line of text for a terminal: line breaks become blanks."""
    return "".join(shown(" " if c in "\r\n" else c) for c in text)


def clean_lines(text: str) -> list[str]:
    """Text of several lines, each cleaned; there is at least one."""
    return ["".join(map(shown, line)) for line in text.replace("\r\n", "\n").split("\n")]


@dataclass(frozen=True, slots=True)
class Shown:
    """A source line as it is printed, and where its characters went.

    Lines longer than ``LIMIT`` are cut to a window; ``columns`` maps a character column of
    the source to a column of ``text``.
    """

    text: str
    start: int
    offsets: tuple[int, ...]

    def column(self, column: int) -> int:
        at = max(0, min(column - self.start, len(self.offsets) - 1))
        return self.offsets[at]


LIMIT = 160
_LEAD = 40


def shown_line(text: str, focus: int) -> Shown:
    """A source line without its break; ``focus`` is a column that must stay visible."""
    start, end = 0, len(text)
    if end > LIMIT:
        start = max(0, min(focus - _LEAD, end - LIMIT))
        end = min(end, start + LIMIT)
    parts = ["..."] if start else []
    at = 3 if start else 0
    offsets: list[int] = []
    for character in text[start:end]:
        piece = shown(character)
        offsets.append(at)
        parts.append(piece)
        at += width(piece)
    offsets.append(at)
    if end < len(text):
        parts.append("...")
    return Shown("".join(parts).rstrip(), start, tuple(offsets))
