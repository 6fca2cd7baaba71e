"""Diagnostics that the editor asks for: of files, of the workspace, and what is as it was."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.raw import Raw

BAD = "y = nothing\n"
SLOW = """\
@kernel tile[(128,)] grid[(1,)]
def copy(x: f32[512], out: mut f32[512]):
    t = tile_linear_id()
    for k in range(4):
        out[t * 4 + k] = x[t * 4 + k]
"""


class Pulling(Raw):
    """A client that asks. ``refreshes``: how often it was told to ask again."""

    def __init__(self, folder: Path | None = None, refresh: bool = False) -> None:
        super().__init__(workspace={"diagnostics": {"refreshSupport": refresh}})
        self.folder = folder

    def __enter__(self) -> Pulling:
        folders = [{"uri": self.folder.as_uri(), "name": "w"}] if self.folder else None
        self.initialized = self.ask(
            "initialize", processId=None, rootUri=None, workspaceFolders=folders,
            capabilities=self.capabilities, initializationOptions={"diagnostics": "pull"},
        )  # fmt: skip
        self.tell("initialized")
        return self

    def opens(self, uri: str, text: str) -> None:
        item = {"uri": uri, "languageId": "tessera", "version": 1, "text": text}
        self.tell("textDocument/didOpen", textDocument=item)

    def pull(self, uri: str, before: str | None = None) -> dict[str, Any]:
        more = {} if before is None else {"previousResultId": before}
        return self.ask("textDocument/diagnostic", textDocument={"uri": uri}, **more)

    def pull_all(self, before: list[dict[str, str]], **more: Any) -> list[dict[str, Any]]:
        found = self.ask("workspace/diagnostic", previousResultIds=before, **more)
        return found["items"]


def codes(report: dict[str, Any]) -> list[str]:
    return sorted(d["code"] for d in report["items"])


@pytest.mark.slow
def test_the_capability_is_there_where_it_is_asked_for() -> None:
    with Pulling() as raw:
        told = raw.initialized["capabilities"]["diagnosticProvider"]
        assert told["workspaceDiagnostics"] and told["interFileDependencies"]
    with Raw() as raw:
        assert "diagnosticProvider" not in raw.initialized["capabilities"]


def test_a_file(tmp_path: Path) -> None:
    """All at once, as the editor could not be told later; nothing is sent unasked."""
    uri = (tmp_path / "a.tessera").as_uri()
    with Pulling() as raw:
        raw.opens(uri, SLOW)
        first = raw.pull(uri)
        assert first["kind"] == "full" and codes(first) == ["P1002", "P1002"]
        same = raw.pull(uri, first["resultId"])
        assert same == {"kind": "unchanged", "resultId": first["resultId"]}
        raw.change(uri, 2, {"text": SLOW + BAD})
        second = raw.pull(uri, first["resultId"])
        assert second["kind"] == "full" and "T0101" in codes(second)
        assert raw.published == []


def test_the_editor_is_told_when_there_is_more(tmp_path: Path) -> None:
    uri = (tmp_path / "a.tessera").as_uri()
    with Pulling(refresh=True) as raw:
        raw.opens(uri, SLOW)
        assert codes(raw.pull(uri)) == []
        asked = raw.until(lambda m: m.get("method") == "workspace/diagnostic/refresh")
        raw.send({"id": asked["id"], "result": None})
        assert codes(raw.pull(uri)) == ["P1002", "P1002"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name, text in (("bad", BAD), ("slow", SLOW), ("sub/uses", "import bad\n"),
                       ("good", "x = 1\n")):  # fmt: skip
        (tmp_path / f"{name}.tessera").write_text(text)
    return tmp_path


def test_the_workspace(folder: Path) -> None:
    with Pulling(folder) as raw:
        opened = (folder / "good.tessera").as_uri()
        raw.opens(opened, "x = nothing\n")
        items = raw.pull_all([])
        found = {i["uri"].rpartition("/")[2]: codes(i) for i in items}
        assert found == {"bad.tessera": ["T0101"], "slow.tessera": ["P1002", "P1002"],
                         "uses.tessera": ["T0130"], "good.tessera": ["T0101"]}  # fmt: skip
        assert next(i["version"] for i in items if i["uri"] == opened) == 1
        before = [{"uri": i["uri"], "value": i["resultId"]} for i in items]
        assert {i["kind"] for i in raw.pull_all(before)} == {"unchanged"}
        (folder / "bad.tessera").write_text("y = 1\n")
        changed = [i for i in raw.pull_all(before) if i["kind"] == "full"]
        assert [(i["uri"].rpartition("/")[2], codes(i)) for i in changed] == [("bad.tessera", [])]


@pytest.mark.slow
def test_the_workspace_in_parts(folder: Path) -> None:
    with Pulling(folder) as raw:
        raw.number += 1
        params = {"previousResultIds": [], "partialResultToken": "part"}
        raw.send({"id": raw.number, "method": "workspace/diagnostic", "params": params})
        found: list[str] = []
        while True:
            message = raw.messages.get(timeout=20)
            if message.get("method") == "$/progress":
                assert message["params"]["token"] == "part"
                found += [i["uri"].rpartition("/")[2] for i in message["params"]["value"]["items"]]
            elif message.get("id") == raw.number:
                assert message["result"]["items"] == []
                break
        assert sorted(found) == ["bad.tessera", "good.tessera", "slow.tessera", "uses.tessera"]


@pytest.mark.slow
def test_a_question_about_the_workspace_is_cancelled(folder: Path) -> None:
    for i in range(100):
        (folder / f"more{i}.tessera").write_text(SLOW.replace("512", str(512 + i)))
    with Pulling(folder) as raw:
        raw.number += 1
        params: dict[str, Any] = {"previousResultIds": []}
        raw.send({"id": raw.number, "method": "workspace/diagnostic", "params": params})
        time.sleep(0.2)
        raw.tell("$/cancelRequest", id=raw.number)
        answer = raw.until(lambda m: m.get("id") == raw.number)
        assert answer["error"]["code"] == -32800
        uri = (folder / "good.tessera").as_uri()
        assert codes(raw.pull(uri)) == []


@pytest.mark.slow
def test_asked_for_sent_and_printed_are_the_same(folder: Path) -> None:
    def key(d: dict[str, Any]) -> tuple[str, int, int]:
        return d["code"], d["range"]["start"]["line"], d["range"]["start"]["character"]

    for path in sorted(folder.glob("*.tessera")):
        with Pulling() as raw:
            raw.opens(path.as_uri(), path.read_text())
            asked = sorted(key(d) for d in raw.pull(path.as_uri())["items"])
        with Raw() as raw:
            raw.open(path.as_uri(), path.read_text())
            sent = raw.published[-1]["diagnostics"]
            if path.stem == "slow":
                sent = raw.diagnostics(path.as_uri(), 1)
        done = subprocess.run(
            [sys.executable, "-m", "tessera_lang.driver.cli", "check", str(path), "--lints",
             "--format=json"], capture_output=True, text=True, check=False,
        )  # fmt: skip
        printed = [json.loads(line) for line in done.stdout.splitlines()]
        assert asked == sorted(map(key, sent))
        told = [p for p in printed if p["code"] != "P1003"]  # of occupancy a lens tells
        assert [k[0] for k in asked] == sorted(p["code"] for p in told)
