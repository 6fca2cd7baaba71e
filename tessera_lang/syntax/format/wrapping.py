"""Where a logical line is broken.

Owns three layouts: one line; broken at brackets and, inside them, at operators, where it is
too long or a comma in front of a closing bracket on its own line asks for it; and as written,
where comments or strings of several lines stand inside. What cannot be broken stays long.

A break is decided by the text of the line as if it were one, so that the result is decided
the same way again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.syntax.format.lines import Piece
from tessera_lang.syntax.format.spacing import Open, Spaced, spaced
from tessera_lang.syntax.lexer import CLOSERS, OPENERS

WIDTH = 100
STEP = 4
_LITTLE = 8  # characters that are not worth a line of their own
# Operators by how loosely they bind: a line is broken before those that bind loosest.
_LOOSEST = (
    frozenset(("for", "if", "else")), frozenset(("or",)), frozenset(("and",)),
    frozenset(("==", "!=", "<", "<=", ">", ">=")), frozenset("|"), frozenset("^"),
    frozenset("&"), frozenset(("<<", ">>")), frozenset("+-"), frozenset(("*", "/", "//", "%", "@")),
)  # fmt: skip


def laid_out(pieces: Sequence[Piece], indent: int) -> list[str]:
    """The physical lines of a logical line, the first one indented too."""
    code = [p for p in pieces if not p.is_comment]
    line = spaced([p.token for p in code])
    several = any(p.token.kind == "STRING" and "\n" in p.token.text for p in code)
    if len(code) < len(pieces) or several:
        return _as_written(pieces, line, indent)
    wrapper = _Wrapper(line, code)
    whole = wrapper.text(0, len(code))
    if any(p.joined for p in code) and indent + len(whole) > WIDTH:
        return _as_written(pieces, line, indent)
    return wrapper.wrapped(0, len(code), indent, False, "")


def _as_written(pieces: Sequence[Piece], line: Spaced, indent: int) -> list[str]:
    """The breaks of the source; continuation lines indented by the lines that are open."""
    lines: list[str] = []
    current = ""
    opened: list[int] = []  # the physical line of each open bracket
    at = 0
    for piece in pieces:
        kind = piece.token.kind
        if piece.broken and current:
            lines.append(current + (" \\" if piece.joined else ""))
            current = ""
        if not current:
            inside = opened[:-1] if kind in CLOSERS else opened
            steps = len(set(inside)) or int(piece.joined)
            current = " " * (indent + STEP * steps)
        elif piece.is_comment:
            current += "  "
        elif line.space[at]:
            current += " "
        current += piece.token.text
        if kind in OPENERS:
            opened.append(len(lines))
        elif kind in CLOSERS:
            opened.pop()
        at += not piece.is_comment
    return [*lines, current]


class _Wrapper:
    def __init__(self, line: Spaced, code: Sequence[Piece]) -> None:
        self.line = line
        self.tokens = line.tokens
        self.brackets = line.brackets
        self.dropped: set[int] = set()
        self.magic: set[int] = set()
        for start, b in self.brackets.items():
            if line.trailing_comma(b) and b.takes_comma:
                self.dropped.add(b.end - 1)
                if code[b.end].broken:
                    self.magic.add(start)

    def text(self, lo: int, hi: int) -> str:
        parts: list[str] = []
        for i in range(lo, hi):
            if i not in self.dropped:
                parts += (
                    [" ", self.tokens[i].text]
                    if parts and self.line.space[i]
                    else [self.tokens[i].text]
                )
        return "".join(parts)

    def wrapped(self, lo: int, hi: int, indent: int, inside: bool, tail: str) -> list[str]:
        """The lines of a range of tokens with ``tail`` behind. ``inside`` brackets a line may
        end anywhere."""
        one = " " * indent + self.text(lo, hi) + tail
        fits = len(one) <= WIDTH
        if fits and not self._has_magic(lo, hi):
            return [one]
        if inside and not fits:
            cuts = self._operators(lo, hi)
            if cuts:
                return self._at_operators([lo, *cuts, hi], indent, tail)
        bracket = self._widest(lo, hi, only_magic=fits)
        if bracket is None:
            return [one]
        return [
            *self.wrapped(lo, bracket.start + 1, indent, False, ""),
            *self._items(bracket, indent + STEP),
            *self.wrapped(bracket.end, hi, indent, False, tail),
        ]

    def _has_magic(self, lo: int, hi: int) -> bool:
        return any(lo <= m and self.brackets[m].end < hi for m in self.magic)

    def _pairs(self, lo: int, hi: int) -> list[Open]:
        """The outermost brackets that open and close in a range and hold something."""
        found: list[Open] = []
        i = lo
        while i < hi:
            b = self.brackets.get(i)
            if b is not None and b.end < hi:
                if b.end > i + 1:
                    found.append(b)
                i = b.end
            i += 1
        return found

    def _widest(self, lo: int, hi: int, only_magic: bool) -> Open | None:
        best: Open | None = None
        most = 0
        for b in self._pairs(lo, hi):
            if only_magic and not self._has_magic(b.start, b.end + 1):
                continue
            size = len(self.text(b.start + 1, b.end))
            if b.kind == "parameters" and self.tokens[b.start].kind == "(":
                size += 10 * WIDTH  # those of a function before anything else in its line
            if size >= most and (size >= _LITTLE or only_magic):
                best, most = b, size
        return best

    def _items(self, b: Open, indent: int) -> list[str]:
        """What stands in a bracket: on one line, or each item on its own."""
        lo, hi = b.start + 1, b.end
        if b.start not in self.magic and not self._has_magic(lo, hi):
            one = " " * indent + self.text(lo, hi)
            if len(one) <= WIDTH:
                return [one]
        commas = [c for c in b.commas if c != b.end - 1]
        last = self.line.trailing_comma(b)
        if last:
            hi -= 1
        comma = (
            last and not b.takes_comma or b.takes_comma and (bool(commas) or b.start in self.magic)
        )
        lines: list[str] = []
        edges = [lo - 1, *commas, hi]
        for i, start in enumerate(edges[:-1]):
            is_last = i == len(edges) - 2
            tail = "," if not is_last or comma else ""
            lines += self.wrapped(start + 1, edges[i + 1], indent, True, tail)
        return lines

    def _operators(self, lo: int, hi: int) -> list[int]:
        """The places of the operators outside brackets that bind loosest."""
        if any(self.tokens[i].kind == "lambda" for i in range(lo, hi)):
            return []
        outer: list[int] = []
        i = lo
        while i < hi:
            b = self.brackets.get(i)
            if b is not None:
                if b.end >= hi:
                    return []
                i = b.end
            elif i > lo and self.line.space[i]:
                outer.append(i)
            i += 1
        for words in _LOOSEST:
            found = [i for i in outer if self.tokens[i].kind in words and i + 1 < hi]
            found = [i for i in found if self._is_binary(i)]
            if found:
                return found
        return []

    def _is_binary(self, i: int) -> bool:
        """Not a sign: what stands before a sign is an operator with a blank behind."""
        return self.line.space[i + 1] or self.tokens[i].kind not in ("+", "-")

    def _at_operators(self, edges: list[int], indent: int, tail: str) -> list[str]:
        lines: list[str] = []
        for i, start in enumerate(edges[:-1]):
            behind = tail if i == len(edges) - 2 else ""
            lines += self.wrapped(start, edges[i + 1], indent, True, behind)
        return lines
