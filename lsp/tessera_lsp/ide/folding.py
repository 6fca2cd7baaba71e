"""What an editor may fold, and what it selects step by step. Must not know LSP."""

from __future__ import annotations

from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.tree import descend, walk

_BLOCKS = (ast.FunctionDef, ast.If, ast.For, ast.While, ast.With)


def folds(document: Document) -> list[tuple[int, int, bool]]:
    """First and last line, from 0, of what goes over several; True: imports."""
    file, found = document.file, set[tuple[int, int, bool]]()

    def add(span: Span) -> None:
        text = file.text[span.lo : span.hi].rstrip()
        first, last = file.line_of(span.lo), file.line_of(span.lo + max(0, len(text) - 1))
        if last > first:
            found.add((first, last, False))

    for node in walk(document.module):
        if isinstance(node, ast.FunctionDef):
            add(Span(node.signature_span.anchor, node.signature_span.start, node.span.end))
        elif isinstance(node, (*_BLOCKS, ast.StringLit, ast.Call, ast.ListExpr, ast.DictExpr)):
            add(node.span)
    group: list[ast.Stmt] = []
    for statement in (*document.module.body, None):
        if isinstance(statement, (ast.Import, ast.FromImport)):
            group.append(statement)
        elif group:
            first, last = file.line_of(group[0].span.lo), file.line_of(group[-1].span.lo)
            if last > first:
                found.add((first, last, True))
            group = []
    return sorted(found)


def selections(document: Document, offset: int) -> list[Span]:
    """What holds an offset, from the smallest to the largest."""
    found: list[Span] = []
    for node in reversed(descend(document.module, offset)):
        if not found or (node.span.lo, node.span.hi) != (found[-1].lo, found[-1].hi):
            found.append(node.span)
    return found
