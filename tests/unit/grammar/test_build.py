"""The committed files are what the grammar makes, and the table is lark's own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tessera_grammar import build, keywords
from tessera_grammar.parse_table import TABLE_FILE, load_table
from tessera_grammar.textmate import textmate_grammar

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_table_is_fresh() -> None:
    assert Path(TABLE_FILE).read_text(encoding="utf-8") == build.build_table()


def test_the_committed_editor_grammar_is_fresh() -> None:
    committed = (ROOT / build.TEXTMATE_FILE).read_text(encoding="utf-8")
    assert committed == textmate_grammar()


@pytest.mark.parametrize("seed", ["0", "1"])
@pytest.mark.sample(1)
def test_the_build_does_not_depend_on_the_hash_seed(seed: str) -> None:
    code = "from tessera_grammar.build import build_table; print(build_table(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "grammar")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert made.stdout == Path(TABLE_FILE).read_text(encoding="utf-8")


def test_every_keyword_is_a_terminal() -> None:
    terminals = {t for row in load_table().actions for t in row}
    words = {t for t in terminals if t.isalpha() and t not in ("NAME", "NUMBER", "STRING", "WHERE")}
    assert words == set(keywords.HARD_KEYWORDS)


def test_no_builtin_is_a_keyword_and_all_have_a_line_of_doc() -> None:
    assert not set(keywords.BUILTINS) & keywords.HARD_KEYWORDS
    for name, builtin in keywords.BUILTINS.items():
        assert builtin.name == name
        assert builtin.doc.endswith(".") and "\n" not in builtin.doc


def test_the_editor_grammar_knows_every_keyword() -> None:
    text = json.dumps(json.loads(textmate_grammar()))
    for word in keywords.HARD_KEYWORDS:
        assert word in text


def test_the_machine_takes_what_lark_takes() -> None:
    """Random token rows, most of them broken: both parsers stop at the same token."""
    from tessera_lang.syntax.lalr_driver import END, Machine
    from tessera_lang.syntax.lexer import Token
    from tessera_lang.syntax.statements import Actions

    table, texts = build.lark_table()
    names = {text: name for name, text in texts.items()}
    terminals = sorted({t for row in load_table().actions for t in row} - {END})
    machine = Machine(Actions())
    source = random.Random(7)
    lengths: list[int] = []
    for _ in range(3000):
        kinds: list[str] = []
        for _ in range(source.randint(1, 12)):
            at = machine.begin("line")
            row = [Token(kind, "x" if kind == "NAME" else "1", 0, 1) for kind in kinds]
            machine.run([*row, Token("nothing", "", 0, 0)], at)
            fits = sorted(machine.accepted(at.states) - {END})
            kinds.append(source.choice(fits if fits and source.random() < 0.9 else terminals))
        row = [Token(k, "x" if k == "NAME" else "1", 0, 1) for k in kinds]
        at = machine.begin("line")
        done, _ = machine.run([*row, Token(END, "", 1, 1)], at)
        stopped = len(row) + 1 if done else at.index
        assert stopped == _lark_stop(table, [names.get(k, k) for k in kinds]), kinds
        lengths.append(stopped)
    assert max(lengths) > 8


def _lark_stop(table: Any, kinds: list[str]) -> int:
    """How many tokens lark's table takes, counting the end."""
    states = [table.start_states["line"]]
    for i, kind in enumerate([*kinds, "$END"]):
        while True:
            if kind == "$END" and states[-1] == table.end_states["line"]:
                return i + 1
            entry = table.states[states[-1]].get(kind)
            if entry is None and kind == "WHERE":
                entry = table.states[states[-1]].get("NAME")
            if entry is None:
                return i
            action, argument = entry
            if action.name == "Shift":
                states.append(argument)
                break
            if argument.expansion:
                del states[-len(argument.expansion) :]
            states.append(table.states[states[-1]][argument.origin.name][1])
    return len(kinds)
