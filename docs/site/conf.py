"""The documentation site, made by Sphinx from the same Markdown files that are read in a checkout.

Owns the navigation, which is read from the list of pages in ``index.md``, and the table of codes
on ``errors/index.md``, which is made from their pages. Run ``make docs``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tessera_grammar.pygments_lexer import TesseraLexer

import tessera_lang
from tessera_lang.diagnostics.codes import all_codes

project = "Tessera"
author = "The Tessera authors"
version = release = tessera_lang.__version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site"]
root_doc = "index"
html_theme = "furo"
html_title = f"Tessera {release}"
html_copy_source = False
# Headings of every depth can be linked to, by the names that a checkout's viewer gives them.
myst_heading_anchors = 4
# Names of operations are single words with dots, not links.
myst_linkify_fuzzy_links = False
nitpicky = True

SECTION = re.compile(r"^## (.+)$|^- \[[^\]]+\]\(([^)#]+)\.md\)", re.M)


def navigation(text: str, folder: Path) -> str:
    """Hidden tables of contents, one for each section of the index; a page that no section lists
    stands in the last one."""
    sections: list[tuple[str, list[str]]] = []
    for title, page in SECTION.findall(text):
        if title:
            sections.append((title, []))
        else:
            sections[-1][1].append(page)
    listed = {page for _, pages in sections for page in pages} | {"index"}
    rest = sorted(p.stem for p in folder.glob("*.md") if p.stem not in listed)
    if rest:
        sections.append(("More", rest))
    return "\n".join(contents(title, pages) for title, pages in sections if pages)


def contents(title: str, pages: list[str]) -> str:
    """A hidden table of contents with a title."""
    lines = [f":caption: {title}", ":hidden:", "", *pages] if title else [":hidden:", "", *pages]
    return "\n".join(["", "```{toctree}", *lines, "```", ""])


def table_of_codes() -> str:
    """All codes with their pages and summaries, a table for each range."""
    rows: dict[str, list[str]] = {}
    for code, row in all_codes().items():
        line = f"| [{code}]({code}.md) | {row.slug} | {row.summary} |"
        rows.setdefault(code[:3], []).append(line)
    head = ["", "| code | name | what it says |", "|---|---|---|"]
    tables = "\n".join("\n".join([*head, *lines]) for lines in rows.values())
    return tables + "\n" + contents("", list(all_codes()))


def outdated(
    app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """The index pages are read for every build: what is made for them depends on other files."""
    return [name for name in ("index", "errors/index") if name in env.found_docs]


def read(app: Any, name: str, source: list[str]) -> None:
    """Adds to the two index pages what is made for the site."""
    if name == "index":
        source[0] += navigation(source[0], Path(app.srcdir))
    elif name == "errors/index":
        source[0] += table_of_codes()


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_lexer("tessera", TesseraLexer)
    app.connect("env-get-outdated", outdated)
    app.connect("source-read", read)
