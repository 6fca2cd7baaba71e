"""Spans and values of the compiler to the protocol's types, in the negotiated encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lsprotocol import types as lsp

from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.diagnostics.page_lookup import page_file
from tessera_lang.record import dataclass
from tessera_lang.source import SourceFile, Span
from tessera_lsp.ide.tokens import MODIFIERS, TYPES, Token

SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
    "hint": lsp.DiagnosticSeverity.Hint,
}
UNNECESSARY = frozenset({"T0119", "P1007"})  # what is there has no effect
START = lsp.Range(lsp.Position(0, 0), lsp.Position(0, 0))


def path_of(uri: str) -> str:
    """The name of a file in the session: the path of a ``file:`` URI. What is no file on this
    machine (``untitled:``, ``git:``) has its URI in angle brackets."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return f"<{uri}>"
    path = unquote(parts.path)
    if len(path) > 2 and path[0] == "/" and path[2] == ":":  # /C:/... on Windows
        path = path[1:]
    return str(Path(path)) if "\0" not in path else f"<{uri}>"


def uri_of(path: str) -> str:
    return path[1:-1] if path.startswith("<") else Path(path).absolute().as_uri()


def position(file: SourceFile, offset: int, encoding: str) -> lsp.Position:
    line, column = file.position(offset)
    return lsp.Position(line, file.column_in(line, column, encoding))


def span_range(file: SourceFile, span: Span, encoding: str) -> lsp.Range:
    return lsp.Range(position(file, span.lo, encoding), position(file, span.hi, encoding))


@cache
def page_uri(code: str) -> str | None:
    """Where the page of a code lies, for an editor that opens it."""
    path = page_file(code)
    return None if path is None else uri_of(path)


def message_of(d: Diagnostic) -> str:
    """The message with what to do, since not every editor shows related information."""
    lines = [d.message]
    if d.label and d.label not in d.message:
        lines.append(d.label)
    lines += [f"note: {n}" for n in d.notes] + [f"help: {h}" for h in d.helps]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Converter:
    """Makes the protocol's diagnostics of one file. ``uri``: of any path; ``import_of``: the
    place in this file that brings another file in."""

    file: SourceFile
    files: Mapping[str, SourceFile]
    encoding: str
    uri: Callable[[str], str]
    import_of: Callable[[str], Span | None]

    def diagnostic(self, d: Diagnostic) -> lsp.Diagnostic:
        """One diagnostic. A fault in another file stands where this file imports that one,
        one without a place at the first character."""
        notes = [r for r in (self.related(x) for x in d.labels) if r is not None]
        message, span = message_of(d), d.span
        if span is not None and span.file != self.file.path:
            message = f"in {Path(span.file).name}: {message}"
            own = self.related(Label(span, d.label or d.message))
            notes = [own, *notes] if own is not None else notes
            here = (x.span for x in d.labels if x.span.file == self.file.path)
            span = next(here, None) or self.import_of(span.file)
        return lsp.Diagnostic(
            range=START if span is None else span_range(self.file, span, self.encoding),
            message=message,
            severity=SEVERITIES[d.severity],
            code=d.code,
            source="tessera",
            related_information=notes or None,
            code_description=lsp.CodeDescription(page) if (page := page_uri(d.code)) else None,
            tags=[lsp.DiagnosticTag.Unnecessary] if d.code in UNNECESSARY else None,
            data={"message": d.message},
        )

    def related(self, label: Label) -> lsp.DiagnosticRelatedInformation | None:
        path = label.span.file
        file = self.file if path == self.file.path else self.files.get(path)
        if file is None:
            return None
        place = lsp.Location(self.uri(path), span_range(file, label.span, self.encoding))
        return lsp.DiagnosticRelatedInformation(place, label.text)


def encoded(file: SourceFile, tokens: Iterable[Token], encoding: str) -> list[int]:
    """Semantic tokens as the protocol's five numbers each, relative to the one before."""
    kinds = {name: i for i, name in enumerate(TYPES)}
    bits = {name: 1 << i for i, name in enumerate(MODIFIERS)}
    starts, plain = file.starts, file.text.isascii() or encoding == "utf-32"
    data: list[int] = []
    line = last_line = last_column = 0
    for t in tokens:
        while line + 1 < len(starts) and starts[line + 1] <= t.offset:
            line += 1
        if plain:
            column, length = t.offset - starts[line], t.length
        else:
            column = file.column_in(*file.position(t.offset), encoding)
            length = file.column_in(*file.position(t.offset + t.length), encoding) - column
        if length <= 0 or t.offset + t.length > len(file.text):
            continue
        before = last_column if line == last_line else 0
        flags = sum(bits[m] for m in t.modifiers)
        data += (line - last_line, column - before, length, kinds[t.type], flags)
        last_line, last_column = line, column
    return data
