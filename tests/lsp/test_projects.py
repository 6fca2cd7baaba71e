"""`tessera.toml` of a folder of the workspace, and the settings of the editor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.raw import Raw

BANKS = """\
@kernel tile[(32, 32)] shared(8_KiB) grid[(1,)]
def turned(x: f32[m, n], out: mut f32[n, m]):
    buf = tshared.alloc((32, 32), f32)
    buf[tile_id(0), tile_id(1)] = x[tile_id(0), tile_id(1)]
    tbarrier()
    out[tile_id(0), tile_id(1)] = buf[tile_id(1), tile_id(0)]
"""


class InFolders(Raw):
    def __init__(self, *folders: Path, options: Any = None) -> None:
        super().__init__()
        self.folders, self.options = folders, options

    def __enter__(self) -> InFolders:
        named = [{"uri": f.as_uri(), "name": f.name} for f in self.folders]
        self.initialized = self.ask(
            "initialize", processId=None, rootUri=None, capabilities={}, workspaceFolders=named,
            initializationOptions=self.options,
        )  # fmt: skip
        self.tell("initialized")
        return self

    def until_shown(self, uri: str, wanted: Callable[[list[dict[str, Any]]], bool]) -> Any:
        found = self.until(
            lambda m: (
                m.get("method") == "textDocument/publishDiagnostics"
                and m["params"]["uri"] == uri and wanted(m["params"]["diagnostics"])
            )
        )  # fmt: skip
        return found["params"]["diagnostics"]


def codes(found: list[dict[str, Any]]) -> set[str]:
    return {d["code"] for d in found}


def test_path_and_checks_of_each_folder(tmp_path: Path) -> None:
    """Imports by `path`, and `[check]`, count for the files of their folder, wherever the server
    was started."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        (folder / "lib").mkdir(parents=True)
    (one / "tessera.toml").write_text('path = ["lib"]\n[check]\nlints = true\n')
    (other / "tessera.toml").write_text("[check]\nlints = false\n")
    (one / "lib" / "helper.tessera").write_text("def half(v):\n    return v * 0.5\n")
    text = "from helper import half\n\nx = half(3.0)\n"
    with InFolders(one, other) as server:
        assert server.open((one / "a.tessera").as_uri(), text) == []
        assert codes(server.open((other / "a.tessera").as_uri(), text)) == {"T0130"}
        uri = (one / "banks.tessera").as_uri()
        server.open(uri, BANKS)
        server.until_shown(uri, lambda d: {"P1001", "P1003"} <= codes(d))
        uri = (other / "banks.tessera").as_uri()
        server.open(uri, BANKS)
        assert server.at("hover", uri, 1, 4) is not None
        server.change(uri, 2, {"text": BANKS + "\ny = bad\n"})
        server.until_shown(uri, lambda d: codes(d) == {"T0101"})
        shown = [codes(p["diagnostics"]) for p in server.published if p["uri"] == uri]
        assert not any("P1001" in c for c in shown)


def test_settings_that_cannot_be_read(tmp_path: Path) -> None:
    """They are a diagnostic in their file, which goes when it is mended."""
    settings = tmp_path / "tessera.toml"
    settings.write_text("[check]\nlint = true\n")
    with InFolders(tmp_path) as server:
        server.open((tmp_path / "a.tessera").as_uri(), "x = 1\n")
        uri = settings.as_uri()
        found = [p for p in server.published if p["uri"] == uri]
        (d,) = found[-1]["diagnostics"] if found else server.until_shown(uri, bool)
        assert d["code"] == "T0820" and d["range"]["start"]["line"] == 1
        settings.write_text("[check]\nlints = false\n# mended\n")
        server.tell("workspace/didChangeWatchedFiles", changes=[{"uri": uri, "type": 2}])
        server.until_shown(uri, lambda d: not d)


@pytest.mark.parametrize(("options", "severity"), [(None, 2), ({"lints": "hints"}, 4)])
@pytest.mark.sample(1)
def test_severities_of_lints(tmp_path: Path, options: Any, severity: int) -> None:
    with InFolders(tmp_path, options=options) as server:
        uri = (tmp_path / "banks.tessera").as_uri()
        server.open(uri, BANKS)
        (d,) = server.until_shown(uri, bool)
        assert d["code"] == "P1001" and d["severity"] == severity
        server.tell("workspace/didChangeConfiguration", settings={"tessera": {"lints": "off"}})
        server.until_shown(uri, lambda found: not found)


def test_the_edited_file_goes_before_many_others(tmp_path: Path) -> None:
    """Nor do the others wait for each other's imports: all have their diagnostics."""
    count = 120
    with Raw() as raw:
        uris = [(tmp_path / f"m{i}.tessera").as_uri() for i in range(count)]
        for i, uri in enumerate(uris):
            text = f"import std.reduce\n\nWIDTH = {i}\ny = nothing\n"
            item = {"uri": uri, "languageId": "tessera", "version": 1, "text": text}
            raw.tell("textDocument/didOpen", textDocument=item)
        raw.change(uris[3], 2, {"text": "x = nobody\n"})
        assert len(raw.diagnostics(uris[3], 2)) == 1
        before = {p["uri"] for p in raw.published}
        assert len(before) <= count // 2
        while {p["uri"] for p in raw.published} != set(uris):
            raw.until(lambda m: m.get("method") == "textDocument/publishDiagnostics")
