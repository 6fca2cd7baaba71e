"""Source files: text, lines, and columns in the encodings that the edges speak.

Owns the line index. Must not know diagnostics, syntax or how a file is found.
"""

from __future__ import annotations

from bisect import bisect_right

from tessera_lang.record import dataclass, field

_BOM = "\ufeff"


def _line_starts(text: str) -> list[int]:
    starts = [0]
    i, n = 0, len(text)
    while i < n:
        c = text[i]
        if c == "\n" or (c == "\r" and not text.startswith("\n", i + 1)):
            starts.append(i + 1)
        i += 1
    return starts


@dataclass(slots=True, eq=False)
class SourceFile:
    """One version of one file.

    ``path`` is the name shown in diagnostics and used as a key. LF, CRLF and a lone CR
    end a line; a byte-order mark is one character of the first line with no width.
    """

    path: str
    text: str
    version: int = 0
    _starts: list[int] = field(default_factory=list[int])

    @property
    def starts(self) -> list[int]:
        """Offsets at which lines begin."""
        if not self._starts:
            if "\r" in self.text:
                self._starts = _line_starts(self.text)
            else:
                starts, at = [0], self.text.find("\n")
                while at >= 0:
                    starts.append(at + 1)
                    at = self.text.find("\n", at + 1)
                self._starts = starts
        return self._starts

    @property
    def line_count(self) -> int:
        return len(self.starts)

    def line_of(self, offset: int) -> int:
        """0-based line that holds ``offset``."""
        return bisect_right(self.starts, max(0, min(offset, len(self.text)))) - 1

    def line_text(self, line: int) -> str:
        """Text of a 0-based line without its line break (and without a BOM)."""
        starts = self.starts
        end = starts[line + 1] if line + 1 < len(starts) else len(self.text)
        text = self.text[starts[line] : end].rstrip("\r\n")
        return text.removeprefix(_BOM) if line == 0 else text

    def position(self, offset: int) -> tuple[int, int]:
        """0-based line and 0-based column in characters."""
        line = self.line_of(offset)
        column = max(0, min(offset, len(self.text))) - self.starts[line]
        if column > 0 and self.text.startswith("\r\n", self.starts[line] + column - 1):
            column -= 1  # inside the line break
        if line == 0 and self.text.startswith(_BOM) and column > 0:
            column -= 1
        return line, column

    def column_in(self, line: int, column: int, encoding: str) -> int:
        """A character column of a line in units of ``utf-8``, ``utf-16`` or ``utf-32``."""
        head = self.line_text(line)[:column]
        if encoding == "utf-8":
            return len(head.encode("utf-8", "surrogatepass"))
        if encoding == "utf-16":
            return len(head) + sum(1 for c in head if ord(c) > 0xFFFF)
        return len(head)

    def offset_at(self, line: int, column: int, encoding: str = "utf-32") -> int:
        """Offset of a 0-based line and column given in ``encoding``; clamped to the text."""
        if line < 0:
            return 0
        if line >= len(self.starts):
            return len(self.text)
        text = self.line_text(line)
        base = self.starts[line] + (1 if line == 0 and self.text.startswith(_BOM) else 0)
        if encoding == "utf-32":
            return base + max(0, min(column, len(text)))
        units = 0
        for i, c in enumerate(text):
            if units >= column:
                return base + i
            if encoding == "utf-8":
                units += len(c.encode("utf-8", "surrogatepass"))
            else:
                units += 2 if ord(c) > 0xFFFF else 1
        return base + len(text)
