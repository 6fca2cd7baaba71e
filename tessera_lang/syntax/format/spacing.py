"""Where blanks stand within a line, and what its brackets and commas are.

Owns one pass over the tokens of a logical line. Must not know line breaks or widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from tessera_lang.record import dataclass, field
from tessera_lang.syntax.lexer import CLOSERS, OPENERS, Token

Bracket = Literal["call", "names", "parameters", "index", "list", "dict", "paren"]
_ENDS_VALUE = frozenset(("NAME", "NUMBER", "STRING", "WHERE", "True", "False", "None")) | CLOSERS
_SIGNS = frozenset("+-~")


@dataclass(slots=True)
class Open:
    """A bracket: the places of its opener and closer, of the commas between its items, and
    of colons that are of a slice."""

    kind: Bracket
    start: int
    end: int = -1
    commas: list[int] = field(default_factory=list[int])
    colons: list[int] = field(default_factory=list[int])
    annotated: bool = False
    lambdas: int = 0
    comprehension: bool = False

    @property
    def takes_comma(self) -> bool:
        """Whether a comma behind the last item changes nothing."""
        if self.comprehension:
            return False
        return self.kind != "paren" or len([c for c in self.commas if c != self.end - 1]) > 0


@dataclass(slots=True)
class Spaced:
    """Tokens of a line; ``space[i]`` says whether a blank stands before the i-th."""

    tokens: Sequence[Token]
    space: list[bool]
    brackets: dict[int, Open]

    def trailing_comma(self, b: Open) -> bool:
        return bool(b.commas) and b.commas[-1] == b.end - 1


def spaced(tokens: Sequence[Token]) -> Spaced:
    return _Pass(tokens).run()


class _Pass:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.is_def = bool(tokens) and tokens[0].kind == "def"
        self.space: list[bool] = []
        self.tight: set[int] = set()  # tokens that nothing stands behind
        self.brackets: dict[int, Open] = {}
        self.stack: list[Open] = []
        self.bottom = Open("paren", -1)
        self.behind = False  # whether the parameters of a `def` are read
        self.clause = False  # whether the last token is the `where` of a clause

    def run(self) -> Spaced:
        for i, token in enumerate(self.tokens):
            self.space.append(i > 0 and self._space(i, token))
            self._enter(i, token)
        for bracket in self.brackets.values():
            if bracket.kind == "index":
                self._slices(bracket)
        return Spaced(self.tokens, self.space, self.brackets)

    @property
    def level(self) -> Open:
        return self.stack[-1] if self.stack else self.bottom

    # --- blanks ------------------------------------------------------------------------

    def _space(self, i: int, token: Token) -> bool:
        before = self.tokens[i - 1]
        kind, last = token.kind, before.kind
        if last in OPENERS or kind in CLOSERS or kind in (",", ";") or i - 1 in self.tight:
            return False
        if last in (",", ";"):
            return True
        if kind == ".":
            return last == "NUMBER"  # `1 .x` is two tokens, `1.` is one
        if last == ".":
            return False
        if kind == ":":
            return False
        if last == ":":
            return not (self.level.kind == "index" and i - 1 in self.level.colons)
        if "=" in (kind, last):
            return self._around_equals()
        if kind in ("(", "["):
            return last not in _ENDS_VALUE or self.clause
        return True

    def _around_equals(self) -> bool:
        level = self.level
        if level.lambdas or level.kind == "call":
            return False
        return level.kind != "parameters" or level.annotated

    # --- what a token does ---------------------------------------------------------------

    def _enter(self, i: int, token: Token) -> None:
        kind = token.kind
        before = self.tokens[i - 1].kind if i else ""
        level = self.level
        self.clause = kind == "WHERE" and self.behind and not self.stack
        if kind in OPENERS:
            opened = Open(self._kind(i, kind, before), i)
            self.brackets[i] = opened
            self.stack.append(opened)
        elif kind in CLOSERS:
            closed = self.stack.pop()
            closed.end = i
            if closed.kind == "parameters" and kind == ")":
                self.behind = True
        elif kind == ",":
            if not level.lambdas:
                level.annotated = False
                level.commas.append(i)
        elif kind == ":":
            if level.lambdas:
                level.lambdas -= 1
            elif level.kind == "index":
                level.colons.append(i)
            level.annotated = True
        elif kind == "lambda":
            level.lambdas += 1
        elif kind == "for" and self.stack:
            level.comprehension = True
            level.commas.clear()
        elif (kind == "@" and i == 0) or (kind in _SIGNS and before not in _ENDS_VALUE):
            self.tight.add(i)
        if level.comprehension:
            level.commas.clear()

    def _kind(self, i: int, kind: str, before: str) -> Bracket:
        if kind == "{":
            return "dict"
        if self.is_def and not self.stack and not self.behind:
            return "parameters"
        value = before in _ENDS_VALUE and not (before == "WHERE" and self._is_clause(i - 1))
        if kind == "[":
            return "index" if value else "list"
        if before == "import":
            return "names"
        return "call" if value else "paren"

    def _is_clause(self, i: int) -> bool:
        return self.behind and not self.stack and self.tokens[i].kind == "WHERE"

    # --- slices --------------------------------------------------------------------------

    def _slices(self, b: Open) -> None:
        """Blanks around the colon of a slice between two bounds, one of which has operators."""
        edges = [b.start, *b.commas, b.end]
        for lo, hi in pairwise(edges):
            colons = [c for c in b.colons if lo < c < hi]
            if len(colons) != 1:
                continue
            (colon,) = colons
            left, right = (lo + 1, colon), (colon + 1, hi)
            if left[0] < left[1] and right[0] < right[1]:
                wide = self._has_operator(*left) or self._has_operator(*right)
                self.space[colon] = self.space[colon + 1] = wide

    def _has_operator(self, lo: int, hi: int) -> bool:
        return any(self.space[i] and self.tokens[i - 1].kind != "," for i in range(lo + 1, hi))
