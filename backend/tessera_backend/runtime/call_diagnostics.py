"""Errors of the runtime: a diagnostic with the kernel's line, as a TesseraError.

Owns how a (file, line, column) of a launch plan becomes a span. Must not know what is
checked: the text of each error stands beside its check.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from tessera_lang.diagnostics.diagnostic import Diagnostic, Label, Severity, TesseraError
from tessera_lang.locks import free_lock
from tessera_lang.source import Anchor, SourceFile, Span

Place = tuple[str, int, int]  # file, line, column; 1-based, line 0 = unknown
NOWHERE: Place = ("", 0, 0)


class TesseraWarning(UserWarning):
    """Advice of the runtime, shown once a process."""

    __module__ = "tessera_lang"


_sources: dict[str, SourceFile | None] = {}
_told: set[str] = set()
_telling = free_lock()


def source_of(path: str) -> SourceFile | None:
    """The text of a file for rendering, or None where it cannot be read any more."""
    if path not in _sources:
        try:
            with open(path, encoding="utf-8") as file:
                _sources[path] = SourceFile(path, file.read(8 << 20))
        except (OSError, UnicodeDecodeError, ValueError):
            _sources[path] = None
    return _sources[path]


def remember_source(path: str, text: str) -> None:
    """Keep the text that a kernel was compiled from, so that errors show that one."""
    _sources[path] = SourceFile(path, text)


def span_of(place: Place, length: int = 1) -> Span | None:
    """The span at a plan's place, within its line, or None where the source is not at hand."""
    path, line, column = place
    source = source_of(path) if path and line > 0 else None
    if source is None:
        return None
    start = source.offset_at(line - 1, column - 1)
    line_end = source.text.find("\n", start)
    most = len(source.text) if line_end < 0 else max(line_end, start + 1)
    return Span(Anchor(path), start, min(start + max(1, length), most))


def diagnostic(
    code: str,
    message: str,
    place: Place = ("", 0, 0),
    length: int = 1,
    label: str = "",
    others: Sequence[tuple[Place, int, str]] = (),
    notes: Sequence[str] = (),
    helps: Sequence[str] = (),
    severity: Severity = "error",
) -> Diagnostic:
    """One diagnostic of the runtime; places without source become notes."""
    span = span_of(place, length)
    labels: list[Label] = []
    extra = list(notes)
    if span is None and place[1] > 0:
        extra.insert(0, f"at {place[0]}:{place[1]}:{place[2]}")
    for where, size, text in others:
        other = span_of(where, size)
        if other is not None:
            labels.append(Label(other, text))
        elif where[1] > 0:
            extra.append(f"{text}: {where[0]}:{where[1]}:{where[2]}")
    return Diagnostic(
        code, message, span, label, severity, tuple(labels), tuple(extra), tuple(helps)
    )


def error(*diagnostics: Diagnostic) -> TesseraError:
    """The exception that Python hosts catch, rendered with its source lines."""
    return TesseraError(diagnostics, rendered(diagnostics))


def rendered(diagnostics: Sequence[Diagnostic]) -> str:
    """What a terminal shows, without colours."""
    from tessera_lang.diagnostics.render import render

    spans = [s for d in diagnostics for s in (d.span, *(x.span for x in d.labels)) if s]
    files = sorted({s.file for s in spans})
    sources = {f: source for f in files if (source := source_of(f)) is not None}
    return render(diagnostics, sources).rstrip()


def _is_ours(file: str) -> bool:
    return "tessera_backend" in file or file == "<tessera launch>"


def tell_once(key: str, d: Diagnostic) -> None:
    """A warning through Python's ``warnings``, once a process and key."""
    if key not in _told:
        tell_text_once(key, rendered((d,)))


def tell_text_once(key: str, text: str) -> None:
    """The same of a warning that was rendered before."""
    with _telling:
        first = key not in _told
        _told.add(key)
    if first:
        tell(text)


def tell(text: str) -> None:
    """A warning through Python's ``warnings``, at the first line outside of this package."""
    level, frame = 2, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, TesseraWarning, stacklevel=level)
