"""Runs the LALR table over the tokens of one line.

Owns the stacks. Must not know what the actions build, nor what is done about a token that
does not fit (``recovery.py``). The table is data: lark takes no part at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tessera_grammar.parse_table import Table, load_table

from tessera_lang.record import dataclass

END = "$END"

# An action is a method: it takes the values of the symbols and the offsets of the first and behind
# the last.
Action = Callable[[Any, list[Any], int, int], Any]


@dataclass(slots=True)
class Stuck:
    """The machine before the token ``index`` that it cannot take."""

    states: list[int]
    values: list[Any]
    starts: list[int]
    index: int
    end: int


@cache
def _rules(builder: type) -> list[tuple[str, int, Action | None]]:
    """What each rule of the table makes, how many symbols it takes, and the builder's method."""
    return [
        (r.left, r.length, getattr(builder, r.action) if r.action else None)
        for r in load_table().rules
    ]


class Machine:
    """The table with the actions of one builder."""

    def __init__(self, actions: object) -> None:
        self.table: Table = load_table()
        self._actions = actions
        self._rules = _rules(type(actions))

    def begin(self, start: str) -> Stuck:
        return Stuck([self.table.starts[start]], [], [], 0, 0)

    def run(self, tokens: Sequence[Any], at: Stuck) -> tuple[bool, Any]:
        """Goes on from ``at`` over ``tokens``; the last one is ``$END``.

        Returns (True, value), or (False, None) with ``at`` moved to where it is stuck.
        """
        actions, gotos, rules = self.table.actions, self.table.gotos, self._rules
        builder = self._actions
        states, values, starts = at.states, at.values, at.starts
        end = at.end
        for index in range(at.index, len(tokens)):
            token = tokens[index]
            kind = token[0]
            while True:
                step = actions[states[-1]].get(kind)
                if step is None:
                    if kind == "WHERE":
                        kind = "NAME"
                        continue
                    at.index, at.end = index, end
                    return False, None
                if step >= 0:
                    if kind == END:
                        return True, values[-1]
                    states.append(step)
                    values.append(token)
                    starts.append(token[2])
                    end = token[3]
                    break
                left, length, action = rules[~step]
                if action is None:
                    states[-1] = gotos[states[-2]][left]
                    continue
                if length:
                    children = values[-length:]
                    del values[-length:], states[-length:]
                    if length > 1:
                        del starts[1 - length :]
                    values.append(action(builder, children, starts[-1], end))
                else:
                    starts.append(token[2])
                    values.append(action(builder, [], token[2], token[2]))
                states.append(gotos[states[-1]][left])
        raise AssertionError("the end of the line was not reached")

    def accepts(self, states: list[int], kind: str) -> bool:
        """Whether a token of this kind would be shifted; builds nothing."""
        actions, gotos, rules = self.table.actions, self.table.gotos, self._rules
        stack = list(states)
        while True:
            step = actions[stack[-1]].get(kind)
            if step is None:
                return False
            if step >= 0:
                return True
            left, length, _ = rules[~step]
            if length:
                del stack[-length:]
            stack.append(gotos[stack[-1]][left])

    def accepted(self, states: list[int]) -> set[str]:
        """All kinds of tokens that would be shifted next."""
        return {kind for kind in self.table.actions[states[-1]] if self.accepts(states, kind)}
