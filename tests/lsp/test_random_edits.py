"""Random edits: after each key the diagnostics are those of a fresh check."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from tessera_lsp.server.server import TesseraServer

from tessera_lang.driver.advice import Questions, advice
from tessera_lang.driver.session import Session
from tessera_lang.source import SourceFile

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "stdlib" / "tessera_stdlib"
SLOW = [LIBRARY / f"{name}.tessera" for name in ("reduce", "scan", "sort")]
"""Files whose check takes seconds: ``tests/fuzz/edits.py`` takes them too, now and then."""
SAMPLES = [
    *sorted((ROOT / "examples").glob("*.tessera")),
    *(path for path in sorted(LIBRARY.glob("*.tessera")) if path not in SLOW),
]
SMALL = [s for s in SAMPLES if s.stat().st_size < 3000]
PIECES = [*"()[]:,.=#'\"\\ \n@é😋01x", '"""', "'''", "    ", "\n    ", "def ", "@kernel ", "mut ",
          "\r\n", "  # tessera", "return ", "if x:\n", "op.", "1 +",
          "  # tessera: ignore[P1002, T0119]"]  # fmt: skip
ENCODINGS = ("utf-8", "utf-16", "utf-32")
PARTS = 126

Place = tuple[str, str, int, int, int, int, int]
"""A code, a message, a severity, and the lines and columns of both ends."""


class Driven(TesseraServer):
    """The server without a client: what it pushes is kept."""

    def __init__(self, encoding: str, session: Session | None = None) -> None:
        super().__init__()
        self.projects.outside.session = session or Session()
        self.chosen = encoding
        self.pushed: list[lsp.PublishDiagnosticsParams] = []

    @property
    def encoding(self) -> str:
        return self.chosen

    def project_of(self, path: str):
        return self.projects.outside

    def push(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.pushed.append(params)


def places(items: Sequence[lsp.Diagnostic]) -> list[Place]:
    return sorted((str(d.code), d.message, int(d.severity or 0),
                   d.range.start.line, d.range.start.character,
                   d.range.end.line, d.range.end.character) for d in items)  # fmt: skip


def fresh(path: str, text: str, encoding: str) -> tuple[list[Place], list[Place]]:
    """What is said first and at last by a server that never saw another text."""
    server = Driven(encoding)
    uri = Path(path).as_uri()
    server.opened(uri, text, 1)
    server.check_early(path)
    first = server.pushed[-1].diagnostics
    server.check_late(path)
    return places(first), places(server.pushed[-1].diagnostics)


def in_units(text: str, found: list[Place], encoding: str) -> list[Place]:
    """Places whose columns count characters, with columns that count units of an encoding."""
    lines = re.split("\r\n|\r|\n", text)
    width = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}
    codec, size = width[encoding]

    def units(line: int, column: int) -> int:
        return len(lines[line][:column].encode(codec)) // size

    return sorted(
        (code, said, severity, a, units(a, b), c, units(c, d))
        for code, said, severity, a, b, c, d in found
    )


def said_by_the_command(path: str, text: str) -> list[tuple[str, str, int]]:
    session = Session()
    session.set_text(path, text)
    found = (*session.check(path), *advice(session, path, Questions(lints=True)))
    return sorted((d.code, d.message, d.span.lo if d.span else 0) for d in found)


def edits(seed: int, text: str, count: int):
    """Random texts, each an edit of the one before; now and then back to the first."""
    pick, base = random.Random(seed), text
    for _ in range(count):
        lo = pick.randint(0, len(text))
        hi = min(len(text), lo + pick.choice([0, 0, 0, 1, 1, 2, 30]))
        new = pick.choice([*PIECES, "", "", text[lo : lo + 40]])
        if pick.random() < 0.15:
            lo, hi, new = 0, len(text), base
        while lo and text[lo - 1 : lo + 1] == "\r\n":
            lo -= 1
        while text[hi - 1 : hi + 1] == "\r\n":
            hi += 1
        text = text[:lo] + new + text[hi:]
        yield lo, hi, new, text


def history(seed: int, sample: Path, count: int) -> None:
    """``compared``, to its end."""
    assert sum(1 for _ in compared(seed, sample, count)) == count


def compared(seed: int, sample: Path, count: int) -> Iterator[int]:
    """A client for each encoding sends the same edits of a file to a server of its own, one key
    after another; yields the version after each that was compared. The servers share the session
    of the compiler, as it knows nothing of encodings: what it has answered to the first it does not
    find again for the others. What a fresh server says of a text is asked once, in characters, and
    counted in units of each encoding here."""
    pick = random.Random(seed)
    path = str(sample.with_name("edited.tessera"))
    uri = Path(path).as_uri()
    last = text = sample.read_text(encoding="utf-8")
    session, known = Session(), dict[str, tuple[list[Place], list[Place]]]()
    servers = [Driven(encoding, session) for encoding in ENCODINGS]
    for server in servers:
        server.opened(uri, text, 1)
    for version, (lo, hi, new, after) in enumerate(edits(seed, text, count), 2):
        file = SourceFile(path, last)
        if after not in known:
            known[after] = fresh(path, after, "utf-32")
        early = pick.random() < 0.8
        for server in servers:
            where = lsp.Range(*(
                lsp.Position(line, file.column_in(line, column, server.encoding))
                for line, column in (file.position(lo), file.position(hi))
            ))  # fmt: skip
            server.changed(uri, [lsp.TextDocumentContentChangePartial(where, new)], version)
            assert server.open[path].file.text == after
            if early:
                server.check_early(path)
            server.check_late(path)
            shown = places(server.pushed[-1].diagnostics)
            first, full = (in_units(after, found, server.encoding) for found in known[after])
            assert shown == full, (seed, server.encoding, version, after)
            assert all(p in full for p in first) or first == full
        last = after
        yield version
    said = sorted(d[0] for d in said_by_the_command(path, last))
    for server in servers:
        assert server.pushed[-1].version == count + 1
        assert said == sorted(str(d.code) for d in server.pushed[-1].diagnostics)


@pytest.mark.parametrize("seed", [5, 6])
def test_small_files(seed: int) -> None:
    history(seed, random.Random(seed).choice(SMALL), 8)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_edits(part: int) -> None:
    for seed in range(8):
        history(1000 * part + seed, random.Random(seed + part).choice(SAMPLES), 10)


FOUND: dict[str, tuple[str, ...]] = {
    "a name that was advised is gone": (
        "def abc_one(x):\n    return x\n\n\ndef g(x):\n    return abc_on(x)\n",
        "def abc\n    _one(x):\n    return x\n\n\ndef g(x):\n    return abc_on(x)\n",
        "def abc_one(x):\n    return x\n\n\ndef g(x):\n    return abc_on(x)\n",
    ),
}
"""Histories that failed, as short as they still did."""


@pytest.mark.parametrize("texts", FOUND.values(), ids=FOUND)
def test_histories_that_failed(texts: tuple[str, ...]) -> None:
    server = Driven("utf-16")
    path = str(ROOT / "examples" / "found.tessera")
    uri = Path(path).as_uri()
    server.opened(uri, texts[0], 1)
    for version, text in enumerate(texts, 2):
        server.changed(uri, [lsp.TextDocumentContentChangeWholeDocument(text)], version)
        server.check_late(path)
        assert places(server.pushed[-1].diagnostics) == fresh(path, text, "utf-16")[1]


CALLED = """\
@kernel tile[(32, 32)] shared(8_KiB) grid[(1,)]
def turned(x: f32[m, n], out: mut f32[n, m]):
    buf = tshared.alloc((32, 32), f32)
    buf[tile_id(0), tile_id(1)] = x[tile_id(0), tile_id(1)]
    tbarrier()
    out[tile_id(0), tile_id(1)] = buf[tile_id(1), tile_id(0)]


@op.kernel
def twice(x):
    return x + x


turned(op.zeros((32, 32)), op.zeros((32, 32)))
y = twice(op.zeros((8, 64)))
"""


def test_what_is_no_longer_called_is_no_longer_judged() -> None:
    """Lints, and what is open for want of sizes, follow the calls that there are."""
    server = Driven("utf-16")
    path = str(ROOT / "examples" / "called.tessera")
    server.opened(Path(path).as_uri(), CALLED, 1)
    for version, text in enumerate(
        (CALLED, CALLED.replace("(8, 64)", "(16, 4)"), CALLED[: CALLED.index("turned(op")],
         CALLED.replace("x + x", "x + x[0:7]"), CALLED), 2,
    ):  # fmt: skip
        whole = [lsp.TextDocumentContentChangeWholeDocument(text)]
        server.changed(Path(path).as_uri(), whole, version)
        server.check_late(path)
        assert places(server.pushed[-1].diagnostics) == fresh(path, text, "utf-16")[1]


def test_the_check_of_one_file_takes_nothing_from_another() -> None:
    server = Driven("utf-16")
    one, other = (str(ROOT / "examples" / f"{n}_open.tessera") for n in ("one", "other"))
    for path in (one, other):
        server.opened(Path(path).as_uri(), CALLED, 1)
        server.check_late(path)
    for path in (one, other):
        document = server.document(Path(path).as_uri())
        assert document is not None
        assert {f.name for f in document.instances} == {"turned", "twice"}
        server.check_late(path)
        assert places(server.pushed[-1].diagnostics) == fresh(path, CALLED, "utf-16")[1]
