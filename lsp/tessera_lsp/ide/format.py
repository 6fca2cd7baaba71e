"""Formatting a document: the lines that change.

Owns the smallest range of whole lines that differs. Must not know LSP.
"""

from __future__ import annotations

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


def _lines(text: str) -> list[str]:
    """Lines with their ends, as a line feed ends them."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), parts[-1]]
