"""Where in ``tessera.toml`` a setting stands, or where the text stops to be TOML.

Owns the way from a key or a parser's words to a span. Must not know what keys there are.
"""

from __future__ import annotations

import re

from tessera_lang.record import dataclass
from tessera_lang.source import Anchor, SourceFile, Span

_HEADER = re.compile(r"[ \t]*\[+([^\]\n]*)\]+")
_KEY = re.compile(r"[ \t]*([\w.\-\"' \t]+?)[ \t]*=")
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")

_NAMES = re.compile(r"\(('.*?',?)\)")  # the parser shows keys as tuples of Python


@dataclass(frozen=True, slots=True)
class Text:
    """A file of settings as it is shown."""

    source: SourceFile

    def span(self, lo: int, hi: int) -> Span:
        return Span(Anchor(self.source.path), lo, hi)

    def of_key(self, key: str) -> Span | None:
        """The line that gives ``check.strict`` or a table of that name a value."""
        table, start = "", 0
        for line in self.source.text.splitlines(keepends=True):
            if header := _HEADER.match(line):
                table = f"{_plain(header[1])}."
                if table == f"{key}.":
                    return self._line(start, line)
            elif (found := _KEY.match(line)) and _is(table + _plain(found[1]), key):
                return self._line(start, line)
            start += len(line)
        return None

    def _line(self, start: int, line: str) -> Span:
        inner = line.strip()
        lo = start + line.index(inner)
        return self.span(lo, lo + len(inner))

    def of_fault(self, message: str) -> tuple[str, Span | None]:
        """What a parser of TOML says, without the place, and the place."""
        message = _NAMES.sub(lambda m: f"`{_plain(m[1].replace(',', '.').rstrip('.'))}`", message)
        found = _AT.search(message)
        if found is None:
            return message, None
        lo = len(self.source.text.rstrip())
        if found[1]:
            lo = self.source.starts[int(found[1]) - 1] + int(found[2]) - 1
        lo = min(lo, len(self.source.text))
        return message[: found.start()], self.span(lo, min(lo + 1, len(self.source.text)))


def _plain(key: str) -> str:
    """A key as it is without quotes and blanks."""
    return ".".join(part.strip(" \t\"'") for part in key.split("."))


def _is(found: str, key: str) -> bool:
    """An inline table stands for what is in it."""
    return found == key or key.startswith(f"{found}.")
