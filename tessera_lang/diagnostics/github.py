"""Diagnostics as the workflow commands by which GitHub marks lines of a change.

Owns the escapes. Must not know where the text goes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.diagnostics.codes import slug_of
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.diagnostics.terminal_text import clean
from tessera_lang.source import SourceFile

_LEVELS = {"error": "error", "warning": "warning", "note": "notice", "hint": "notice"}


def github_line(diagnostic: Diagnostic, files: Mapping[str, SourceFile]) -> str:
    """``::error file=a.tessera,line=4,col=18,...::message``, on one line."""
    properties: dict[str, object] = {}
    span = diagnostic.span
    if span is not None:
        properties["file"] = span.file.replace("\\", "/")
        file = files.get(span.file)
        if file is not None:
            line, column = file.position(span.lo)
            end_line, end_column = file.position(max(span.lo, span.hi))
            properties |= {"line": line + 1, "endLine": end_line + 1, "col": column + 1}
            if end_line == line:
                properties["endColumn"] = end_column + 1
    properties["title"] = f"{diagnostic.code} {slug_of(diagnostic.code)}".rstrip()
    head = ",".join(f"{k}={_property(clean(str(v)))}" for k, v in properties.items())
    lines = [diagnostic.message]
    lines += [f"note: {n}" for n in diagnostic.notes] + [f"help: {h}" for h in diagnostic.helps]
    text = "\n".join(clean(part) for line in lines for part in line.split("\n"))
    return f"::{_LEVELS[diagnostic.severity]} {head}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
