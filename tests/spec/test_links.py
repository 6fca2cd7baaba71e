"""Links of the pages lead somewhere: to files, and to headings in them; named sources exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "vscode-extension/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
FENCE = re.compile(r"^ *```.*?^ *```", re.S | re.M)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.M)
SOURCE = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|tessera|json|md|cu))`")
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)+)`")
ROOTS = ("", "tessera_lang", "backend/tessera_backend", "lsp/tessera_lsp", "backend", "grammar")
"""Where the path of a source that a page names may begin."""


def text_of(page: Path) -> str:
    """The page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = (re.sub(r"[`*]", "", title).lower() for title in HEADING.findall(text_of(page)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}


def fault(page: Path, link: str) -> str:
    """What is wrong with a link of a page; empty where it leads somewhere."""
    if re.match(r"[a-z]+:", link):
        return ""
    path, _, anchor = link.partition("#")
    target = page if not path else (page.parent / path).resolve()
    if not target.exists():
        return "no such file"
    if target.is_dir():
        return "a folder, which no site shows" if page.is_relative_to(ROOT / "docs") else ""
    return "no such heading" if anchor and anchor not in anchors(target) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    links = LINK.findall(CODE.sub("code", text_of(page)))
    found = {link: fault(page, link) for link in links}
    assert not {link: why for link, why in found.items() if why}


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_named_sources_exist(page: Path) -> None:
    named = set(SOURCE.findall(text_of(page)))
    assert not sorted(
        name for name in named if not any((ROOT / root / name).is_file() for root in ROOTS)
    )


FOLDERS = [
    p for root in ROOTS[1:-1] for p in (ROOT / root).rglob("*")
    if p.is_dir() and "__" not in p.name
]  # fmt: skip


@pytest.mark.parametrize("name", ["architecture", "extending", "ir", "performance-notebook"])
def test_named_modules_exist(name: str) -> None:
    """``folder/module`` is a file or a folder of a folder that ends so."""
    named = set(MODULE.findall(text_of(ROOT / "docs" / f"{name}.md")))
    gone = list[str]()
    for module in named:
        before, _, last = module.rpartition("/")
        places = [f for f in FOLDERS if f"/{f.as_posix()}".endswith(f"/{before}")]
        if places and not any((f / last).is_dir() or (f / f"{last}.py").is_file() for f in places):
            gone.append(module)
    assert named and not sorted(gone)


def test_faults_are_seen() -> None:
    page = ROOT / "docs" / "cli.md"
    assert not fault(page, "checker.md#ranges")
    assert fault(page, "checker.md#rangs") == "no such heading"
    assert fault(page, "chequer.md") == "no such file"
    assert fault(page, "errors") == "a folder, which no site shows"
