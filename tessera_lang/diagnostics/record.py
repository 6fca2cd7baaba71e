"""Diagnostics for programs: one JSON object a line, and one plain line.

Owns the two stable formats. ``SCHEMA`` grows when a field changes its meaning or goes;
new fields do not change it. Fields of an object:

``schema``; ``code``; ``slug``; ``severity`` (error, warning, note, hint); ``message``;
``certainty`` (proved, estimated); the fields of the primary place (null where no file is
concerned); ``label``;
``labels``: places with ``text``; ``notes``; ``helps``; ``fixes``: ``title``,
``applicability`` (safe, unsafe), ``edits``: places with ``replacement``.

A place is ``file``, 1-based ``line`` and ``column``, ``end_line`` and ``end_column``
(exclusive) in characters, and the columns again in UTF-16 units as ``utf16_column`` and
``utf16_end_column``. Numbers are null where the text of the file is not at hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tessera_lang.diagnostics.codes import slug_of
from tessera_lang.diagnostics.diagnostic import Diagnostic, Fix
from tessera_lang.diagnostics.terminal_text import clean
from tessera_lang.source import SourceFile, Span

SCHEMA = 1

Files = Mapping[str, SourceFile]
_NUMBERS = ("line", "column", "end_line", "end_column", "utf16_column", "utf16_end_column")


def place(span: Span | None, files: Files) -> dict[str, object]:
    """Where a span lies, as the fields of a place."""
    file = files.get(span.file) if span else None
    if span is None or file is None:
        return {"file": span.file if span else None, **dict.fromkeys(_NUMBERS)}
    line, column = file.position(span.lo)
    end_line, end_column = file.position(max(span.lo, span.hi))
    return {
        "file": span.file,
        "line": line + 1,
        "column": column + 1,
        "end_line": end_line + 1,
        "end_column": end_column + 1,
        "utf16_column": file.column_in(line, column, "utf-16") + 1,
        "utf16_end_column": file.column_in(end_line, end_column, "utf-16") + 1,
    }


def _fix(fix: Fix, files: Files) -> dict[str, object]:
    edits = [{**place(e.span, files), "replacement": e.replacement} for e in fix.edits]
    return {"title": fix.title, "applicability": fix.applicability, "edits": edits}


def record(diagnostic: Diagnostic, files: Files) -> dict[str, object]:
    """The JSON object of one diagnostic."""
    return {
        "schema": SCHEMA,
        "code": diagnostic.code,
        "slug": slug_of(diagnostic.code),
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "certainty": diagnostic.certainty,
        **place(diagnostic.span, files),
        "label": diagnostic.label,
        "labels": [{**place(x.span, files), "text": x.text} for x in diagnostic.labels],
        "notes": list(diagnostic.notes),
        "helps": list(diagnostic.helps),
        "fixes": [_fix(fix, files) for fix in diagnostic.fixes],
    }


def json_line(diagnostic: Diagnostic, files: Files) -> str:
    return json.dumps(record(diagnostic, files))


def short_line(diagnostic: Diagnostic, files: Files) -> str:
    """``file:line:column: error[T0304]: message``."""
    head = f"{diagnostic.severity}[{clean(diagnostic.code)}]: {clean(diagnostic.message)}"
    span = diagnostic.span
    if span is None:
        return head
    file = files.get(span.file)
    if file is None:
        return f"{clean(span.file)}: {head}"
    line, column = file.position(span.lo)
    return f"{clean(span.file)}:{line + 1}:{column + 1}: {head}"
