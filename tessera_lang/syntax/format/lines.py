"""Text to logical lines with all that stands around them: comments, blank lines, breaks.

Owns what the parser drops. Must not know spacing or where a line is broken. The text has no
syntax errors, so a line ends where no bracket is open.
"""

from __future__ import annotations

from tessera_lang.record import dataclass, field
from tessera_lang.syntax.layout import TAB_WIDTH
from tessera_lang.syntax.lexer import CLOSERS, COMMENT, JOIN, NEWLINE, OPENERS, Token, tokens


@dataclass(slots=True)
class Piece:
    """A token, or a comment inside brackets. ``broken``: the source has a line break before
    it; ``joined``: that was a backslash outside of brackets."""

    token: Token
    broken: bool = False
    joined: bool = False

    @property
    def is_comment(self) -> bool:
        return self.token.kind is COMMENT


@dataclass(slots=True)
class LogicalLine:
    """One statement line, or a comment of its own (then there is no piece).

    ``indent`` is the column it begins in, ``blanks`` the blank lines above, ``comment`` what
    stands behind it.
    """

    indent: int
    blanks: int
    pieces: list[Piece] = field(default_factory=list[Piece])
    comment: str = ""

    @property
    def first(self) -> str:
        """The kind of the first token; empty for a comment."""
        return self.pieces[0].token.kind if self.pieces else ""

    @property
    def opens_block(self) -> bool:
        """Whether the lines that follow are its block."""
        return bool(self.pieces) and self.pieces[-1].token.kind == ":"


class Reader:
    """Reads the logical lines of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: list[LogicalLine] = []
        self._line: LogicalLine | None = None
        self._depth = 0
        self._blanks = 0
        self._broken = self._joined = False

    def read(self) -> list[LogicalLine]:
        for token in tokens(self.text, 0, len(self.text)):
            if token.kind is NEWLINE:
                self._newline()
            elif token.kind is JOIN:
                self._broken = True
                self._joined = self._line is not None and self._depth == 0
            elif token.kind is COMMENT:
                self._comment(token)
            else:
                self._code(token)
        return self.lines

    def _newline(self) -> None:
        if self._depth > 0:
            self._broken = True
        elif self._line is not None:
            self._line = None
            self._blanks = 0
        else:
            self._blanks += 1

    def _comment(self, token: Token) -> None:
        text = token.text.rstrip()
        line = self._line
        if line is None:
            line = self._line = LogicalLine(self._column(token), self._blanks, comment=text)
            self.lines.append(line)
        elif self._depth > 0:
            self._add(line, Token(COMMENT, text, token.start, token.end))
        else:
            line.comment = text

    def _code(self, token: Token) -> None:
        line = self._line
        if line is None:
            line = self._line = LogicalLine(self._column(token), self._blanks)
            self.lines.append(line)
            self._broken = self._joined = False
        if token.kind in OPENERS:
            self._depth += 1
        elif token.kind in CLOSERS:
            self._depth -= 1
        self._add(line, token)

    def _add(self, line: LogicalLine, token: Token) -> None:
        line.pieces.append(Piece(token, self._broken, self._joined))
        self._broken = self._joined = False

    def _column(self, token: Token) -> int:
        margin = self.text.rfind("\n", 0, token.start) + 1
        return len(self.text[margin : token.start].expandtabs(TAB_WIDTH))
