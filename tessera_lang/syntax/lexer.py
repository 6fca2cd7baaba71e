"""Text to tokens.

Owns the shape of tokens. Must not know lines, indentation or the grammar: a token's kind is
the text of an operator or keyword, or ``NAME NUMBER STRING``, or one of the kinds below that
the layout (``layout.py``) takes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tessera_grammar.keywords import HARD_KEYWORDS

NEWLINE = "NEWLINE"
JOIN = "JOIN"
COMMENT = "COMMENT"
BAD = "BAD"
OPEN_STRING = "OPEN_STRING"

OPENERS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(OPENERS.values())

_TOKEN = re.compile(
    r"""[ \t\f]*(?:
      ((?:[fFrR]{1,2})?(?:\"{3}(?:[^\\]|\\[\s\S])*?\"{3}|'{3}(?:[^\\]|\\[\s\S])*?'{3}
        |"(?!"")(?:[^"\\\r\n]|\\(?:\r\n|[\s\S]))*"|'(?!'')(?:[^'\\\r\n]|\\(?:\r\n|[\s\S]))*'))
    | ((?:[fFrR]{1,2})?(?:\"{3}|'{3}|["']))
    | ([^\W\d]\w*)
    | (0[xXbBoO]\w*|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?\w*)
    | (\*\*=|//=|>>=|<<=|->|\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%@&|^]=|[-+*/%@&|^~<>=.,:;()\[\]{}])
    | (\r?\n)
    | (\#[^\n]*)
    | (\\[ \t]*\r?\n)
    | ([^ \t\f])
    )""",
    re.VERBOSE,
)

_KINDS = (
    "",
    "STRING",
    OPEN_STRING,
    "NAME",
    "NUMBER",
    "",
    NEWLINE,
    COMMENT,
    JOIN,
    BAD,
)
_NAME, _OPERATOR = 3, 5
# ``where`` is a soft keyword: the machine takes it for a name where a clause cannot stand.
_WORD_KINDS = {**{word: word for word in HARD_KEYWORDS}, "where": "WHERE"}


class Token(NamedTuple):
    """A piece of text; ``start`` and ``end`` are offsets into the text that was read."""

    kind: str
    text: str
    start: int
    end: int


def tokens(text: str, start: int, end: int) -> Iterator[Token]:
    """All tokens of ``text[start:end]``; lone carriage returns must be newlines already."""
    words = _WORD_KINDS
    for match in _TOKEN.finditer(text, start, end):
        group = match.lastindex or 0
        word = match[group]
        if group == _NAME:
            kind = words.get(word, "NAME")
        elif group == _OPERATOR:
            kind = word
        else:
            kind = _KINDS[group]
        yield Token(kind, word, match.end() - len(word), match.end())
