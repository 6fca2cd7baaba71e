"""Semantic tokens, decoded as a client does."""

from __future__ import annotations

from pathlib import Path

import pytest
from tessera_lsp.ide.document import Document, Memory
from tessera_lsp.ide.tokens import MODIFIERS, TYPES, tokens
from tessera_lsp.server.convert import encoded

from tessera_lang.driver.session import Session

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden" / "sum_reduce.tokens"


def decoded(text: str, data: list[int], encoding: str) -> list[str]:
    """One line a token: its line and column, its text, its type and modifiers."""
    codec, unit = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[
        encoding
    ]
    lines = [line.encode(codec) for line in text.split("\n")]
    found: list[str] = []
    line = column = 0
    for i in range(0, len(data), 5):
        down, right, length, kind, bits = data[i : i + 5]
        column = right if down else column + right
        line += down
        word = lines[line][column * unit : (column + length) * unit].decode(codec)
        modifiers = [m for n, m in enumerate(MODIFIERS) if bits >> n & 1]
        found.append(f"{line + 1}:{column + 1} {word} {' '.join([TYPES[kind], *modifiers])}")
    return found


def tokens_of(text: str, encoding: str = "utf-16", checked: bool = True) -> list[str]:
    session = Session()
    session.set_text("<t>", text)
    if checked:
        session.check("<t>")
    document = Document(session, "<t>")
    return decoded(text, encoded(document.file, tokens(document), encoding), encoding)


def test_sum_reduce() -> None:
    text = (ROOT / "examples" / "sum_reduce.tessera").read_text()
    found = tokens_of(text)
    assert found == GOLDEN.read_text().splitlines()
    assert found == tokens_of(text, "utf-8", checked=False)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_behind_astral_characters(encoding: str) -> None:
    """B148 lsp: columns and lengths are in the client's units."""
    text = 'x = 1\nprint("😋é😋", x) # 😋\ny = x\n'
    words = [t.split(" ", 1)[1] for t in tokens_of(text, encoding)]
    assert words == [
        "x variable readonly", "print function defaultLibrary", "x variable readonly",
        "y variable readonly", "x variable readonly",
    ]  # fmt: skip


def test_kept_tokens_follow_edits() -> None:
    """What is kept of unchanged functions equals what a new session says, edit by edit."""
    text = (ROOT / "examples" / "sum_reduce.tessera").read_text() + (
        "\n\nSTEP = 2\n\ndef twice(v):\n    return v * STEP\n\n"
        "@kernel tile[(32,)] grid[(1,)]\ndef g(x: f32[n], out: mut f32[n]):\n"
        "    out[0] = twice(x[0]) + q\n"
    )
    edits = [
        ("STEP = 2", "STEP = op.load('a.npy')"), ("STEP = op", "STRIDE = op"),
        ("def twice", "@kernel tile[(1,)]\ndef twice"), ("tile[(1,)]", "tile[(1,"),
        ("+ q", "+ x[1]"), ("smem = tshared.alloc", "smem = x"), ('"""A coop', "\n\n\n'''A coop"),
    ]  # fmt: skip
    session, memory = Session(), Memory()
    for before, after in [("", ""), *edits]:
        text = text.replace(before, after, 1) if before else text
        session.set_text("<t>", text)
        document = Document(session, "<t>", memory)
        kept = decoded(text, encoded(document.file, tokens(document), "utf-16"), "utf-16")
        assert kept == tokens_of(text, checked=False)
    assert len(memory.tokens) <= len(Document(session, "<t>").module.body)
