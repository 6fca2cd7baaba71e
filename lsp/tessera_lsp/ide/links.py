"""Places that lead to a file: modules in imports, and codes in comments that ignore them.

Must not know LSP.
"""

from __future__ import annotations

import re

from tessera_lang.diagnostics.page_lookup import page_file
from tessera_lang.driver.ignored import ignores
from tessera_lang.record import dataclass
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document


@dataclass(frozen=True, slots=True)
class Link:
    """A place and the file that it leads to."""

    span: Span
    path: str
    title: str


def links(document: Document) -> list[Link]:
    """The links of a file, in order."""
    found: list[Link] = []
    for statement in document.module.body:
        names: list[tuple[str, Span]] = []
        if isinstance(statement, ast.FromImport):
            names.append((statement.module, statement.module_span))
        elif isinstance(statement, ast.Import):
            for n in statement.names:
                end = n.span.start + len(n.name)
                names.append((n.name, Span(n.span.anchor, n.span.start, end)))
        for name, span in names:
            path = document.session.imported(document.path, name)
            if path is not None:
                found.append(Link(span, path, f"open `{name}`"))
    for i in ignores(document.file.text):
        for m in re.finditer(r"\w+", document.file.text[i.start : i.end]):
            page = page_file(m[0]) if m[0].upper() in i.codes else None
            if page is not None:
                span = Span(Anchor(document.path), i.start + m.start(), i.start + m.end())
                found.append(Link(span, page, f"what {m[0]} means"))
    return sorted(found, key=lambda link: link.span.lo)
