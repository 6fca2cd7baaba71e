"""While a check runs: requests are answered, edits drop it, what is cancelled is not done."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from tests.lsp.raw import Raw

SLOW = """
import time
from tessera_lang.driver.session import Session
from tessera_lang.cancellation import pause
from tessera_lsp.ide import hover, symbols
from tessera_lsp.server import main

check, said = Session.check, hover.hover

def slow(session, path, **more):
    until = time.monotonic() + (4.0 if "slow" in session.source(path).text else 0.0)
    while time.monotonic() < until:
        pause()
        time.sleep(0.001)
    return check(session, path, **more)

def busy(document, offset):
    if "busy" in document.file.text:
        time.sleep(2.5)
    return said(document, offset)

Session.check, hover.hover = slow, busy
main.main()
"""


@pytest.fixture
def server() -> Any:
    with Raw([sys.executable, "-c", SLOW]) as raw:
        yield raw


def open_only(server: Raw, uri: str, text: str) -> None:
    item = {"uri": uri, "languageId": "tessera", "version": 1, "text": text}
    server.tell("textDocument/didOpen", textDocument=item)


def answers(server: Raw, first: int, count: int) -> dict[int, dict[str, Any]]:
    """The answers to requests by id, as they come."""
    found: dict[int, dict[str, Any]] = {}
    while len(found) < count:
        message = server.until(lambda m: "id" in m and "method" not in m)
        if message["id"] >= first:
            found[message["id"]] = message
    return found


def hover(server: Raw, uri: str, number: int) -> None:
    where = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}}
    server.send({"jsonrpc": "2.0", "id": number, "method": "textDocument/hover", "params": where})


def test_requests_are_answered_while_a_check_runs(server: Raw) -> None:
    open_only(server, "untitled:a", "x = 1  # slow\n")
    time.sleep(0.3)
    start = time.monotonic()
    assert server.at("hover", "untitled:a", 0, 0) is not None
    assert server.at("completion", "untitled:a", 0, 0)["items"]
    assert time.monotonic() - start < 2.0  # the check takes four seconds
    assert server.diagnostics("untitled:a", 1) == []


def test_an_edit_drops_a_check(server: Raw) -> None:
    open_only(server, "untitled:a", "x = 1  # slow\n")
    time.sleep(0.3)
    start = time.monotonic()
    server.change("untitled:a", 2, {"text": "x = bad\n"})
    (d,) = server.diagnostics("untitled:a", 2)
    assert d["code"] == "T0101" and time.monotonic() - start < 2.0
    assert all(p["version"] == 2 for p in server.published)


def test_the_file_that_is_looked_at_goes_first(server: Raw) -> None:
    for i in range(40):
        open_only(server, f"untitled:{i}", "x = bad\n")
    server.published.clear()
    open_only(server, "untitled:slow", "x = 1  # slow\n")
    server.change("untitled:7", 2, {"text": "x = worse\n"})
    (d,) = server.diagnostics("untitled:7", 2)
    assert "worse" in d["message"]
    assert not any(p["uri"] == "untitled:slow" for p in server.published)


def test_a_hundred_cancels(server: Raw) -> None:
    """Behind a request that takes long: answered before it, as cancelled, and not done."""
    server.open("untitled:a", "x = 1  # busy\n")
    start = time.monotonic()
    for number in range(1000, 1101):
        hover(server, "untitled:a", number)
    for number in range(1001, 1101):
        server.tell("$/cancelRequest", id=number)
    found = answers(server, 1000, 101)
    assert list(found)[-1] == 1000 and found.pop(1000)["result"]
    assert {a["error"]["code"] for a in found.values()} == {-32800}
    assert server.at("hover", "untitled:a", 0, 0) is not None
    assert time.monotonic() - start < 60.0  # a hundred would take four minutes


def test_a_hundred_edits_a_second(server: Raw) -> None:
    server.open("untitled:a", "x = 1\n")
    for version in range(2, 102):
        word = "bad" if version % 2 else "slow"
        server.change("untitled:a", version, {"text": f"x = {version} # {word}\ny = z{version}\n"})
        time.sleep(0.01)
    server.change("untitled:a", 102, {"text": "y = last\n"})
    start = time.monotonic()
    (d,) = server.diagnostics("untitled:a", 102)
    assert "last" in d["message"] and time.monotonic() - start < 1.0


def test_after_the_end_and_with_wrong_parameters(server: Raw) -> None:
    """Both are answered with an error."""
    server.send({"jsonrpc": "2.0", "id": 500, "method": "textDocument/hover", "params": {"a": 1}})
    assert answers(server, 500, 1)[500]["error"]["code"] == -32602
    server.ask("shutdown")
    hover(server, "untitled:a", 501)
    assert answers(server, 501, 1)[501]["error"]["code"] == -32600
