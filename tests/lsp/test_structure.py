"""Type definitions, callers, links, colours of parts, formatting of lines: by the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.raw import Raw, edit
from tests.lsp.test_edits import applied
from tests.lsp.test_navigation import HELPER, TEXT, ask, position

SUFFIX = """
@test
def adds() -> f32[4]:
    a: f32[4] = op.zeros((4,))
    assert clamp(a[0], 0.0) == half(0.0)

"""
WHOLE = TEXT + SUFFIX


@pytest.fixture(scope="module")
def server() -> Iterator[Raw]:
    with Raw() as raw:
        yield raw


@pytest.fixture
def files(server: Raw, tmp_path: Path) -> tuple[str, str]:
    """The user and the helper, whose file is not open."""
    helper, user = tmp_path / "helper.tessera", tmp_path / "user.tessera"
    helper.write_text(HELPER)
    server.open(user.as_uri(), WHOLE)
    return user.as_uri(), helper.as_uri()


def text_at(found: dict[str, Any], text: str = WHOLE) -> str:
    start, end = found["range"]["start"], found["range"]["end"]
    lines = text.splitlines()
    assert start["line"] == end["line"]
    return lines[start["line"]][start["character"] : end["character"]]


@pytest.mark.parametrize(
    ("piece", "type_"),
    [("clamp(¦x[i]", "f32[n]"), ("x: f32[¦n]", "n"), ("ou¦t[i] =", "mut f32[n]"),
     ("clamp(¦a[0]", "f32[4]"), ("def a¦dds", None), ("¦acc += ", None), ("¦min(", None)],
)  # fmt: skip
def test_type_definition(
    server: Raw, files: tuple[str, str], piece: str, type_: str | None
) -> None:
    found = ask(server, "typeDefinition", files[0], piece, WHOLE)
    assert (found if found is None else text_at(found)) == type_


def prepared(server: Raw, uri: str, piece: str, text: str = WHOLE) -> dict[str, Any]:
    (item,) = ask(server, "prepareCallHierarchy", uri, piece, text)
    return item


def test_incoming_calls(server: Raw, files: tuple[str, str]) -> None:
    item = prepared(server, files[0], "def cla¦mp")
    assert item["name"] == "clamp" and item["kind"] == 12
    found = server.ask("callHierarchy/incomingCalls", item=item)
    assert [(c["from"]["name"], len(c["fromRanges"])) for c in found] == [("scale", 1), ("adds", 1)]
    assert text_at({"range": found[0]["fromRanges"][0]}) == "clamp"
    item = prepared(server, files[0], "+= ha¦lf(acc")
    assert item["uri"] == files[1]
    found = server.ask("callHierarchy/incomingCalls", item=item)
    callers = {(c["from"]["name"], c["from"]["uri"]) for c in found}
    assert callers == {("helper.tessera", files[1]), ("scale", files[0]), ("adds", files[0])}
    top = next(c["from"] for c in found if c["from"]["name"] == "helper.tessera")
    assert server.ask("callHierarchy/incomingCalls", item=top) == []
    assert [c["to"]["name"] for c in server.ask("callHierarchy/outgoingCalls", item=top)] == [
        "half"
    ]


def test_outgoing_calls(server: Raw, files: tuple[str, str]) -> None:
    item = prepared(server, files[0], "def sca¦le")
    assert item["kind"] == 24
    found = server.ask("callHierarchy/outgoingCalls", item=item)
    assert [c["to"]["name"] for c in found] == ["clamp", "half"]
    assert ask(server, "prepareCallHierarchy", files[0], "ac¦c = clamp", WHOLE) == []


def test_links(server: Raw, files: tuple[str, str]) -> None:
    text = "x = 1  # tessera: ignore[T0412, P9999]\n" + TEXT
    uri = files[0]
    server.change(uri, 2, {"text": text})
    found = server.ask("textDocument/documentLink", textDocument={"uri": uri})
    names = [(text_at(link, text), link["target"].rpartition("/")[2]) for link in found]
    assert names == [("T0412", "T0412.md"), ("std.reduce", "reduce.tessera"),
                     ("helper", "helper.tessera")]  # fmt: skip


# --- colours ---------------------------------------------------------------------------------


def test_colours_of_a_range_and_what_changes(server: Raw, files: tuple[str, str]) -> None:
    uri, document = files[0], {"uri": files[0]}
    server.change(uri, 2, {"text": TEXT})
    first = server.ask("textDocument/semanticTokens/full", textDocument=document)
    where = {"start": {"line": 6, "character": 0}, "end": {"line": 8, "character": 0}}
    part = server.ask("textDocument/semanticTokens/range", textDocument=document, range=where)
    assert 10 < len(part["data"]) < len(first["data"]) and part["data"][0] == 6
    inside = absolute(first["data"])
    assert set(absolute(part["data"])) == {t for t in inside if 6 <= t[0] < 8}
    line, text = 6, TEXT
    for version, (new, lo, hi) in enumerate(
        (("confine", 4, 9), ("\n\n", 0, 0), ("", 0, 0), ("q = 1\n", 0, 0)), 3
    ):
        change = edit(line, lo, hi, new)
        server.change(uri, version, change)
        text = applied(text, [{"range": change["range"], "newText": new}])
        delta = server.ask("textDocument/semanticTokens/full/delta", textDocument=document,
                           previousResultId=first["resultId"])  # fmt: skip
        data = list(first["data"])
        for e in sorted(delta["edits"], key=lambda e: -e["start"]):
            data[e["start"] : e["start"] + e["deleteCount"]] = e.get("data", [])
        whole = server.ask("textDocument/semanticTokens/full", textDocument=document)
        assert data == whole["data"]
        first = whole
    unknown = server.ask("textDocument/semanticTokens/full/delta", textDocument=document,
                         previousResultId="none of ours")  # fmt: skip
    assert unknown["data"] == first["data"]


def absolute(data: list[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    line = column = 0
    for i in range(0, len(data), 5):
        column = data[i + 1] + (column if data[i] == 0 else 0)
        line += data[i]
        found.append((line, column, *data[i + 2 : i + 5]))
    return found


# --- formatting ------------------------------------------------------------------------------

UGLY = """x=1
y   =  2




def f( a ):
    b=a+1
    c   =   [1,
  2]
    return   b
z=f( 3 )
"""
OPTIONS = {"tabSize": 4, "insertSpaces": True}


def formatted(server: Raw, uri: str, first: int, last: int, text: str) -> str:
    where = {"start": {"line": first, "character": 0}, "end": {"line": last, "character": 0}}
    found = server.ask("textDocument/rangeFormatting", textDocument={"uri": uri}, range=where,
                       options=OPTIONS)  # fmt: skip
    return applied(text, found)


def test_formatting_of_lines(server: Raw) -> None:
    uri = "untitled:ugly"
    server.open(uri, UGLY)
    assert formatted(server, uri, 0, 1, UGLY) == UGLY.replace("x=1", "x = 1")
    after = formatted(server, uri, 6, 8, UGLY)
    assert "def f(a):\n    b = a + 1\n" in after and "y   =  2" in after and "z=f( 3 )" in after
    whole = server.ask("textDocument/formatting", textDocument={"uri": uri}, options=OPTIONS)
    assert formatted(server, uri, 0, 12, UGLY) == applied(UGLY, whole)
    server.change(uri, 2, {"text": UGLY + "q = )\n"})
    assert formatted(server, uri, 0, 12, UGLY) == UGLY


def test_formatting_above_a_new_line(server: Raw) -> None:
    uri, text = "untitled:typed", "x=1\n\n\ndef f(a):\n    b=a+1\n    \n    return b\n"
    server.open(uri, text)
    where = {"textDocument": {"uri": uri}, "position": {"line": 5, "character": 4}}
    found = server.ask("textDocument/onTypeFormatting", **where, ch="\n", options=OPTIONS)
    assert applied(text, found) == text.replace("b=a+1", "b = a + 1")


def test_formatting_of_tabs(server: Raw) -> None:
    uri, text = "untitled:tabs", "def f(a):\n\tif a:\n\t\treturn  1\n\treturn 2\n"
    server.open(uri, text)
    found = server.ask("textDocument/formatting", textDocument={"uri": uri}, options=OPTIONS)
    assert applied(text, found) == ("def f(a):\n    if a:\n        return 1\n    return 2\n")


def test_what_is_told_names_its_page_and_what_is_not_needed(server: Raw, tmp_path: Path) -> None:
    uri = (tmp_path / "told.tessera").as_uri()
    found = server.open(uri, "def f():\n    return 1\n    x = 2\ny = nothing\n")
    shown = {d["code"]: d for d in found}
    assert shown["T0119"]["tags"] == [1] and "tags" not in shown["T0101"]
    assert shown["T0101"]["codeDescription"]["href"].endswith("/T0101.md")
    assert position("a\nb", "¦b") == {"line": 1, "character": 0}
