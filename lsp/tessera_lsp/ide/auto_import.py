"""Names that an import would bring: of the standard library and of the files beside this one.

Owns the index of what a file declares, by its text alone: it is asked for at every letter, and no
file is parsed for it. Must not know LSP.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from tessera_lang.diagnostics import Edit, TesseraError
from tessera_lang.record import dataclass
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document

_DECLARED = re.compile(r"^def[ \t]+([A-Za-z]\w*)|^([A-Za-z]\w*)[ \t]*=(?!=)", re.M)
MOST = 40


@dataclass(frozen=True, slots=True)
class Importable:
    """A name of a module, and the edit that imports it from there."""

    name: str
    module: str
    is_function: bool
    edit: Edit


@lru_cache(maxsize=256)
def declared(text: str) -> tuple[tuple[str, bool], ...]:
    """The public functions and constants of a text, each once."""
    found = {m[1] or m[2]: m[1] is not None for m in _DECLARED.finditer(text)}
    return tuple(found.items())


def importable(
    document: Document, prefix: str, modules: tuple[str, ...], known: set[str]
) -> Iterator[Importable]:
    """The names with a prefix that modules declare, without ``known`` ones, at most 40."""
    count = 0
    for module in modules:
        path = document.session.imported(document.path, module)
        if path is None or path == document.path:
            continue
        try:
            text = document.session.source(path).text
        except TesseraError:
            continue
        for name, is_function in declared(text):
            if name.startswith(prefix) and name not in known:
                yield Importable(name, module, is_function, import_edit(document, module, name))
                count += 1
                if count >= MOST:
                    return


def import_edit(document: Document, module: str, name: str) -> Edit:
    """The edit that imports a name of a module: into an import of that module, or a line of its own
    below the last import, or below the text that a file begins with."""
    anchor, text = Anchor(document.path), document.file.text
    last = 0
    for statement in document.module.body:
        if isinstance(statement, ast.FromImport) and statement.module == module:
            names = statement.names
            at = names[-1].span.hi if names else -1
            if at >= 0:
                return Edit(Span(anchor, at, at), f", {name}")
        if isinstance(statement, (ast.Import, ast.FromImport)):
            last = _behind(text, statement.span.hi)
    end = "\r\n" if "\r\n" in text else "\n"
    line = f"from {module} import {name}{end}"
    if last:
        return Edit(Span(anchor, last, last), line if text[:last].endswith("\n") else end + line)
    head = document.module.body[0] if document.module.body else None
    if isinstance(head, ast.ExprStmt) and isinstance(head.value, ast.StringLit):
        last = _behind(text, head.span.hi)
        line = end + line if text[:last].endswith("\n") else end + end + line
    else:
        while text.startswith("#", last):
            last = _behind(text, last)
    return Edit(Span(anchor, last, last), line)


def _behind(text: str, at: int) -> int:
    """The start of the line below an offset."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1
