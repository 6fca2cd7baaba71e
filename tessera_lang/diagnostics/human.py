"""Diagnostics for people: header, excerpts, notes, helps and what a fix would change.

Owns the layout of one diagnostic. Must not know order, limits or other formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tessera_lang.diagnostics.snippet import Excerpt, Mark, mark_of
from tessera_lang.diagnostics.style import Style, paint
from tessera_lang.diagnostics.terminal_text import clean, clean_lines, shown_line
from tessera_lang.source import SourceFile

Files = Mapping[str, SourceFile]
_MAX_CHANGED = 8  # lines of a fix that are shown


def human(diagnostic: Diagnostic, files: Files, color: bool) -> str:
    """One diagnostic; ends without a line break."""
    style: Style = diagnostic.severity
    head = paint(f"{diagnostic.severity}[{clean(diagnostic.code)}]", style, color)
    lines = [f"{head}{paint(': ' + clean(diagnostic.message), 'bold', color)}"]
    marks = _marks(diagnostic, files)
    gutter = _gutter(diagnostic, files, marks)
    for i, (path, of_file) in enumerate(marks.items()):
        lines += _excerpt(path, of_file, files.get(path), i == 0, gutter, style, color)
    tails = [("note", text) for text in diagnostic.notes]
    if diagnostic.certainty == "estimated":
        tails.append(("note", "this is an estimate; it is not proved"))
    tails += [("help", text) for text in diagnostic.helps]
    if tails and marks:
        lines.append(paint(f"{'':>{gutter}} |", "frame", color))
    for kind, text in tails:
        lines += _tail(kind, text, gutter, color)
    for fix in diagnostic.fixes:
        lines += _fix(fix, files, diagnostic, gutter, color)
    return "\n".join(lines)


def _marks(diagnostic: Diagnostic, files: Files) -> dict[str, list[Mark]]:
    """Marks by file, that of the primary place first."""
    out: dict[str, list[Mark]] = {}
    places = [] if diagnostic.span is None else [(diagnostic.span, diagnostic.label, True)]
    places += [(label.span, label.text, False) for label in diagnostic.labels]
    for span, text, primary in places:
        marks = out.setdefault(span.file, [])
        file = files.get(span.file)
        if file is not None:
            marks.append(mark_of(file, span, text, primary))
    return out


def _gutter(diagnostic: Diagnostic, files: Files, marks: Mapping[str, Sequence[Mark]]) -> int:
    last = max((m.end_line + 1 for of_file in marks.values() for m in of_file), default=1)
    for fix in diagnostic.fixes:
        for edit in fix.edits:
            file = files.get(edit.span.file)
            if file is not None:
                last = max(last, file.position(edit.span.hi)[0] + 1)
    return len(str(last))


def _excerpt(
    path: str, marks: Sequence[Mark], file: SourceFile | None, first: bool, gutter: int,
    style: Style, color: bool,
) -> list[str]:  # fmt: skip
    arrow = paint(f"{'':>{gutter}}{'-->' if first else ':::'}", "frame", color)
    if file is None or not marks:
        return [f"{arrow} {clean(path)}"]
    at = next((m for m in marks if m.primary), marks[0])
    blank = paint(f"{'':>{gutter}} |", "frame", color)
    where = f"{arrow} {clean(path)}:{at.line + 1}:{at.column + 1}"
    return [where, blank, *Excerpt(file, marks, style, color).lines(gutter)]


def _tail(kind: str, text: str, gutter: int, color: bool) -> list[str]:
    mark = paint(f"{'':>{gutter}} =", "frame", color)
    first, *rest = clean_lines(text)
    indent = " " * (gutter + 3 + len(kind) + 2)
    lines = [f"{mark} {paint(kind + ':', 'bold', color)} {first}"]
    return lines + [f"{indent}{line}".rstrip() for line in rest]


# --- fixes -----------------------------------------------------------------------------------


def _fix(fix: Fix, files: Files, diagnostic: Diagnostic, gutter: int, color: bool) -> list[str]:
    """The title and the changed lines, before and after."""
    title = clean(fix.title) + ("" if fix.applicability == "safe" else " (look before you apply)")
    lines = [f"{paint('help', 'hint', color)}{paint(': ' + title, 'bold', color)}"]
    by_file: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.span.file, []).append(edit)
    home = diagnostic.span.file if diagnostic.span else ""
    for path, edits in by_file.items():
        file = files.get(path)
        if file is None:
            continue
        arrow = f"{'':>{gutter}}{'-->'} {clean(path)}" if path != home else f"{'':>{gutter}} |"
        lines.append(paint(arrow, "frame", color))
        lines += _changed_lines(file, edits, gutter, color)
    return lines


def _changed_lines(file: SourceFile, edits: Sequence[Edit], gutter: int, color: bool) -> list[str]:
    out: list[str] = []
    for hunk in _hunks(file, edits):
        first = file.line_of(hunk[0].span.lo)
        last = max(file.line_of(max(e.span.lo, e.span.hi)) for e in hunk)
        start = file.starts[first]
        end = file.starts[last + 1] if last + 1 < file.line_count else len(file.text)
        old = file.text[start:end]
        new = old
        for edit in reversed(hunk):
            lo, hi = edit.span.lo - start, edit.span.hi - start
            new = new[:lo] + edit.replacement + new[hi:]
        focus = hunk[0].span.lo - start
        out += _sides(_lines_of(old), _lines_of(new), first + 1, focus, gutter, color)
    shown = out[:_MAX_CHANGED]
    if len(out) > len(shown):
        shown.append(paint(f"{'...':>{gutter}}", "frame", color))
    return shown


def _lines_of(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    return [] if lines == [""] else lines


def _sides(
    old: Sequence[str], new: Sequence[str], number: int, focus: int, gutter: int, color: bool
) -> list[str]:
    """``-`` and ``+`` rows without the lines that both sides begin or end with."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    rows: list[str] = []
    sides: tuple[tuple[Sequence[str], str, Style], ...] = (
        (old, "-", "removed"), (new, "+", "added"),
    )  # fmt: skip
    for lines, sign, style in sides:
        for i in range(head, len(lines) - tail):
            frame = paint(f"{number + i:>{gutter}}", "frame", color)
            text = shown_line(lines[i], focus).text
            rows.append(f"{frame} {paint(f'{sign} {text}'.rstrip(), style, color)}")
    return rows


def _hunks(file: SourceFile, edits: Sequence[Edit]) -> list[list[Edit]]:
    """Edits in order, those that touch the same line together."""
    hunks: list[list[Edit]] = []
    last = -1
    for edit in sorted(edits, key=lambda e: (e.span.lo, e.span.hi)):
        if hunks and file.line_of(edit.span.lo) <= last:
            hunks[-1].append(edit)
        else:
            hunks.append([edit])
        last = max(last, file.line_of(max(edit.span.lo, edit.span.hi)))
    return hunks
