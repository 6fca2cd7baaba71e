"""Formatting and quick fixes, through the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lsp.raw import Raw

BROKEN = """\
# 😋
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], out: f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i] * factr + out2[i]
factr2 = 1
"""


@pytest.fixture
def server() -> Any:
    with Raw() as raw:
        yield raw


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """A text after edits, in UTF-16 columns."""
    lines = text.split("\n")

    def offset(at: dict[str, int]) -> int:
        head = lines[at["line"]].encode("utf-16-le")[: 2 * at["character"]].decode("utf-16-le")
        return sum(len(line) + 1 for line in lines[: at["line"]]) + len(head)

    for e in sorted(edits, key=lambda e: offset(e["range"]["start"]), reverse=True):
        lo, hi = offset(e["range"]["start"]), offset(e["range"]["end"])
        text = text[:lo] + e["newText"] + text[hi:]
    return text


def format_of(server: Raw, uri: str) -> list[dict[str, Any]]:
    options = {"tabSize": 2, "insertSpaces": True}
    return server.ask("textDocument/formatting", textDocument={"uri": uri}, options=options)


def test_formatting(server: Raw, tmp_path: Path) -> None:
    provided = server.initialized["capabilities"]
    assert provided["documentFormattingProvider"]
    uri = (tmp_path / "a.tessera").as_uri()
    text = "# 😋\nx = 1\ny  =2\n\n\n\n\nz= 3\nlast = 4\n"
    server.open(uri, text)
    edits = format_of(server, uri)
    assert applied(text, edits) == "# 😋\nx = 1\ny = 2\n\n\nz = 3\nlast = 4\n"
    (edit,) = edits
    assert edit["range"]["start"]["line"] == 2 and edit["range"]["end"]["line"] == 8
    server.change(uri, 2, {"text": "x = 1\n"})
    assert format_of(server, uri) == []
    server.change(uri, 3, {"text": "x = 1\ny=2"})
    assert applied("x = 1\ny=2", format_of(server, uri)) == "x = 1\ny = 2\n"
    server.change(uri, 4, {"text": "x = (\ny=2"})
    assert format_of(server, uri) == []


def actions_at(
    server: Raw, uri: str, line: int, shown: list[dict[str, Any]], **context: Any
) -> Any:
    at = {"line": line, "character": 0}
    end = {"line": line, "character": 1000}
    return server.ask("textDocument/codeAction", textDocument={"uri": uri},
                      range={"start": at, "end": end},
                      context={"diagnostics": shown, **context})  # fmt: skip


def test_quick_fixes(server: Raw, tmp_path: Path) -> None:
    assert server.initialized["capabilities"]["codeActionProvider"]["codeActionKinds"] == [
        "quickfix",
        "source.fixAll",
    ]
    uri = (tmp_path / "b.tessera").as_uri()
    shown = server.open(uri, BROKEN)
    found = actions_at(server, uri, 4, shown)
    titles = [(a["title"], a["isPreferred"], a["kind"]) for a in found]
    assert titles[0] == ("add `mut`", True, "quickfix")
    assert {t[0] for t in titles} >= {"add `mut`", "write `factr2`"} or len(titles) >= 2
    first = found[0]
    assert [d["code"] for d in first["diagnostics"]] == ["T0111"]
    after = applied(BROKEN, first["edit"]["changes"][uri])
    assert after == BROKEN.replace("out: f32", "out: mut f32")
    assert actions_at(server, uri, 1, shown) == []
    assert actions_at(server, uri, 4, shown, only=["refactor"]) == []
    assert actions_at(server, uri, 4, shown, only=["quickfix"]) == found
