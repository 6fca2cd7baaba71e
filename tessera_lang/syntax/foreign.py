"""Constructs of other languages, Python's first, that are not part of this one.

Owns what is said about each and what to use in its place. Must not know the parser.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_grammar.keywords import UNSUPPORTED_WORDS

from tessera_lang.diagnostics import Diagnostic, Edit, Fix
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import faults
from tessera_lang.syntax.lexer import CLOSERS, OPENERS, Token
from tessera_lang.syntax.meant import meant

SpanOf = Callable[[int, int], Span]

# What stands for a character that was pasted from elsewhere.
REPLACEMENTS = {
    "\u201c": '"',
    "\u201d": '"',
    "\u2018": "'",
    "\u2019": "'",
    "\u2013": "-",
    "\u2212": "-",
    "\u00d7": "*",
    "\u00f7": "/",
    "\u2264": "<=",
    "\u2265": ">=",
    "\u2260": "!=",
    "\u00a0": " ",
    "\u3000": " ",
    "\u200b": "",
    "\ufeff": "",
    "\uff08": "(",
    "\uff09": ")",
    "\uff0c": ",",
    "\uff1a": ":",
    "!": "not ",
}
CHARACTER_HELPS = {
    "?": "write 'a if condition else b'",
    "$": "names are made of letters, digits and '_'",
    "`": "names stand without quotes",
    "\\": "a backslash joins two lines only at the end of the first",
}

_ENDS_OPERAND = frozenset(("NAME", "NUMBER", "STRING", ")", "]", "}", "True", "False", "None"))
_NONE = Token("", "", -1, -1)


@dataclass(frozen=True, slots=True)
class _Place:
    """A token at which parsing stopped, and its neighbours."""

    tokens: list[Token]
    index: int
    span: SpanOf

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def before(self) -> Token:
        return self.tokens[self.index - 1] if self.index else _NONE

    @property
    def after(self) -> Token:
        return self.tokens[self.index + 1] if self.index + 1 < len(self.tokens) else _NONE

    def fault(self, start: Token, end: Token, what: str, instead: str) -> Diagnostic:
        return faults.not_in_language(self.span(start.start, end.end), what, instead)

    def bracket(self) -> Token:
        """The bracket that is open in front of the token."""
        depth = 0
        for token in reversed(self.tokens[: self.index]):
            if token.kind in OPENERS:
                if depth == 0:
                    return token
                depth -= 1
            elif token.kind in CLOSERS:
                depth += 1
        return _NONE


def foreign_construct(tokens: list[Token], index: int, span: SpanOf) -> Diagnostic | None:
    """The fault of a construct from elsewhere at ``tokens[index]``, where parsing stopped."""
    place = _Place(tokens, index, span)
    for rule in (_as_meant, _leading_word, _star, _loop_inside, _equals, _dots, _operator, _set):
        fault = rule(place)
        if fault is not None:
            return fault
    return None


def _as_meant(at: _Place) -> Diagnostic | None:
    """A line whose meaning is plain all the same."""
    line = meant(at.tokens)
    if line is None:
        return None
    where = at.span(line.first.start, line.last.end)
    fault = faults.not_in_language(where, line.what, line.instead)
    if not line.replacement:
        return fault
    fix = Fix(line.instead, (Edit(where, line.replacement),))
    return Diagnostic(fault.code, fault.message, where, helps=fault.helps, fixes=(fix,))


def _leading_word(at: _Place) -> Diagnostic | None:
    """A statement that starts with a word like ``class`` or ``try``, or uses ``yield``."""
    first = at.tokens[0]
    if first.text in UNSUPPORTED_WORDS and first.kind == "NAME" and at.index in (1, 2):
        if at.tokens[1].kind not in ("=", "(", "[", ".", ","):
            return at.fault(first, first, f"'{first.text}' is", UNSUPPORTED_WORDS[first.text])
    before = at.before
    if at.index > 1 and before.kind == "NAME" and before.text in ("yield", "await"):
        return at.fault(before, before, f"'{before.text}' is", UNSUPPORTED_WORDS[before.text])
    return None


def _star(at: _Place) -> Diagnostic | None:
    token, before = at.token, at.before
    if token.kind not in ("*", "**"):
        return None
    if before.kind == "import":
        return at.fault(token, token, "'import *' is", "name what is imported")
    if before.kind in _ENDS_OPERAND:
        return None
    if at.tokens[0].kind in ("def", "lambda"):
        what = f"a parameter list with '{token.kind}' is"
        return at.fault(token, token, what, "give every parameter a name")
    return at.fault(token, token, f"unpacking with '{token.kind}' is", "write the parts out")


def _loop_inside(at: _Place) -> Diagnostic | None:
    token = at.token
    if token.kind != "for":
        return None
    match at.bracket().kind:
        case "(":
            instead = "use a list comprehension in brackets: [x for x in y]"
            return at.fault(token, token, "a generator expression is", instead)
        case "{":
            instead = "build the dict in a loop, or use a list"
            return at.fault(token, token, "a dict or set comprehension is", instead)
        case _:
            return None


def _equals(at: _Place) -> Diagnostic | None:
    """``:=``."""
    token = at.token
    for colon, equals in ((at.before, token), (token, at.after)):
        if colon.kind == ":" and equals.kind == "=" and colon.end == equals.start:
            return at.fault(colon, equals, "':=' is", "assign on a line of its own")
    return None


def _dots(at: _Place) -> Diagnostic | None:
    token, after = at.token, at.after
    if token.kind != ".":
        return None
    if at.index == 1 and at.tokens[0].kind in ("from", "import"):
        return at.fault(token, token, "a relative import is", "give the module's full name")
    if after.kind == "." and after.start == token.end:
        instead = (
            "write 'pass' for an empty block, ':' for each axis of an index, and '()' for none"
        )
        return at.fault(token, after, "'...' is", instead)
    return None


def _operator(at: _Place) -> Diagnostic | None:
    """``&&``, ``||``, ``++``, ``--``, ``<>`` and ``k<<<...>>>``."""
    token, before = at.token, at.before
    joined = before.end == token.start
    if joined and token.kind == before.kind and token.kind in ("&", "|"):
        word = "and" if token.kind == "&" else "or"
        return at.fault(before, token, f"'{token.kind * 2}' is", f"write '{word}'")
    if joined and before.kind == "<<" and token.kind == "<":
        return at.fault(before, token, "'<<<' is", "write the number of groups: 'k[groups](...)'")
    if joined and before.kind == "<" and token.kind == ">":
        return at.fault(before, token, "'<>' is", "write '!='")
    if at.index > 1 and token.kind == "$END" and before.kind in ("+", "-"):
        second = at.tokens[at.index - 2]
        if second.kind == before.kind and second.end == before.start:
            return at.fault(second, before, f"'{before.kind * 2}' is", f"write '{before.kind}= 1'")
    return None


def _set(at: _Place) -> Diagnostic | None:
    bracket = at.bracket()
    if bracket.kind != "{" or at.token.kind not in ("}", ",") or at.before.kind == ",":
        return None
    if at.before.kind in _ENDS_OPERAND:
        instead = "write a list, or a dict with 'key: value'"
        return at.fault(bracket, bracket, "a set is", instead)
    return None
