"""The parser's table in memory, and how it is read from the JSON that ``build.py`` writes.

Owns the form of the table. Must not know the nodes that the actions build, nor lark.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, NamedTuple, cast

TABLE_FILE = os.path.join(os.path.dirname(__file__), "tessera.table.json")


class Rule(NamedTuple):
    """``left`` was read from ``length`` symbols; ``action`` is None where the value passes on."""

    left: str
    length: int
    action: str | None


class Table(NamedTuple):
    """An LALR(1) table.

    ``actions[state][terminal]`` is a state to shift to, or ``~rule`` to reduce by.
    ``gotos[state][nonterminal]`` is a state. A literal terminal is named by its text; the
    end of the input is ``$END``. ``starts`` gives the state to begin a symbol in; reading ``$END``
    accepts.
    """

    rules: tuple[Rule, ...]
    actions: list[dict[str, int]]
    gotos: list[dict[str, int]]
    starts: dict[str, int]


@cache
def load_table() -> Table:
    """The committed table; read once a process."""
    with open(TABLE_FILE, encoding="utf-8") as file:
        raw = cast("dict[str, Any]", json.load(file))
    terminals = cast("list[str]", raw["terminals"])
    nonterminals = cast("list[str]", raw["nonterminals"])
    triples = cast("list[tuple[int, int, str | None]]", raw["rules"])
    rules = tuple(Rule(nonterminals[left], length, action) for left, length, action in triples)
    rows = [
        dict(zip([terminals[i] for i in row[::2]], row[1::2], strict=True))
        for row in cast("list[list[int]]", raw["rows"])
    ]
    actions = [rows[i] for i in cast("list[int]", raw["actions"])]
    gotos = [
        dict(zip([nonterminals[i] for i in row[::2]], row[1::2], strict=True))
        for row in cast("list[list[int]]", raw["gotos"])
    ]
    return Table(rules, actions, gotos, raw["starts"])
