"""Excerpts of source with marks under what a diagnostic speaks of.

Owns the drawing. Must not know codes or messages beyond the short text beside a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera_lang.diagnostics.style import Style, paint
from tessera_lang.diagnostics.terminal_text import Shown, clean, shown_line
from tessera_lang.record import dataclass
from tessera_lang.source import SourceFile, Span

_SHOWN_OF_LONG = 3  # lines shown at each end of a mark over many lines


@dataclass(frozen=True, slots=True)
class Mark:
    """A range of one file in 0-based lines and character columns, with its short text."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    primary: bool

    @property
    def character(self) -> str:
        return "^" if self.primary else "-"


def mark_of(file: SourceFile, span: Span, text: str, primary: bool) -> Mark:
    """The mark of a span; an end at the start of a line moves back to the line before."""
    line, column = file.position(span.lo)
    end_line, end_column = file.position(max(span.lo, span.hi))
    if end_column == 0 and end_line > line:
        end_line -= 1
        end_column = len(file.line_text(end_line))
    return Mark(line, column, end_line, end_column, clean(text).strip(), primary)


@dataclass(slots=True)
class _Row:
    """A row of the drawing: its number or none, the lanes of long marks, the rest."""

    number: str
    lanes: str
    text: str
    styles: list[tuple[int, int, Style]]


class Excerpt:
    """Draws the marks of one file."""

    def __init__(self, file: SourceFile, marks: Sequence[Mark], style: Style, color: bool) -> None:
        self._file = file
        self._marks = marks
        self._style: Style = style
        self._color = color
        self._long = [m for m in marks if m.end_line > m.line]

    def lines(self, gutter: int) -> list[str]:
        """Rows with line numbers in a gutter of this many columns."""
        out: list[str] = []
        before = -1
        for line in self._shown_lines():
            if before >= 0 and line > before + 1:
                if line == before + 2 and self._file.line_text(before + 1).strip():
                    out.append(self._frame(gutter, self._source_row(before + 1)))
                else:
                    out.append(paint("...", "frame", self._color))
            before = line
            out += [self._frame(gutter, row) for row in self._rows(line)]
        return out

    def _shown_lines(self) -> list[int]:
        lines: set[int] = set()
        for mark in self._marks:
            if mark.end_line - mark.line <= 2 * _SHOWN_OF_LONG:
                lines.update(range(mark.line, mark.end_line + 1))
            else:
                lines.update(range(mark.line, mark.line + _SHOWN_OF_LONG))
                lines.update(range(mark.end_line - _SHOWN_OF_LONG + 2, mark.end_line + 1))
        return sorted(lines)

    def _frame(self, gutter: int, row: _Row) -> str:
        bar = paint(f"{row.number:>{gutter}} |", "frame", self._color)
        text = row.text
        if self._color:
            for start, end, style in sorted(row.styles, reverse=True):
                text = text[:start] + paint(text[start:end], style, True) + text[end:]
        body = f"{self._lane_text(row.lanes)}{text}".rstrip()
        return f"{bar} {body}" if body else bar

    def _lane_text(self, lanes: str) -> str:
        return paint(lanes, self._style, self._color) if lanes.strip() else lanes

    def _source(self, line: int) -> Shown:
        columns = [m.column for m in self._marks if m.line == line]
        columns += [m.end_column for m in self._long if m.end_line == line]
        return shown_line(self._file.line_text(line), min(columns, default=0))

    def _source_row(self, line: int) -> _Row:
        lanes = "".join(self._lane(mark, line) for mark in self._long)
        return _Row(str(line + 1), lanes, self._source(line).text, [])

    def _lane(self, mark: Mark, line: int) -> str:
        """The lane of a long mark beside a source line."""
        if mark.line == line:
            return "/ " if self._begins_line(mark) else "  "
        return "| " if mark.line < line <= mark.end_line else "  "

    def _begins_line(self, mark: Mark) -> bool:
        return not self._file.line_text(mark.line)[: mark.column].strip()

    def _rows(self, line: int) -> list[_Row]:
        """The source line, its short marks, then the long ones that begin or end there."""
        source = self._source(line)
        lanes = [self._lane(mark, line).replace("/", "|") for mark in self._long]
        short = [m for m in self._marks if m.line == line == m.end_line]
        rows = [self._source_row(line)]
        rows += [_Row("", "".join(lanes), t, s) for t, s in self._short_rows(short, source)]
        for i, mark in enumerate(self._long):
            if mark.line == line and not self._begins_line(mark):
                rows.append(self._turn(lanes, i, source.column(mark.column), " ", ""))
                lanes[i] = "| "
        for i, mark in enumerate(self._long):
            if mark.end_line == line:
                column = max(0, source.column(mark.end_column) - 1)
                rows.append(self._turn(lanes, i, column, "|", f" {mark.text}"))
                lanes[i] = "  "
        return rows

    def _turn(self, lanes: Sequence[str], i: int, column: int, corner: str, text: str) -> _Row:
        """The row where a long mark goes from its lane to its first or last character."""
        mark = self._long[i]
        run = "_" * (2 * (len(lanes) - i) - 1 + column)
        line = f"{run}{mark.character}{text}".rstrip()
        return _Row("", "".join(lanes[:i]) + corner, line, [(0, len(line), self._mark_style(mark))])

    def _mark_style(self, mark: Mark) -> Style:
        return self._style if mark.primary else "frame"

    def _short_rows(
        self, marks: Sequence[Mark], source: Shown
    ) -> Iterable[tuple[str, list[tuple[int, int, Style]]]]:
        """The row of underlines, then rows of texts that hang below them."""
        if not marks:
            return
        placed = [self._place(mark, source) for mark in marks]
        cells = [" "] * max(end for _, _, end in placed)
        owner: list[Style] = [""] * len(cells)
        for mark, start, end in sorted(placed, key=lambda p: (p[0].primary, p[1] - p[2])):
            for i in range(start, end):
                cells[i], owner[i] = mark.character, self._mark_style(mark)
        hanging = sorted((p for p in placed if p[0].text), key=lambda p: (p[1], p[2]))
        row = "".join(cells)
        styles: list[tuple[int, int, Style]] = [(s, e, st) for s, e, st in _runs(owner)]
        if hanging and hanging[-1][2] >= len(cells):
            mark = hanging.pop()[0]
            styles.append((len(row), len(row) + 1 + len(mark.text), self._mark_style(mark)))
            row = f"{row} {mark.text}"
        yield row, styles
        yield from self._hanging_rows(hanging)

    def _hanging_rows(
        self, hanging: list[tuple[Mark, int, int]]
    ) -> Iterable[tuple[str, list[tuple[int, int, Style]]]]:
        if hanging:
            yield self._bars(hanging)
        while hanging:
            mark, start, _ = hanging.pop()
            bars, styles = self._bars([p for p in hanging if p[1] < start])
            row = f"{bars:<{start}}{mark.text}"
            yield row, [*styles, (start, len(row), self._mark_style(mark))]

    def _bars(
        self, hanging: Sequence[tuple[Mark, int, int]]
    ) -> tuple[str, list[tuple[int, int, Style]]]:
        text = ""
        styles: list[tuple[int, int, Style]] = []
        for mark, start, _ in hanging:
            if start >= len(text):
                text = f"{text:<{start}}|"
                styles.append((start, start + 1, self._mark_style(mark)))
        return text, styles

    def _place(self, mark: Mark, source: Shown) -> tuple[Mark, int, int]:
        start = source.column(mark.column)
        return mark, start, max(start + 1, source.column(mark.end_column))


def _runs(owner: Sequence[Style]) -> Iterable[tuple[int, int, Style]]:
    start = 0
    for i in range(1, len(owner) + 1):
        if i == len(owner) or owner[i] != owner[start]:
            if owner[start]:
                yield start, i, owner[start]
            start = i
