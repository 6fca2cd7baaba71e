"""Renders diagnostics: what is shown, in which order and in which format.

Owns sorting, duplicates and limits. Must not know where the text goes, nor whether that
place has colours: the caller says (and honours NO_COLOR).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tessera_lang.diagnostics.diagnostic import Diagnostic, Severity
from tessera_lang.source import SourceFile

Format = Literal["human", "short", "json", "sarif", "github"]

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2, "hint": 3}


def render(
    diagnostics: Iterable[Diagnostic],
    files: Mapping[str, SourceFile],
    format: Format = "human",
    color: bool = False,
    limit: int = 20,
) -> str:
    """The text of diagnostics, sorted and without duplicates; ends in a line break.

    Empty where there is none (``sarif`` is a document all the same). ``limit`` (0: none) holds
    for ``human`` only, whose last line then says how many more there are: the other formats are
    read by programs.
    """
    items = in_order(diagnostics)
    if format == "json":
        from tessera_lang.diagnostics.record import json_line

        return "".join(f"{json_line(d, files)}\n" for d in items)
    if format == "sarif":
        from tessera_lang.diagnostics.sarif import sarif

        return sarif(items, files)
    if format == "github":
        from tessera_lang.diagnostics.github import github_line

        return "".join(f"{github_line(d, files)}\n" for d in items)
    if format == "short":
        from tessera_lang.diagnostics.record import short_line

        return "".join(f"{short_line(d, files)}\n" for d in items)
    if not items:
        return ""
    from tessera_lang.diagnostics.human import human

    shown = _first(items, limit)
    blocks = [human(d, files, color) for d in shown]
    if len(items) > len(shown):
        more = summary(d for d in items if not any(d is s for s in shown))
        blocks.append(f"{more} more not shown")
    return "".join(f"{block}\n\n" for block in blocks)[:-1]


def _first(items: list[Diagnostic], limit: int) -> list[Diagnostic]:
    """At most ``limit``: errors before anything else, then in order of position again."""
    if limit <= 0 or len(items) <= limit:
        return items
    chosen = sorted(range(len(items)), key=lambda i: (_RANK[items[i].severity], i))[:limit]
    return [items[i] for i in sorted(chosen)]


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """By file and position, those without a place first; equal ones once."""
    unique: dict[tuple[object, ...], Diagnostic] = {}
    for d in diagnostics:
        unique.setdefault((*_position(d), _RANK[d.severity], d.code, d.message), d)
    return sorted(unique.values(), key=lambda d: (*_position(d), _RANK[d.severity], d.code))


def _position(diagnostic: Diagnostic) -> tuple[str, int, int]:
    span = diagnostic.span
    return ("", -1, -1) if span is None else (span.file, span.lo, span.hi)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """``2 errors, 1 warning``; empty for none."""
    counts = dict.fromkeys(_RANK, 0)
    for d in diagnostics:
        counts[d.severity] += 1
    parts = [f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in counts.items() if n]
    return ", ".join(parts)
