"""What a source file may be: its bytes, its size, its lines, and that it is read as it is shown.

Owns the limits and their faults. Must not know the grammar or how files are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.source import Anchor, SourceFile, Span

MAX_BYTES = 8 << 20
MAX_LINES = 200_000
MAX_LINE = 200_000

_ORDER = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Characters that have a text shown in another order than it is read."""


def check_size(file: SourceFile) -> Diagnostic | None:
    """Refuses a text that is too long, or has a line that is, or holds a NUL character."""
    anchor = Anchor(file.path)
    start = Span(anchor, 0, 0)
    # A character takes at most four bytes: most files need no encoding to be measured.
    size = len(file.text)
    if size * 4 > MAX_BYTES:
        size = len(file.text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        return _too_large(start, f"this file has {size} bytes; at most {MAX_BYTES} are read")
    if file.line_count > MAX_LINES:
        message = f"this file has {file.line_count} lines; at most {MAX_LINES} are read"
        return _too_large(start, message)
    if len(file.text) > MAX_LINE:
        starts = [*file.starts, len(file.text)]
        for begin, end in pairwise(starts):
            if end - begin > MAX_LINE:
                message = f"this line has {end - begin} characters; at most {MAX_LINE} are read"
                return Diagnostic("T0003", message, Span(anchor, begin, begin))
    nul = file.text.find("\0")
    if nul >= 0:
        message = "this file holds a NUL character, so it is not text"
        return Diagnostic("T0001", message, Span(anchor, nul, nul + 1))
    return None


def reordered(path: str, text: str) -> Iterator[Diagnostic]:
    """Characters, also of comments and strings, by which a reader sees another program."""
    if text.isascii():
        return
    anchor = Anchor(path)
    for found in _ORDER.finditer(text):
        point = ord(found.group())
        yield Diagnostic(
            "T0015", f"U+{point:04X} shows what follows in another order than it is read",
            Span(anchor, found.start(), found.end()),
            helps=(f"delete it; a string may hold it as `\\u{point:04x}`",),
        )  # fmt: skip


def _too_large(span: Span, message: str) -> Diagnostic:
    help_text = "split the file, or keep data in a .npy file and load it"
    return Diagnostic("T0002", message, span, helps=(help_text,))


def decode_source(data: bytes, path: str) -> tuple[SourceFile | None, tuple[Diagnostic, ...]]:
    """The text of a file read as bytes; None with a diagnostic where it is not UTF-8 text."""
    if len(data) > MAX_BYTES:
        message = f"{path} has {len(data)} bytes; at most {MAX_BYTES} are read"
        return None, (_too_large(Span(Anchor(path), 0, 0), message),)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{path} is not UTF-8 text: line {line}, byte {error.start} of the file"
        help_text = "save the file as UTF-8"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            help_text = "the file is UTF-16; save it as UTF-8"
        return None, (Diagnostic("T0001", message, helps=(help_text,)),)
    if "\0" in text:
        message = f"{path} holds a NUL character, so it is not text"
        return None, (Diagnostic("T0001", message),)
    return SourceFile(path, text), ()
