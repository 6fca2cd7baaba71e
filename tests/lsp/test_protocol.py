"""The protocol's corners: encodings, versions, line breaks, odd URIs, other files, the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.raw import SERVER, WAIT, Raw, edit

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[Raw]:
    with Raw() as raw:
        yield raw


def places(found: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    starts = [(d["code"], d["range"]["start"]) for d in found]
    return sorted((code, s["line"], s["character"]) for code, s in starts)


@pytest.mark.parametrize(
    ("offered", "chosen", "extra"),
    [(["utf-8", "utf-16"], "utf-8", 6), (["utf-32"], "utf-32", 0), (None, "utf-16", 2)],
)
@pytest.mark.sample(1)
def test_encodings(offered: list[str] | None, chosen: str, extra: int) -> None:
    """B148 lsp: columns behind two astral characters, in each encoding."""
    text = 'good = 1\nprint("😋😋", good, bad)\n'
    general = {"general": {"positionEncodings": offered}} if offered else {}
    with Raw(**general) as raw:
        assert raw.initialized["capabilities"]["positionEncoding"] == chosen
        uri = "untitled:astral"
        (d,) = raw.open(uri, text)
        start = text.splitlines()[1].index("bad")
        assert d["range"]["start"] == {"line": 1, "character": start + extra}
        at = text.splitlines()[1].index("good") + extra
        assert raw.at("definition", uri, 1, at)["range"]["start"] == {"line": 0, "character": 0}
        found = raw.at("hover", uri, 1, at)
        assert found["range"] == {
            "start": {"line": 1, "character": at},
            "end": {"line": 1, "character": at + 4},
        }
        raw.change(uri, 2, edit(1, start + extra, start + extra + 3, "good"))
        assert raw.diagnostics(uri, 2) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_breaks(server: Raw, newline: str) -> None:
    """B150 lsp: the same places whatever ends a line; a form feed or U+2028 ends none."""
    text = "x = 1 # \f \u2028 \x1c\ny = bad\ndef f(v):\n    return v * worse\n"
    uri = f"untitled:breaks{newline.encode().hex()}"
    expected = [("T0101", 1, 4), ("T0101", 3, 15)]
    assert places(server.open(uri, text.replace("\n", newline))) == expected
    server.change(uri, 2, edit(1, 4, 7, "x"))
    assert places(server.diagnostics(uri, 2)) == expected[1:]


def test_only_the_last_version_is_published(server: Raw) -> None:
    """Many changes at once are checked together, and never is an older one published last."""
    uri = "untitled:burst"
    server.open(uri, "x = 1\n")
    server.published.clear()
    for version in range(2, 60):
        server.change(uri, version, {"text": f"x = {'nope' if version % 2 else version}\n"})
    assert server.at("hover", uri, 0, 0) is not None
    server.change(uri, 60, {"text": "x = y60\n"})
    (d,) = server.diagnostics(uri, 60)
    assert "y60" in d["message"]
    versions = [p["version"] for p in server.published if p["uri"] == uri]
    assert versions == sorted(versions) and versions[-1] == 60


def test_faults_of_an_imported_file(server: Raw, tmp_path: Path) -> None:
    """They stand at the import, and go when the other file is mended, saved or not."""
    user, used = tmp_path / "user.tessera", tmp_path / "used.tessera"
    used.write_text("def half(v): return v * \n")
    text = "from used import half\n\nx = 1\n"
    (d,) = server.open(user.as_uri(), text)
    assert d["range"]["start"] == {"line": 0, "character": 5}
    assert d["range"]["end"] == {"line": 0, "character": 9}
    assert d["message"].startswith("in used.tessera: ")
    (note, *_) = d["relatedInformation"]
    assert note["location"]["uri"] == used.as_uri()
    used.write_text("def half(v): return v * 0.5\n")
    server.tell("textDocument/didSave", textDocument={"uri": user.as_uri()})
    assert server.diagnostics(user.as_uri(), 1) == []
    server.open(used.as_uri(), "def half(v): return (\n")
    assert len(server.diagnostics(user.as_uri(), 1)) == 1
    server.tell("textDocument/didClose", textDocument={"uri": used.as_uri()})
    assert server.diagnostics(user.as_uri(), 1) == []
    used.unlink()
    changes = [{"uri": used.as_uri(), "type": 3}]
    server.tell("workspace/didChangeWatchedFiles", changes=changes)
    (d,) = server.diagnostics(user.as_uri(), 1)
    assert d["code"] == "T0130"


def test_a_closed_file(server: Raw, tmp_path: Path) -> None:
    uri = (tmp_path / "closed.tessera").as_uri()
    assert server.open(uri, "x = bad\n")
    server.tell("textDocument/didClose", textDocument={"uri": uri})
    assert server.diagnostics(uri, None) == []
    assert server.at("hover", uri, 0, 0) is None
    assert server.at("completion", uri, 0, 0)["items"] == []
    server.change(uri, 2, {"text": "x = worse\n"})  # of no open file: logged, no more
    assert server.open(uri, "x = 1\n", 7) == []


@pytest.mark.parametrize(
    "uri",
    ["untitled:Untitled-1", "git:/a/b.tessera?%7B%7D", "file:///a%20b/%C3%A9.tessera",
     "file://host/share/a.tessera", "file:///nul%00.tessera"],
)  # fmt: skip
def test_odd_uris(server: Raw, uri: str) -> None:
    (d,) = server.open(uri, "x = bad\nx = 2\n")
    assert d["code"] == "T0101"
    found = server.at("definition", uri, 1, 0)
    assert found["uri"] == uri
    assert server.at("completion", uri, 1, 0)["items"]
    server.tell("textDocument/didClose", textDocument={"uri": uri})


def test_rubbish_costs_one_message(server: Raw) -> None:
    """Broken JSON, unknown methods, places outside the text: the next request is answered."""
    uri = "untitled:rubbish"
    server.open(uri, "x = 1\n")
    server.send_bytes(b"{no json")
    server.send_bytes(b"[]")
    server.tell("tessera/unknown", a=1)
    server.tell("textDocument/didChange", nonsense=True)
    server.tell("$/cancelRequest", id=987)
    server.change(uri, 2, edit(400, 7, 9, "\nprint"))
    for line, column in ((0, 0), (99, 99), (1, 2**31 - 1)):
        server.at("hover", uri, line, column)
        server.at("definition", uri, line, column)
        assert server.at("completion", uri, line, column)["items"]
    assert server.process.poll() is None


FAULTY = """
from tessera_lang.driver.session import Session
from tessera_lsp.ide import hover, symbols
from tessera_lsp.server import main

def broken(*_):
    print("not for the client")
    raise ZeroDivisionError("a fault of ours")

hover.hover = symbols.outline = broken
check = Session.check
Session.check = lambda s, p, **k: broken() if s.source(p).version == 2 else check(s, p, **k)
main.main()
"""


def test_a_fault_of_ours_costs_one_answer() -> None:
    with Raw([sys.executable, "-c", FAULTY]) as raw:
        uri = "untitled:fault"
        raw.open(uri, "x = 1\n")
        assert raw.at("hover", uri, 0, 0) is None
        assert raw.ask("textDocument/documentSymbol", textDocument={"uri": uri}) == []
        assert raw.at("completion", uri, 0, 0)["items"]
        raw.change(uri, 2, {"text": "x = 2\n"})
        (d,) = raw.diagnostics(uri, 2)
        assert "could not check" in d["message"] and d["severity"] == 2
        raw.change(uri, 3, {"text": "x = bad\n"})
        (d,) = raw.diagnostics(uri, 3)
        assert d["code"] == "T0101"
        assert any("ZeroDivisionError" in line for line in raw.log)


# --- the end -------------------------------------------------------------------------------


def test_exit_with_and_without_shutdown() -> None:
    for polite, code in ((True, 0), (False, 1)):
        with Raw() as raw:
            if polite:
                raw.ask("shutdown")
            raw.tell("exit")
            assert raw.process.wait(WAIT) == code


@pytest.mark.slow
def test_ends_when_its_input_closes() -> None:
    """B154 lsp: a server without an editor ends by itself, whatever was going on."""
    with Raw() as raw:
        raw.open("untitled:end", "x = 1\n")
        assert raw.process.stdin is not None
        raw.process.stdin.close()
        assert raw.process.wait(WAIT) == 1
    done = subprocess.run(SERVER, stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT)
    assert done.stdout == b"" and b"Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="processes are watched by id on POSIX only")
@pytest.mark.parametrize("who", ["parent", "editor"])
@pytest.mark.sample(1)
def test_ends_when_the_editor_dies(who: str, tmp_path: Path) -> None:
    """B154 lsp: also when the input stays open, since another process holds it."""
    note = tmp_path / "pid"
    starter = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen({SERVER!r})\n"
        f"open({str(note)!r}, 'w').write(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    editor = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    raw = Raw([sys.executable, "-c", starter])
    try:
        pid_of_editor = editor.pid if who == "editor" else None
        raw.ask("initialize", processId=pid_of_editor, rootUri=None, capabilities={})
        pid = int(note.read_text())
        if who == "editor":
            time.sleep(2.5)  # it is seen alive first
        victim = editor if who == "editor" else raw.process
        victim.send_signal(signal.SIGKILL)
        victim.wait(WAIT)
        assert ended(pid)
    finally:
        editor.kill()
        editor.wait(WAIT)
        raw.__exit__()


def ended(pid: int) -> bool:
    for _ in range(int(WAIT * 10)):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            state = "Z" if not Path("/proc/self/stat").exists() and not exists(pid) else "gone"
        if state in ("Z", "gone"):
            return True
        time.sleep(0.1)
    return False


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_llvm_and_no_cuda_in_the_process() -> None:
    """Answering about a file loads neither LLVM nor CUDA nor NumPy."""
    sample = str(ROOT / "examples" / "measurements.tessera")
    code = (
        "import sys; from tessera_lsp.server.features import make_server; "
        "from tessera_lsp.ide import tokens; from tessera_lsp.ide.document import Document; "
        f"s = make_server().session; s.check({sample!r}); tokens.tokens(Document(s, {sample!r})); "
        "print([m for m in ('llvmlite', 'cuda', 'numpy', 'lark') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
