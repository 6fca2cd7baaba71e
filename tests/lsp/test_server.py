"""The language server as a client sees it: a process, spoken to over its input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lsprotocol import types as lsp
from pytest_lsp import LanguageClient

from tests.lsp.published import PUBLISHED, published

ROOT = Path(__file__).resolve().parents[2]
WAIT = 20
THREE_MISTAKES = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], factor: f32, out: f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * factr

# 😋😋 astral characters, also before the next mistake
def twice(v): return v * # 😋
"""
MENDED = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: f32[n], factor: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * factor

# 😋😋 astral characters, also before the next mistake
def twice(v): return v * 2
"""


async def opened(client: LanguageClient, path: Path, text: str) -> str:
    """Open a text under a path and wait for its diagnostics; gives the URI."""
    uri, since = path.as_uri(), len(PUBLISHED)
    client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, "tessera", 1, text))
    )
    await published(uri, since, 1)
    return uri


async def changed(client: LanguageClient, uri: str, version: int, text: str) -> None:
    since = len(PUBLISHED)
    client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(version, uri),
            [lsp.TextDocumentContentChangeWholeDocument(text)],
        )
    )
    await published(uri, since, version)


def checked(file: Path) -> list[tuple[str, str, int, int]]:
    """What the command line says: code, message, line and UTF-16 column, 0-based."""
    done = subprocess.run(
        [sys.executable, "-m", "tessera_lang.driver.cli", "check", "--format=json", str(file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted((r["code"], r["message"], *start_of(r)) for r in records)


def start_of(record: dict[str, object]) -> tuple[int, int]:
    return int(str(record["line"])) - 1, int(str(record["utf16_column"])) - 1


@pytest.mark.asyncio(loop_scope="session")
async def test_three_mistakes_then_none(client: LanguageClient, tmp_path: Path) -> None:
    file = tmp_path / "three.tessera"
    file.write_text(THREE_MISTAKES, encoding="utf-8")
    uri = await opened(client, file, THREE_MISTAKES)
    shown = client.diagnostics[uri]
    got = sorted(
        (str(d.code), d.data["message"], d.range.start.line, d.range.start.character) for d in shown
    )
    assert len(got) == 3
    assert got == checked(file)
    await changed(client, uri, 2, MENDED)
    assert not client.diagnostics[uri]


def place(text: str, marked: str) -> lsp.Position:
    """The position of ``¦`` in ``marked``, whose text (without it) occurs in ``text``."""
    before = text.index(marked.replace("¦", "")) + marked.index("¦")
    line = text.count("\n", 0, before)
    head = text[text.rfind("\n", 0, before) + 1 : before]
    return lsp.Position(line, len(head.encode("utf-16-le")) // 2)


SLOW = """\
@kernel tile[(32, 32)] shared(8_KiB) grid[(1,)]
def turned(x: f32[m, n], out: mut f32[n, m]):
    buf = tshared.alloc((32, 32), f32)
    buf[tile_id(0), tile_id(1)] = x[tile_id(0), tile_id(1)]
    tbarrier()
    out[tile_id(0), tile_id(1)] = buf[tile_id(1), tile_id(0)]
"""


@pytest.mark.asyncio(loop_scope="session")
async def test_slow_accesses_follow(client: LanguageClient, tmp_path: Path) -> None:
    """Lints come after a rest, as the command line has them."""
    before = len(PUBLISHED)
    uri = await opened(client, tmp_path / "slow.tessera", SLOW)
    at = next(i for i, p in enumerate(PUBLISHED) if i >= before and p.uri == uri)
    assert not PUBLISHED[at].diagnostics
    await published(uri, at + 1)
    (found,) = client.diagnostics[uri]
    assert found.code == "P1001"
    assert found.severity == lsp.DiagnosticSeverity.Warning


@pytest.mark.asyncio(loop_scope="session")
async def test_answers(client: LanguageClient, tmp_path: Path) -> None:
    """Hover, completion and definition through the protocol; what they say is tested apart."""
    text = (ROOT / "examples" / "sum_reduce.tessera").read_text()
    uri = await opened(client, tmp_path / "answers.tessera", text)
    identifier = lsp.TextDocumentIdentifier(uri)
    at = place(text, "sm¦em[i] = acc")
    hover = await client.text_document_hover_async(lsp.HoverParams(identifier, at))
    assert hover is not None and isinstance(hover.contents, lsp.MarkupContent)
    assert "shared memory of the group" in hover.contents.value
    assert hover.range == lsp.Range(lsp.Position(10, 4), lsp.Position(10, 8))
    found = await client.text_document_completion_async(lsp.CompletionParams(identifier, at))
    assert isinstance(found, lsp.CompletionList)
    assert {"smem", "tshared", "while"} <= {item.label for item in found.items}
    target = await client.text_document_definition_async(lsp.DefinitionParams(identifier, at))
    assert isinstance(target, lsp.Location) and target.range.start == lsp.Position(5, 4)


@pytest.mark.asyncio(loop_scope="session")
async def test_symbols_and_tokens(client: LanguageClient, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "sum_reduce.tessera").read_text() + "\nLANES = 128\n"
    uri = await opened(client, tmp_path / "outline.tessera", text)
    identifier = lsp.TextDocumentIdentifier(uri)
    entries = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(identifier))
    assert entries is not None
    assert [e.name for e in entries] == ["sum_reduce", "LANES"]
    found = await client.text_document_semantic_tokens_full_async(
        lsp.SemanticTokensParams(identifier)
    )
    assert found is not None and len(found.data) > 100 and len(found.data) % 5 == 0


@pytest.mark.asyncio(loop_scope="session")
async def test_a_damaged_file_is_answered(client: LanguageClient, tmp_path: Path) -> None:
    """Hover, completion, definition, symbols and tokens on text that does not parse."""
    text = (
        "@kernel tile[(32,)] grid[(1,)]\ndef f(x: f32[n], out: mut f32[n]):\n"
        "    total = x[0]\n    out[0 = total +\n    if total\n\ndef g(v): return v\n"
    )
    uri = await opened(client, tmp_path / "damaged.tessera", text)
    assert client.diagnostics[uri]
    identifier = lsp.TextDocumentIdentifier(uri)
    here = place(text, "tot¦al = x[0]")
    assert await client.text_document_hover_async(lsp.HoverParams(identifier, here)) is not None
    assert (
        await client.text_document_definition_async(lsp.DefinitionParams(identifier, here))
        is not None
    )
    found = await client.text_document_completion_async(
        lsp.CompletionParams(identifier, lsp.Position(4, 7))
    )
    assert isinstance(found, lsp.CompletionList) and "total" in {i.label for i in found.items}
    entries = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(identifier))
    assert entries is not None and {"f", "g"} <= {e.name for e in entries}
    tokens = await client.text_document_semantic_tokens_full_async(
        lsp.SemanticTokensParams(identifier)
    )
    assert tokens is not None and tokens.data


@pytest.mark.asyncio(loop_scope="session")
async def test_every_prefix_of_a_sample(client: LanguageClient, tmp_path: Path) -> None:
    """B152 lsp: no prefix of a file stops the server."""
    text = (ROOT / "examples" / "sum_reduce.tessera").read_text()
    uri = await opened(client, tmp_path / "prefix.tessera", "")
    identifier = lsp.TextDocumentIdentifier(uri)
    for version, end in enumerate(range(0, len(text), 7), 2):
        client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(version, uri),
                [lsp.TextDocumentContentChangeWholeDocument(text[:end])],
            )
        )
        head = text[:end]
        here = lsp.Position(head.count("\n"), len(head) - head.rfind("\n") - 1)
        found = await client.text_document_completion_async(lsp.CompletionParams(identifier, here))
        assert isinstance(found, lsp.CompletionList)
        await client.text_document_hover_async(lsp.HoverParams(identifier, here))
        entries = await client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(identifier)
        )
        assert entries is not None
        await client.text_document_semantic_tokens_full_async(lsp.SemanticTokensParams(identifier))


@pytest.mark.asyncio(loop_scope="session")
async def test_incremental_edits_equal_the_whole_text(
    client: LanguageClient, tmp_path: Path
) -> None:
    """B148 lsp: positions behind astral characters, in the negotiated encoding."""
    text = "x = 1 # 😋😋 y\nz = 😋\n"
    uri = await opened(client, tmp_path / "astral.tessera", text)
    (d,) = client.diagnostics[uri]
    assert (d.range.start.line, d.range.start.character) == (1, 4)
    since = len(PUBLISHED)
    client.text_document_did_change(
        lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(2, uri),
            [
                lsp.TextDocumentContentChangePartial(
                    range=lsp.Range(lsp.Position(1, 4), lsp.Position(1, 6)), text="x"
                ),
                lsp.TextDocumentContentChangePartial(
                    range=lsp.Range(lsp.Position(0, 12), lsp.Position(0, 14)), text="w\nq = x +"
                ),
            ],
        )
    )
    await published(uri, since, 2)
    (d,) = client.diagnostics[uri]
    assert d.range.start.line == 1
