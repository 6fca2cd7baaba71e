"""Cuts a file into chunks, one for each statement that starts in column 0.

Owns where a chunk begins: a line in column 0 outside brackets and strings. Nothing is
parsed, so that an edit costs no more than the chunk it falls in. Must not know the grammar.
"""

from __future__ import annotations

import re

from tessera_lang.record import dataclass, field

_COLUMN_0 = re.compile(r"(?:\A\ufeff|^(?!\A\ufeff))(?=[^\s#])", re.MULTILINE)
_CONTINUES = re.compile(r"(?:elif|else|except|finally)\b")
_DECORATED = re.compile(r"@|(?:def|class|async)\b")
_CUTS_ANYWHERE = re.compile(
    r"(?:def|import|from|while|with|assert|return)\b|(?:if|for)\b[^\n#]*:[ \t]*(?:#[^\n]*)?\r?\n"
    r"|@[^\n]*\r?\n(?:@|def\b)"
)
_PIECE = re.compile(
    r"#[^\n]*|[fFrR]{0,2}(\"{3}|'{3})|\"(?:[^\"\\\n]|\\[\s\S])*\"?|'(?:[^'\\\n]|\\[\s\S])*'?"
    r"|([(\[{])|([)\]}])|\\[ \t]*\r?\n()"
)


@dataclass(slots=True)
class _State:
    """Where a scan stands: open brackets, the quotes of an open string, a joined line.

    ``unclosed``: it has seen quotes that nothing in the rest of the file closes.
    """

    depth: int = 0
    quote: str = ""
    joined: bool = False
    unclosed: bool = False

    @property
    def neutral(self) -> bool:
        return self.depth == 0 and not self.quote and not self.joined


@dataclass(slots=True)
class SegmentCache:
    """Texts between two lines in column 0 that open and close all they hold."""

    closed: set[str] = field(default_factory=set[str])


def _scan(text: str, start: int, end: int, state: _State) -> None:
    state.joined = state.unclosed = False
    position = start
    while True:
        if state.quote:
            position = _string_end(text, position, end, state.quote)
            if position < 0:
                return
            state.quote = ""
        for match in _PIECE.finditer(text, position, end):
            kind = match.lastindex
            if kind == 2:
                state.depth += 1
            elif kind == 3:
                state.depth = max(0, state.depth - 1)
            elif kind == 4:
                state.joined = match.end() == end
            elif kind == 1:
                if _string_end(text, match.end(), len(text), match[1]) >= 0:
                    state.quote = match[1]
                    position = match.end()
                    break
                # Never closed: what follows in column 0 is kept.
                state.unclosed = True
                return
        else:
            return


def _string_end(text: str, start: int, end: int, quote: str) -> int:
    at = text.find(quote, start, end)
    while at > 0 and text[at - 1] == "\\":
        slashes = at - len(text[start:at].rstrip("\\")) - start
        if slashes % 2 == 0:
            break
        at = text.find(quote, at + 1, end)
    return at + len(quote) if at >= 0 else -1


def split(text: str, cache: SegmentCache) -> list[tuple[int, int]]:
    """The chunks of a text as ranges, in order; blank and comment lines may stand between.

    The text in front of the first line in column 0 is a chunk of its own if it holds more
    than comments. ``cache`` is brought up to date.
    """
    starts = [match.end() for match in _COLUMN_0.finditer(text)]
    chunks: list[tuple[int, int]] = []
    first = starts[0] if starts else len(text)
    if _has_content(text, first):
        chunks.append((1 if text.startswith("\ufeff") else 0, first))
    closed: set[str] = set()
    state = _State()
    begin = first
    decorating = False
    for i, start in enumerate(starts):
        end = starts[i + 1] if i + 1 < len(starts) else len(text)
        if state.neutral:
            segment = text[start:end]
            if segment not in cache.closed:
                _scan(text, start, end, state)
            if state.neutral and not state.unclosed:  # else the rest of the file says so too
                closed.add(segment)
        else:
            _scan(text, start, end, state)
        if end == len(text):
            break
        if start == begin:
            decorating = text[start] == "@"
        if decorating and state.neutral and _DECORATED.match(text, end):
            # The decorators of a function are read with it.
            decorating = text[end] == "@"
            continue
        if state.neutral and not _CONTINUES.match(text, end):
            chunks.append((begin, end))
        elif not state.quote and _CUTS_ANYWHERE.match(text, end):
            chunks.append((begin, end))
            state = _State()
        else:
            continue
        begin = end
    if starts:
        chunks.append((begin, len(text)))
    cache.closed = closed
    return chunks


def _has_content(text: str, end: int) -> bool:
    for line in text[:end].removeprefix("\ufeff").split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            return True
    return False
