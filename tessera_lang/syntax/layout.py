"""Tokens to logical lines: indentation, line joining, brackets that are never closed.

Owns what ends a line. Must not know the grammar; ``blocks.py`` puts lines together.
"""

from __future__ import annotations

import re

from tessera_lang.diagnostics import Diagnostic, Edit, Fix
from tessera_lang.record import dataclass, field
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax import faults
from tessera_lang.syntax.foreign import CHARACTER_HELPS, REPLACEMENTS
from tessera_lang.syntax.lexer import (
    BAD,
    CLOSERS,
    COMMENT,
    JOIN,
    NEWLINE,
    OPEN_STRING,
    OPENERS,
    Token,
    tokens,
)

NESTING_LIMIT = 200
TAB_WIDTH = 4

_LAYOUT_KINDS = frozenset((NEWLINE, COMMENT, JOIN, BAD, OPEN_STRING))
_BRACKETS = frozenset(OPENERS) | CLOSERS
_HEADERS = frozenset(("if", "elif", "else", "while", "for", "with", "def"))
_NEXT_LINE = re.compile(r"([ \t\f]*)([^\r\n]*)")
_STARTS_STATEMENT = re.compile(
    r"(?:def|return|while|with|import|from|assert|break|continue|pass)\b"
    r"|(?:if|elif|else|for)\b[^#]*:\s*(?:#.*)?$"
)


@dataclass(slots=True)
class Line:
    """One logical line. ``unclosed`` is the bracket that was open where it was cut off.

    ``faulty`` says that it holds a fault that is reported already; ``deep`` that its
    tokens were dropped, since they nest too deep; ``reported`` counts the faults before it.
    """

    indent: int
    margin: int
    tokens: list[Token] = field(default_factory=list[Token])
    unclosed: Token | None = None
    faulty: bool = False
    deep: bool = False
    reported: int = 0

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def end(self) -> int:
        return self.tokens[-1].end


class Layout:
    """Reads the logical lines of ``text[start:end]``; spans hang on ``anchor``.

    ``joined`` reads all of it as one line, as if brackets stood around it.
    """

    def __init__(
        self, text: str, start: int, end: int, anchor: Anchor, *, joined: bool = False
    ) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.anchor = anchor
        self.lines: list[Line] = []
        self.diagnostics: list[Diagnostic] = []
        self._joined = joined
        self._line: Line | None = None
        self._open: list[Token] = []
        # Up to here a bracket is known to stay open: lines are cut at the first sign.
        self._strict_end = start
        self._tabs: list[Span] = []

    def read(self) -> list[Line]:
        position = self.start
        while position < self.end:
            position = self._read_from(position)
        if self._tabs:
            self._report_tabs()
        return self.lines

    def span(self, start: int, end: int) -> Span:
        base = self.anchor.offset
        return Span(self.anchor, start - base, end - base)

    def _read_from(self, position: int) -> int:
        """Reads until the end or until lexing has to go on from another place."""
        for token in tokens(self.text, position, self.end):
            kind = token.kind
            if kind in _LAYOUT_KINDS:
                if kind is NEWLINE:
                    again = self._newline(token)
                    if again is not None:
                        return again
                elif kind is BAD:
                    self._bad(token)
                elif kind is OPEN_STRING:
                    return self._open_string(token)
                continue
            line = self._line
            if line is None:
                line = self._begin(token)
            if kind in _BRACKETS:
                self._bracket(line, token)
            if not line.deep:
                line.tokens.append(token)
        return self._finish_text()

    def _begin(self, token: Token) -> Line:
        margin = max(self.text.rfind("\n", self.start, token.start) + 1, self.start)
        blank = self.text[margin : token.start]
        if "\t" in blank and not blank.strip():
            self._tabs.append(self.span(margin, token.start))
            indent = len(blank.expandtabs(TAB_WIDTH))
        else:
            indent = len(blank)
        self._line = line = Line(indent, margin, reported=len(self.diagnostics))
        return line

    def _bracket(self, line: Line, token: Token) -> None:
        if token.kind in OPENERS:
            self._open.append(token)
            if len(self._open) > NESTING_LIMIT and not line.deep:
                where = self.span(token.start, token.end)
                self.diagnostics.append(faults.nested_too_deep(where, NESTING_LIMIT))
                line.faulty = line.deep = True
                line.tokens.append(token)
        elif self._open:
            self._open.pop()

    def _newline(self, token: Token) -> int | None:
        """Ends the line unless it goes on; a place to read it again from, stricter."""
        line = self._line
        if line is None or self._joined:
            return None
        if self._open and not line.deep:
            if not self._cuts_off(token.end, line):
                return None
            if line.margin >= self._strict_end:
                return self._again(line, token.end)
            line.unclosed = self._open[-1]
        elif self._open and not self._cuts_off(token.end, line):
            return None
        self._finish_line()
        return None

    def _again(self, line: Line, end: int) -> int:
        """Drops the line to read it again, cut where the indentation goes back."""
        self._strict_end = end
        self._line = None
        self._open.clear()
        del self.diagnostics[line.reported :]
        return line.margin

    def _cuts_off(self, position: int, line: Line) -> bool:
        """Whether the physical line at ``position`` cannot belong to the open bracket."""
        strict = line.margin < self._strict_end
        if strict and line.tokens[-1].kind == ":" and line.tokens[0].kind in _HEADERS:
            return True
        match = _NEXT_LINE.match(self.text, position, self.end)
        if match is None or not match[2] or match[2].startswith("#"):
            return False
        if len(match[1].expandtabs(TAB_WIDTH)) > line.indent:
            return False
        if strict:
            return match[2][0] not in CLOSERS
        return _STARTS_STATEMENT.match(match[2]) is not None

    def _finish_line(self) -> None:
        if self._line is not None and self._line.tokens:
            self.lines.append(self._line)
        self._line = None
        self._open.clear()

    def _finish_text(self) -> int:
        line = self._line
        if line is not None and self._open and not line.deep and not self._joined:
            several = "\n" in self.text[line.margin : self.end].rstrip()
            if line.margin >= self._strict_end and several:
                return self._again(line, self.end)
            line.unclosed = self._open[-1]
        self._finish_line()
        return self.end

    def _bad(self, token: Token) -> None:
        line = self._line or self._begin(token)
        if not line.faulty:
            where = self.span(token.start, token.end)
            help_text = CHARACTER_HELPS.get(token.text, "")
            replacement = REPLACEMENTS.get(token.text)
            fault = faults.invalid_character(where, token.text, help_text, replacement)
            self.diagnostics.append(fault)
            line.faulty = True
        if token.text == "!":  # as it is meant, so that the condition keeps its sense
            line.tokens.append(Token("not", "not", token.start, token.end))

    def _open_string(self, token: Token) -> int:
        quote = token.text.lstrip("fFrR")
        end = self.end if len(quote) > 1 else self._line_end(token.end)
        line = self._line or self._begin(token)
        if not line.faulty:
            where = self.span(token.start, token.end)
            self.diagnostics.append(faults.unterminated_string(where, quote))
            line.faulty = True
        line.tokens.append(Token("STRING", f"{quote}{quote}", token.start, end))
        return end if end < self.end else self._finish_text()

    def _line_end(self, position: int) -> int:
        at = self.text.find("\n", position, self.end)
        if at < 0:
            return self.end
        return at - 1 if self.text[at - 1] == "\r" else at

    def _report_tabs(self) -> None:
        first = faults.tab_indentation(self._tabs[0], TAB_WIDTH)
        edits: list[Edit] = []
        for span in self._tabs:
            width = len(self.text[span.lo : span.hi].expandtabs(TAB_WIDTH))
            edits.append(Edit(span, " " * width))
        fix = Fix("indent with spaces", tuple(edits))
        self.diagnostics.append(
            Diagnostic(first.code, first.message, first.span, helps=first.helps, fixes=(fix,))
        )
