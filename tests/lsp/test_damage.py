"""Damaged text: no prefix of a file, no deletion and no edit stops a feature (B152 lsp)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from tessera_lsp.ide.completion import completions
from tessera_lsp.ide.definition import definition
from tessera_lsp.ide.document import Document, Memory
from tessera_lsp.ide.hover import hover
from tessera_lsp.ide.symbols import outline
from tessera_lsp.ide.tokens import tokens
from tessera_lsp.server.convert import encoded
from tessera_lsp.server.texts import applied

from tessera_lang.driver.session import Session
from tessera_lang.source import SourceFile

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "examples").glob("*.tessera"))
ODD = [
    "", "\n", "#", "import", "import ", "from", "from std", "@", "@kernel", "def", "def f",
    "def f(", "def (x):\n    pass", "x =", "f'{'", 'f"{x', '"""', "\t", " x", ")", "\\", "\0",
    "\ufeff", "x.", "lambda", "for", "a" * 5000, "(" * 3000, "x = " + "1 + " * 3000 + "1",
]  # fmt: skip
WIDTHS: dict[str, Callable[[str], int]] = {
    "utf-8": lambda text: len(text.encode()),
    "utf-16": lambda text: len(text.encode("utf-16-le")) // 2,
    "utf-32": len,
}


class Asker:
    """One session to whose file ever other texts are given, as to an editor's."""

    def __init__(self) -> None:
        self.session, self.memory, self.version = Session(), Memory(), 0

    def ask(self, text: str, offset: int, check: bool = True) -> None:
        """Every feature at one place; entries and tokens must be such as a client takes."""
        self.version += 1
        self.session.set_text("<damaged>", text, self.version)
        if check:
            self.session.check("<damaged>")
        document = Document(self.session, "<damaged>", self.memory)
        hover(document, offset)
        completions(document, offset)
        definition(document, offset)
        for entry in outline(document):
            assert entry.name and entry.span.lo <= entry.name_span.lo
            assert entry.name_span.hi <= entry.span.hi <= len(text)
        found = tokens(document)
        for before, after in itertools.pairwise(found):
            assert before.offset + before.length <= after.offset
        assert len(encoded(document.file, found, "utf-16")) == 5 * len(found)


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.stem for s in SAMPLES])
@pytest.mark.sample(1)
def test_every_prefix(sample: Path, whole: bool) -> None:
    text, asker = sample.read_text(), Asker()
    for end in range(0, len(text) + 1, 1 + len(text) // (1000 if whole else 300)):
        asker.ask(text[:end], end, check=end % 8 == 0)


def test_random_damage(whole: bool) -> None:
    pick, asker = random.Random(5), Asker()
    for _ in range(250 if whole else 80):
        text = pick.choice(SAMPLES).read_text()
        for _ in range(pick.randint(1, 4)):
            at = pick.randrange(len(text))
            junk = pick.choice(["", "(", "]", ":", '"', "\n", "    ", "é😋", ".", "def ", "@"])
            text = text[:at] + junk + text[at + pick.randint(0, 12) :]
        asker.ask(text, pick.randrange(len(text) + 1))


@pytest.mark.parametrize("text", ODD, ids=[repr(t)[:16] for t in ODD])
def test_odd_texts(text: str) -> None:
    asker = Asker()
    for offset in sorted({0, len(text) // 2, len(text)}):
        asker.ask(text, offset)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_edits_equal_the_whole_text(encoding: str) -> None:
    """10 000 random edits, positions in the client's units; line breaks as the protocol's."""
    pick = random.Random(7)
    width = WIDTHS[encoding]
    text, file = "", SourceFile("<edits>", "")

    def position(offset: int) -> lsp.Position:
        line, start, i = 0, 0, 0
        while i < offset:
            if text[i] == "\n" or (text[i] == "\r" and text[i : i + 2] != "\r\n"):
                line, start = line + 1, i + 1
            i += 1
        return lsp.Position(line, width(text[start:offset]))

    def inside_a_break(offset: int) -> bool:
        return text[offset - 1 : offset + 1] == "\r\n"

    for version in range(10_000 // 3):
        lo = pick.randint(0, len(text))
        hi = min(len(text), lo + pick.choice([0, 0, 1, 2, 9]))
        if inside_a_break(lo) or inside_a_break(hi):
            continue
        new = "".join(pick.choices("ab 😋é\n\r\f\u2028\x85", k=pick.randint(0, 4)))
        where = lsp.Range(position(lo), position(hi))
        change = lsp.TextDocumentContentChangePartial(where, new)
        text = text[:lo] + new + text[hi:]
        if len(text) > 300:
            text = text[:100]
            file = applied(file, [change, lsp.TextDocumentContentChangeWholeDocument(text)],
                           version, encoding)  # fmt: skip
        else:
            file = applied(file, [change], version, encoding)
        assert file.text == text and file.version == version
