"""Builds what is made from the grammar: the parser's table and the editors' grammar.

Run ``python -m tessera_grammar.build`` after a change of ``tessera.lark`` or
``keywords.py``; a test compares the committed files with a fresh build. The only user of
lark. Must not know the compiler.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tessera_grammar.parse_table import TABLE_FILE
from tessera_grammar.textmate import textmate_grammar

GRAMMAR_FILE = Path(__file__).with_name("tessera.lark")
TEXTMATE_FILE = "vscode-extension/syntaxes/tessera.tmLanguage.json"
STARTS = ("line", "tests")


def lark_table() -> tuple[Any, dict[str, str]]:
    """lark's LALR table over numbered states, and the text of each literal terminal."""
    from lark import Lark
    from lark.lexer import Lexer

    class NoLexer(Lexer):
        def __init__(self, _conf: Any) -> None:
            pass

        def lex(self, lexer_state: Any, parser_state: Any) -> Any:
            return iter(())

    lark: Any = Lark(
        GRAMMAR_FILE.read_text(encoding="utf-8"),
        parser="lalr",
        lexer=NoLexer,
        start=list(STARTS),
        strict=True,
    )
    texts = {t.name: str(t.pattern.value) for t in lark.terminals if t.pattern is not None}
    return lark.parser.parser._parse_table, texts


def build_table() -> str:
    """The table as JSON text, the same for the same grammar."""
    table, texts = lark_table()
    number = _number_states(table)
    states = sorted(number, key=number.__getitem__)
    rules = sorted({_rule_key(rule) for state in states for _, rule in _reductions(table, state)})
    rule_number = {rule: i for i, rule in enumerate(rules)}
    terminals: dict[str, int] = {}
    nonterminals = {name: i for i, name in enumerate(sorted({r[0] for r in rules} | set(STARTS)))}
    rows: dict[tuple[int, ...], int] = {}
    actions: list[int] = []
    gotos: list[list[int]] = []
    for state in states:
        row: list[int] = []
        goto: list[int] = []
        for symbol, (action, argument) in sorted(table.states[state].items()):
            if symbol in nonterminals:
                goto += [nonterminals[symbol], number[argument]]
                continue
            name = str(texts.get(symbol, symbol))
            column = terminals.setdefault(name, len(terminals))
            shift = action.name == "Shift"
            row += [column, number[argument] if shift else ~rule_number[_rule_key(argument)]]
        if state in table.end_states.values():
            row += [terminals.setdefault("$END", len(terminals)), number[state]]
        actions.append(rows.setdefault(tuple(row), len(rows)))
        gotos.append(goto)
    data = {
        "terminals": list(terminals),
        "nonterminals": list(nonterminals),
        "rules": [[nonterminals[left], len(body), act or None] for left, body, act in rules],
        "rows": [list(row) for row in rows],
        "actions": actions,
        "gotos": gotos,
        "starts": {name: number[table.start_states[name]] for name in STARTS},
    }
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _number_states(table: Any) -> dict[Any, int]:
    """Numbers by breadth-first walk in the order of symbols, so that runs agree."""
    number: dict[Any, int] = {}
    queue = [table.start_states[name] for name in STARTS]
    for state in queue:
        if state in number:
            continue
        number[state] = len(number)
        for _, (action, argument) in sorted(table.states[state].items()):
            if action.name == "Shift":
                queue.append(argument)
    return number


def _reductions(table: Any, state: Any) -> list[tuple[str, Any]]:
    entries = table.states[state].items()
    return [(symbol, arg) for symbol, (action, arg) in entries if action.name == "Reduce"]


def _rule_key(rule: Any) -> tuple[str, tuple[str, ...], str]:
    """Left side, right side and action (empty where the only value passes on)."""
    name = str(rule.origin.name.value if hasattr(rule.origin.name, "value") else rule.origin.name)
    body = tuple(str(symbol.name) for symbol in rule.expansion)
    action = str(rule.alias) if rule.alias else ""
    if not action and len(body) != 1:
        raise ValueError(f"{name}: {body} needs an action")
    return name, body, action


def main(root: Path) -> None:
    """Writes the committed files below ``root``, a checkout."""
    Path(TABLE_FILE).write_text(build_table(), encoding="utf-8", newline="\n")
    target = root / TEXTMATE_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(textmate_grammar(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
