"""The texts of open files as the editor has them.

The protocol library counts lines as Python does (a form feed or U+2028 ends one), the protocol
does not; so edits are applied here, on the compiler's line index.
"""

from __future__ import annotations

from collections.abc import Iterable

from lsprotocol import types as lsp

from tessera_lang.source import SourceFile


def applied(
    file: SourceFile,
    changes: Iterable[lsp.TextDocumentContentChangeEvent],
    version: int,
    encoding: str,
) -> SourceFile:
    """The file after edits, each of which stands on the text that the one before it left."""
    for change in changes:
        if isinstance(change, lsp.TextDocumentContentChangePartial):
            start, end = change.range.start, change.range.end
            lo = file.offset_at(start.line, start.character, encoding)
            hi = max(lo, file.offset_at(end.line, end.character, encoding))
            text = file.text[:lo] + change.text + file.text[hi:]
        else:
            text = change.text
        file = SourceFile(file.path, text, version)
    return SourceFile(file.path, file.text, version)
