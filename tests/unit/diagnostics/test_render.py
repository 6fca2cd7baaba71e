"""What people and programs read."""

from __future__ import annotations

import json
import re

import pytest

from tessera_lang.diagnostics import Diagnostic, Edit, Fix, Label
from tessera_lang.diagnostics.render import Format, in_order, render, summary
from tessera_lang.diagnostics.terminal_text import LIMIT, clean, shown_line, width
from tessera_lang.source import Anchor, SourceFile, Span

TEXT = """\
def f(x: f32[n], out: f32[1]):
    acc = 0.0
\tfor k in range(i, n):  # 日本 é x
        out[0] = call(
            a,
            b)
    if a:
        b1
        b2
        b3
        b4
        b5
        b6
        b7
"""
ANCHOR = Anchor("a.tessera")
FILES = {"a.tessera": SourceFile("a.tessera", TEXT)}


def span(text: str, to: str = "") -> Span:
    start = TEXT.index(text)
    end = TEXT.index(to, start) + len(to) if to else start + len(text)
    return Span(ANCHOR, start, end)


def shown(diagnostic: Diagnostic, format: Format = "human") -> str:
    return render([diagnostic], FILES, format)


def test_primary_and_secondary_marks() -> None:
    d = Diagnostic(
        "T0304", "the index is no integer", span("i, n"), "two of them",
        labels=(Label(span("for"), "in this loop"), Label(span("range"), "called here"),
                Label(span("acc"), "set here")),
        notes=("first line\nsecond line",), helps=("use `int`",), certainty="estimated",
    )  # fmt: skip
    assert shown(d) == (
        "error[T0304]: the index is no integer\n"
        " --> a.tessera:3:17\n"
        "  |\n"
        "2 |     acc = 0.0\n"
        "  |     --- set here\n"
        "3 |     for k in range(i, n):  # 日本 é x\n"
        "  |     ---      ----- ^^^^ two of them\n"
        "  |     |        |\n"
        "  |     |        called here\n"
        "  |     in this loop\n"
        "  |\n"
        "  = note: first line\n"
        "          second line\n"
        "  = note: this is an estimate; it is not proved\n"
        "  = help: use `int`\n"
    )


def test_wide_characters_and_tabs_align() -> None:
    d = Diagnostic("T0304", "m", Span(ANCHOR, TEXT.index("é x") + 2, TEXT.index("é x") + 3), "here")
    source, marks = shown(d).splitlines()[3:5]
    assert width(source[: source.rindex("x")]) == marks.index("^")


def test_a_mark_over_lines() -> None:
    d = Diagnostic("T0304", "m", span("call(", "b)"), "this call")
    assert shown(d).splitlines()[3:] == [
        "4 |           out[0] = call(",
        "  |  __________________^",
        "5 | |             a,",
        "6 | |             b)",
        "  | |______________^ this call",
    ]


def test_a_long_mark_is_cut() -> None:
    d = Diagnostic("T0304", "m", span("if a", "b7\n"), "the body", severity="warning")
    assert shown(d).splitlines()[3:] == [
        " 7 | /     if a:",
        " 8 | |         b1",
        " 9 | |         b2",
        "...",
        "13 | |         b6",
        "14 | |         b7",
        "   | |__________^ the body",
    ]


def test_end_of_file_and_empty_spans() -> None:
    d = Diagnostic("T0304", "m", Span(ANCHOR, len(TEXT), len(TEXT) + 9), "here")
    assert shown(d).splitlines()[-2:] == ["15 |", "   | ^ here"]
    empty = SourceFile("e", "")
    d = Diagnostic("T0304", "m", Span(Anchor("e"), 0, 0), "empty")
    assert render([d], {"e": empty}).splitlines()[-2:] == ["1 |", "  | ^ empty"]


def test_other_files() -> None:
    other = SourceFile("b.tessera", "def g(): pass\n")
    d = Diagnostic(
        "T0304", "m", span("acc"), "here",
        labels=(Label(Span(Anchor("b.tessera"), 4, 5), "declared there"),
                Label(Span(Anchor("gone.tessera"), 4, 5), "and there")),
    )  # fmt: skip
    text = render([d], {**FILES, "b.tessera": other})
    assert " ::: b.tessera:1:5\n  |\n1 | def g(): pass\n  |     - declared there\n" in text
    assert text.endswith(" ::: gone.tessera\n")


def test_fixes() -> None:
    at = TEXT.index("f32[1]")
    d = Diagnostic(
        "T0304", "m", span("out: "), "here",
        fixes=(
            Fix("declare it `mut`", (Edit(Span(ANCHOR, at, at), "mut "),)),
            Fix("remove the loop", (Edit(span("    acc = 0.0\n"), ""),), "unsafe"),
            Fix("add a line", (Edit(Span(ANCHOR, 0, 0), "import std\n"),)),
        ),
    )  # fmt: skip
    assert shown(d).splitlines()[5:] == [
        "help: declare it `mut`",
        "  |",
        "1 - def f(x: f32[n], out: f32[1]):",
        "1 + def f(x: f32[n], out: mut f32[1]):",
        "help: remove the loop (look before you apply)",
        "  |",
        "2 -     acc = 0.0",
        "help: add a line",
        "  |",
        "1 + import std",
    ]


def test_without_a_place() -> None:
    assert shown(Diagnostic("T0801", "no driver", helps=("install one",))) == (
        "error[T0801]: no driver\n  = help: install one\n"
    )


def test_terminals_are_safe() -> None:
    evil = SourceFile("e\x1b[31m", "x = 1 # \x1b]0;title\x07 \u202egnirts\ud800\n")
    d = Diagnostic("T0304", "bad \x1b[2J\u2066\n name", Span(Anchor(evil.path), 0, 1), "a\nb\x00")
    for format in ("human", "short", "json"):
        text = render([d], {evil.path: evil}, format)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800]", text)
    assert "\\u{202e}gnirts\\u{d800}" in render([d], {evil.path: evil})
    assert clean("a\tb\r\nc") == "a    b  c"


def test_a_line_of_megabytes_is_cut() -> None:
    text = "x" * 3_000_000 + "!" + "y" * 2_000_000
    d = Diagnostic("T0304", "m", Span(Anchor("l"), 3_000_000, 3_000_001), "here")
    rows = render([d], {"l": SourceFile("l", text)}).splitlines()
    assert len(rows[3]) < LIMIT + 20
    assert rows[3][rows[4].index("^")] == "!"
    assert shown_line("x" * 200, 0).text.endswith("x...")


def test_colour_changes_nothing_but_colour() -> None:
    d = Diagnostic(
        "T0304", "m", span("call(", "b)"), "this call",
        labels=(Label(span("a,"), "one"), Label(span("out[0]"), "two")),
        fixes=(Fix("x", (Edit(span("acc"), "sum"),)),), notes=("n",),
    )  # fmt: skip
    colored = render([d], FILES, color=True)
    assert "\x1b[1;31m" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == render([d], FILES)


# --- order, limits, formats ------------------------------------------------------------------


def several() -> list[Diagnostic]:
    return [
        Diagnostic("T0305", "later", span("b7")),
        Diagnostic("T0304", "warned", span("acc"), severity="warning"),
        Diagnostic("T0801", "nowhere"),
        Diagnostic("T0305", "later", span("b7")),
        Diagnostic("T0304", "first", span("def")),
    ]


def test_order_and_duplicates() -> None:
    assert [d.message for d in in_order(several())] == ["nowhere", "first", "warned", "later"]
    assert summary(in_order(several())) == "3 errors, 1 warning"
    assert summary([]) == ""


def test_limit_shows_errors_first() -> None:
    text = render(several(), FILES, limit=3)
    assert "warned" not in text
    assert text.endswith("\n1 warning more not shown\n")
    assert "more" not in render(several(), FILES, limit=0)
    assert len(render(several(), FILES, "short", limit=1).splitlines()) == 4


def test_short() -> None:
    assert render(several(), FILES, "short").splitlines() == [
        "error[T0801]: nowhere",
        "a.tessera:1:1: error[T0304]: first",
        "a.tessera:2:5: warning[T0304]: warned",
        "a.tessera:14:9: error[T0305]: later",
    ]
    gone = Diagnostic("T0304", "m", Span(Anchor("gone"), 0, 1))
    assert render([gone], {}, "short") == "gone: error[T0304]: m\n"


def test_json() -> None:
    file = SourceFile("u", "a = '\U0001f600' + bcd\n")
    at = file.text.index("bcd")
    d = Diagnostic(
        "T0801", "m", Span(Anchor("u"), at, at + 3), "l",
        labels=(Label(Span(Anchor("u"), 0, 1), "t"),), notes=("n",), helps=("h",),
        fixes=(Fix("f", (Edit(Span(Anchor("u"), at, at + 3), "x"),), "unsafe"),),
    )  # fmt: skip
    (line,) = render([d], {"u": file}, "json").splitlines()
    place = {"file": "u", "line": 1, "column": 11, "end_line": 1, "end_column": 14}
    place |= {"utf16_column": 12, "utf16_end_column": 15}
    start = {"file": "u", "line": 1, "column": 1, "end_line": 1, "end_column": 2}
    start |= {"utf16_column": 1, "utf16_end_column": 2}
    assert json.loads(line) == {
        "schema": 1, "code": "T0801", "slug": "host-fault", "severity": "error", "message": "m",
        "certainty": "proved", **place, "label": "l", "labels": [{**start, "text": "t"}],
        "notes": ["n"], "helps": ["h"],
        "fixes": [
            {"title": "f", "applicability": "unsafe", "edits": [{**place, "replacement": "x"}]}
        ],
    }  # fmt: skip


@pytest.mark.parametrize("format", ["human", "short", "json"])
def test_nothing(format: Format) -> None:
    assert render([], {}, format) == ""
