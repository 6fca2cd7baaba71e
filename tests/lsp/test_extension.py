"""The VS Code extension: its grammar, its rules, and what is in the package that is built."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tessera_grammar.keywords import KEYWORDS
from tessera_grammar.textmate import textmate_grammar
from tessera_lsp.server.compiling import COMMANDS

from tessera_lang.driver.session import Session

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "vscode-extension"


def package() -> dict[str, Any]:
    return json.loads((EXTENSION / "package.json").read_text())


def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An npm script of the extension, or a skip where its packages are not installed."""
    program = shutil.which("npm")
    if program is None:
        pytest.skip("Node.js is not installed")
    if not (EXTENSION / "node_modules" / ".bin" / "vsce").exists():
        pytest.skip("the extension's packages are not installed (make vsix)")
    return subprocess.run(
        [program, *arguments],
        cwd=EXTENSION, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_grammar_is_the_generated_one() -> None:
    committed = (EXTENSION / "syntaxes" / "tessera.tmLanguage.json").read_text()
    assert committed == textmate_grammar()
    assert all(re.search(rf"\b{word}\b", committed) for word in KEYWORDS)


def test_a_folder_cannot_choose_what_is_run() -> None:
    """B160 security: nothing of a workspace is executed on opening it."""
    found = package()
    untrusted = found["capabilities"]["untrustedWorkspaces"]
    assert untrusted["supported"] == "limited"
    settings = found["contributes"]["configuration"]["properties"]
    for name in ("tessera.server.path", "tessera.server.arguments"):
        assert settings[name]["scope"] == "machine"
        assert name in untrusted["restrictedConfigurations"]
    sources = {p.stem: p.read_text() for p in (EXTENSION / "src").glob("*.ts")}
    assert "vscode.workspace.isTrusted" in sources["extension"]
    assert not [n for n, s in sources.items() if "workspaceValue" in s]
    assert [n for n, s in sources.items() if "getConfiguration" in s] == ["extension"]
    assert ".get(" not in sources["extension"]
    # What lies in the folder is run only after the user was asked.
    assert sources["server"].count('".venv"') == 1 and "showInformationMessage" in sources["server"]


def test_the_manifest() -> None:
    found = package()
    assert found["activationEvents"] == []  # a contributed language implies its own
    assert re.fullmatch(r"\^1\.\d+\.0", found["engines"]["vscode"])
    contributes = found["contributes"]
    for entry in (*contributes["languages"], *contributes["grammars"]):
        for key in ("configuration", "path"):
            assert key not in entry or (EXTENSION / entry[key]).is_file()
    json.loads((EXTENSION / "language-configuration.json").read_text())
    matcher = contributes["problemMatchers"][0]["pattern"]
    line = "a b.tessera:5:25: error[T0101]: `factr` is not defined"
    found_in = re.match(matcher["regexp"], line)
    assert found_in is not None
    assert found_in[matcher["line"]] == "5" and found_in[matcher["code"]] == "T0101"


def test_every_command_that_the_server_has_is_in_the_palette() -> None:
    """And no other of these; their results are shown by the extension."""
    own = {c["command"] for c in package()["contributes"]["commands"]}
    assert own == {*COMMANDS, "tessera.restartServer", "tessera.showOutput"}
    source = (EXTENSION / "src" / "extension.ts").read_text()
    assert all(f'"{name}"' in source for name in COMMANDS if name != "tessera.resources")


def test_the_walkthrough() -> None:
    """Its files are there, and its program is right."""
    (walk,) = package()["contributes"]["walkthroughs"]
    for step in walk["steps"]:
        assert (EXTENSION / step["media"]["markdown"]).is_file()
    text = (EXTENSION / "walkthrough" / "write.md").read_text()
    (program,) = re.findall(r"```tessera\n(.*?)```", text, re.S)
    session = Session()
    session.set_text("<w>", program)
    assert session.check("<w>") == ()


def test_no_committed_file_names_a_registry() -> None:
    lock = json.loads((EXTENSION / "package-lock.json").read_text())
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]
    assert "omit-lockfile-registry-resolved=true" in (EXTENSION / ".npmrc").read_text()
    assert not re.search(r"registry\s*=", (EXTENSION / ".npmrc").read_text())


def test_the_colours() -> None:
    done = npm("test", "--silent")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package(tmp_path: Path) -> None:
    """It builds, and holds what its manifest names and no more."""
    done = npm("run", "vsix", "--silent")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(EXTENSION / "tessera.vsix") as built:
        names = set(built.namelist())
        manifest = json.loads(built.read("extension/package.json"))
        bundle = built.read("extension/" + manifest["main"].removeprefix("./")).decode()
        assert json.loads(built.read("extension/syntaxes/tessera.tmLanguage.json"))
    assert names == {
        "[Content_Types].xml", "extension.vsixmanifest", "extension/LICENSE.txt",
        "extension/dist/extension.js", "extension/language-configuration.json",
        "extension/package.json", "extension/readme.md",
        "extension/syntaxes/tessera.tmLanguage.json",
        *(f"extension/walkthrough/{n}.md" for n in ("look", "mend", "server", "write")),
    }  # fmt: skip
    assert manifest["version"] == package()["version"]
    assert "sourceMappingURL" not in bundle
    assert str(ROOT) not in bundle and str(Path.home()) + "/" not in bundle
