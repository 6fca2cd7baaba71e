"""The documentation site is built without a warning, has every page, and colours programs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, Name, Text
from tessera_grammar.keywords import HARD_KEYWORDS, builtins_of
from tessera_grammar.pygments_lexer import TesseraLexer

from tests.house.places import ROOT

DOCS = ROOT / "docs"
PROGRAMS = [
    *sorted((ROOT / "stdlib").rglob("*.tessera")),
    *sorted((ROOT / "examples").rglob("*.tessera")),
]


@pytest.mark.sample(20)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_lexer_knows_every_word(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    tokens = list(TesseraLexer(ensurenl=False, stripnl=False).get_tokens(text))
    assert "".join(value for _, value in tokens) == text
    assert not [value for kind, value in tokens if kind in Error or kind is Text]


def test_lexer_tells_words_apart() -> None:
    def kind(text: str, word: str) -> object:
        return next(k for k, value in TesseraLexer().get_tokens(text) if value == word)

    for word in HARD_KEYWORDS - {"and", "or", "not", "in", "is"}:
        assert kind(f"{word} x", word) in Keyword, word
    for word in builtins_of("dtype"):
        assert kind(f"y: {word}[n]", word) is Keyword.Type
        assert kind(f"y.{word}", word) is Name.Attribute
    assert kind("@kernel tile[(32,)] grid[(n,)]", "grid") is Keyword.Declaration
    assert kind("grid = 3", "grid") is Name
    assert kind("def f(x: mut f32[n])", "mut") is Keyword.Declaration
    assert kind("mut = 3", "mut") is Name


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", str(DOCS / "site")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, "-d", str(out / "trees"), str(source), str(out)],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(find_spec("myst_parser") is None, reason="needs the group docs: make docs")
def test_site(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(DOCS).with_suffix(".html").as_posix() for p in DOCS.rglob("*.md")}
    assert not [page for page in sorted(pages) if not (tmp_path / page).is_file()]
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert not [page for page in sorted(pages) if "/" not in page and f'"{page}"' not in index
                and page != "index.html"]  # fmt: skip
    assert 'href="T0401.html"' in (tmp_path / "errors" / "index.html").read_text(encoding="utf-8")
    assert '<span class="kt">f32</span>' in (tmp_path / "language.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("myst_parser") is None, reason="needs the group docs: make docs")
def test_broken_links_fail(tmp_path: Path) -> None:
    links = ["other.md", "#nowhere", "index.md#nowhere"]
    text = "\n\n".join(["# Title", *(f"[a link]({link})" for link in links)])
    (tmp_path / "index.md").write_text(text, encoding="utf-8")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 1 and done.stderr.count("[myst.xref_missing]") == 3, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_spec("myst_parser") is None, reason="needs the group docs: make docs")
def test_a_new_page_is_found_by_the_next_build(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# Title\n\n## First\n", encoding="utf-8")
    assert build(tmp_path, tmp_path / "out").returncode == 0
    (tmp_path / "second.md").write_text("# Second\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert '"second.html"' in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
