"""Whatever a diagnostic points at, its text can be drawn and is safe for a terminal."""

from __future__ import annotations

import json
import re

import hypothesis.strategies as st
from hypothesis import given

from tessera_lang.diagnostics import Diagnostic, Edit, Fix, Label
from tessera_lang.diagnostics.render import render
from tessera_lang.source import Anchor, SourceFile, Span

PIECES = st.sampled_from(["a", " ", "\t", "\n", "\r\n", "\r", "é", "日", "\U0001f600", "\u0301",
                          "\u202e", "\x1b[", "\x00", "\ufeff", "\ud800", "x" * 300])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=30).map("".join)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@st.composite
def diagnostics(draw: st.DrawFn) -> tuple[SourceFile, Diagnostic]:
    text = draw(TEXTS)
    anchor = Anchor("f", draw(st.integers(0, len(text))))

    def span() -> Span:
        low, high = sorted(draw(st.tuples(*[st.integers(0, len(text) + 2)] * 2)))
        return Span(anchor, low - anchor.offset, high - anchor.offset)

    labels = tuple(Label(span(), draw(TEXTS)) for _ in range(draw(st.integers(0, 3))))
    edits = tuple(Edit(span(), draw(TEXTS)) for _ in range(draw(st.integers(0, 2))))
    fixes = (Fix(draw(TEXTS), edits),) if edits else ()
    return SourceFile("f", text), Diagnostic(
        "T0304", draw(TEXTS), span(), draw(TEXTS), labels=labels, notes=(draw(TEXTS),), fixes=fixes
    )


@given(diagnostics())
def test_human(case: tuple[SourceFile, Diagnostic]) -> None:
    file, diagnostic = case
    plain = render([diagnostic], {"f": file})
    assert not CONTROL.search(plain)
    colored = render([diagnostic], {"f": file}, color=True)
    bare = re.sub(r"\x1b\[[\d;]*m", "", colored)
    assert [r.rstrip() for r in bare.split("\n")] == [r.rstrip() for r in plain.split("\n")]
    assert max(map(len, plain.splitlines())) < 10_000


@given(diagnostics())
def test_lines(case: tuple[SourceFile, Diagnostic]) -> None:
    file, diagnostic = case
    (short,) = render([diagnostic], {"f": file}, "short").splitlines()
    assert not CONTROL.search(short)
    (line,) = render([diagnostic], {"f": file}, "json").splitlines()
    record = json.loads(line)
    assert (record["line"], record["column"]) <= (record["end_line"], record["end_column"])
    assert record["utf16_column"] >= record["column"]
