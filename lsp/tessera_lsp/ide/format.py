"""Formatting a document, or lines of it: the lines that change.

Owns the smallest ranges of whole lines that differ. Must not know LSP.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.diagnostics import Edit
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax.format import format_source
from tessera_lsp.ide.document import Document


def formatting(document: Document) -> Edit | None:
    """The edit that formats a file; None where nothing changes or it has syntax errors.

    Raises FormatFault for a fault of the formatter.
    """
    file = document.file
    after = format_source(file)
    if after is None or after == file.text:
        return None
    old, new = _lines(file.text), _lines(after)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start = sum(map(len, old[:head]))
    end = len(file.text) - sum(map(len, old[len(old) - tail :]))
    return Edit(Span(Anchor(document.path), start, end), "".join(new[head : len(new) - tail]))


def formatting_of_lines(document: Document, first: int, last: int) -> list[Edit]:
    """The edits that format lines of a file, from 0, the last one included; none that touches
    another line. Raises FormatFault for a fault of the formatter."""
    file = document.file
    after = format_source(file)
    if after is None or after == file.text:
        return []
    old, new = _lines(file.text), _lines(after)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    found: list[Edit] = []
    for lo, hi, to, end in _pieces(old, new):
        text = "".join(new[to:end])
        if not (first <= lo and hi - 1 <= last and lo <= last and old[lo:hi] != new[to:end]):
            continue
        start = starts[lo]
        if found and found[-1].span.hi == start:  # one edit of lines that follow each other
            before = found.pop()
            start, text = before.span.lo, before.replacement + text
        found.append(Edit(Span(Anchor(document.path), start, starts[hi]), text))
    return found


def _pieces(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """The lines that go with each other, cut as finely as can be: formatting changes blanks and
    punctuation, so that letters and digits tell where both are at the same place."""
    before, after = _places(old), _places(new)
    i = j = 0
    for count in sorted(before.keys() & after.keys()):
        (lo, hi), (to, end) = before[count], after[count]
        yield i, lo, j, to
        yield lo, hi, to, end
        i, j = hi, end
    yield i, len(old), j, len(new)


def _places(lines: list[str]) -> dict[int, tuple[int, int]]:
    """By the letters and digits before it, the first and the last line that begins there."""
    found: dict[int, tuple[int, int]] = {}
    count = 0
    for i, line in enumerate((*lines, "")):
        first, _ = found.get(count, (i, i))
        found[count] = first, i
        count += sum(map(str.isalnum, line))
    return found


def _lines(text: str) -> list[str]:
    """Lines with their ends, as a line feed ends them."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), parts[-1]]
