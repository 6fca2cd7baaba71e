"""Answers about one file: each asks ``ide`` and converts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lsprotocol import types as lsp

from tessera_lang.diagnostics import Diagnostic, Edit
from tessera_lang.source import SourceFile
from tessera_lsp.ide import actions, completion, definition, hover, symbols, tokens
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.format import formatting
from tessera_lsp.server import convert
from tessera_lsp.server.server import TesseraServer, guarded

T = TypeVar("T")

COMPLETION_KINDS = {
    "keyword": lsp.CompletionItemKind.Keyword,
    "function": lsp.CompletionItemKind.Function,
    "variable": lsp.CompletionItemKind.Variable,
    "module": lsp.CompletionItemKind.Module,
    "type": lsp.CompletionItemKind.Class,
    "member": lsp.CompletionItemKind.Property,
    "constant": lsp.CompletionItemKind.Constant,
    "snippet": lsp.CompletionItemKind.Snippet,
}
QUICK_FIX = lsp.CodeActionKind.QuickFix.value
FIX_ALL = lsp.CodeActionKind.SourceFixAll.value
SYMBOL_KINDS = {
    "kernel": lsp.SymbolKind.Event,
    "function": lsp.SymbolKind.Function,
    "variable": lsp.SymbolKind.Variable,
}


class OfDocument(Protocol):
    """What the parameters of a request about one file have in common."""

    @property
    def text_document(self) -> lsp.TextDocumentIdentifier: ...


class OfPlace(OfDocument, Protocol):
    @property
    def position(self) -> lsp.Position: ...


class Answers:
    """Answers to requests. A file that is not open has none, and a fault of ours costs one."""

    def __init__(self, server: TesseraServer) -> None:
        self.server = server
        self._offered = 0
        self._last: tuple[int, tuple[completion.Completion, ...]] = (0, ())

    def ask(self, params: OfDocument, find: Callable[[Document], T], otherwise: T) -> T:
        def answer() -> T:
            document = self.server.document(params.text_document.uri)
            return otherwise if document is None else find(document)

        return guarded(answer, otherwise)

    def guarded(self, find: Callable[[], T], otherwise: T) -> T:
        """An answer; a fault of ours costs it."""
        return guarded(find, otherwise)

    def offset(self, document: Document, params: OfPlace) -> int:
        at = params.position
        return document.file.offset_at(at.line, at.character, self.server.encoding)

    def hover(self, params: lsp.HoverParams) -> lsp.Hover | None:
        def find(document: Document) -> lsp.Hover | None:
            found = hover.hover(document, self.offset(document, params))
            if found is None:
                return None
            where = convert.span_range(document.file, found.span, self.server.encoding)
            text = lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown)
            return lsp.Hover(text, where)

        return self.ask(params, find, None)

    def completion(self, params: lsp.CompletionParams) -> lsp.CompletionList:
        def find(document: Document) -> lsp.CompletionList:
            found = completion.completions(document, self.offset(document, params))
            items = [self.completion_item(document, c, i) for i, c in enumerate(found)]
            self._offered += 1
            self._last = self._offered, found
            cut = len(found) >= completion.LIMIT or any(c.more is not None for c in found)
            return lsp.CompletionList(cut, items)

        return self.ask(params, find, lsp.CompletionList(False, []))

    def completion_item(
        self, document: Document, c: completion.Completion, place: int
    ) -> lsp.CompletionItem:
        """A completion as the editor takes it. The text about it follows when the editor asks,
        where it can; one that does not know snippets gets them without their places."""
        item = "text_document", "completion", "completion_item"
        resolves = self.server.capability(*item, "resolve_support", "properties")
        lazy = isinstance(resolves, (list, tuple)) and "documentation" in resolves
        made = lsp.CompletionItem(
            label=c.label,
            kind=COMPLETION_KINDS[c.kind],
            detail=c.detail or None,
            documentation=None if lazy else documented(c),
            sort_text=f"{place:04}",
            data=[self._offered + 1, place],
        )
        if c.insert and self.server.can(*item, "snippet_support"):
            made.insert_text, made.insert_text_format = c.insert, lsp.InsertTextFormat.Snippet
        elif c.insert:
            made.insert_text = completion.without_places(c.insert)
        if c.source:
            made.label_details = lsp.CompletionItemLabelDetails(description=c.source)
        if c.more is not None:
            made.additional_text_edits = [self.text_edit(document.file, c.more)]
        return made

    def resolve_completion(self, item: lsp.CompletionItem) -> lsp.CompletionItem:
        """The text about a name that was offered last."""
        serial, found = self._last
        match item.data:
            case [int(of), int(place)] if of == serial and place < len(found):
                item.documentation = documented(found[place])
            case _:
                pass
        return item

    def definition(self, params: lsp.DefinitionParams) -> lsp.Location | None:
        def find(document: Document) -> lsp.Location | None:
            found = definition.definition(document, self.offset(document, params))
            if found is None:
                return None
            where = convert.START
            if found.span is not None:
                file = document.session.source(found.path)
                where = convert.span_range(file, found.span, self.server.encoding)
            return lsp.Location(self.server.uri(found.path), where)

        return self.ask(params, find, None)

    def symbols(self, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        def find(document: Document) -> list[lsp.DocumentSymbol]:
            encoding = self.server.encoding
            return [
                lsp.DocumentSymbol(
                    name=e.name,
                    detail=e.detail,
                    kind=SYMBOL_KINDS[e.kind],
                    range=convert.span_range(document.file, e.span, encoding),
                    selection_range=convert.span_range(document.file, e.name_span, encoding),
                )
                for e in symbols.outline(document)
            ]

        return self.ask(params, find, [])

    def tokens(self, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        def find(document: Document) -> lsp.SemanticTokens:
            found = tokens.tokens(document)
            return lsp.SemanticTokens(convert.encoded(document.file, found, self.server.encoding))

        return self.ask(params, find, lsp.SemanticTokens([]))

    def formatting(self, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        def find(document: Document) -> list[lsp.TextEdit]:
            edit = formatting(document)
            return [] if edit is None else [self.text_edit(document.file, edit)]

        return self.ask(params, find, [])

    def actions(self, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        def find(document: Document) -> list[lsp.CodeAction]:
            kinds = params.context.only
            said = self.server.said_of(document.path)
            if kinds is not None and any(is_kind(k, FIX_ALL) for k in kinds if k):
                return self.fix_all(document, said)
            if kinds is not None and not any(is_kind(k, QUICK_FIX) for k in kinds):
                return []
            at, encoding = params.range, self.server.encoding
            lo = document.file.offset_at(at.start.line, at.start.character, encoding)
            hi = document.file.offset_at(at.end.line, at.end.character, encoding)
            return [
                self.action(document, found, params.context.diagnostics)
                for found in actions.quick_fixes(document, lo, hi, said)
            ]

        return self.ask(params, find, [])

    def fix_all(self, document: Document, said: Sequence[Diagnostic]) -> list[lsp.CodeAction]:
        """One action of all safe fixes of a file that do not meet."""
        edits = actions.safe_edits(document, said)
        if not edits:
            return []
        made = [self.text_edit(document.file, edit) for edit in edits]
        edit = lsp.WorkspaceEdit(changes={self.server.uri(document.path): made})
        return [lsp.CodeAction("apply all safe fixes", lsp.CodeActionKind.SourceFixAll, edit=edit)]

    def action(
        self, document: Document, found: actions.QuickFix, shown: Sequence[lsp.Diagnostic]
    ) -> lsp.CodeAction:
        """A quick fix as the editor takes it, with the diagnostics it shows that this mends."""
        changes: dict[str, list[lsp.TextEdit]] = {}
        for edit in found.fix.edits:
            file = document.session.source(edit.span.file)
            uri = self.server.uri(edit.span.file)
            changes.setdefault(uri, []).append(self.text_edit(file, edit))
        d = found.diagnostic
        assert d.span is not None
        where = convert.span_range(document.file, d.span, self.server.encoding)
        return lsp.CodeAction(
            title=found.fix.title,
            kind=lsp.CodeActionKind.QuickFix,
            diagnostics=[s for s in shown if s.code == d.code and s.range == where],
            is_preferred=found.fix.applicability == "safe",
            edit=lsp.WorkspaceEdit(changes=changes),
        )

    def text_edit(self, file: SourceFile, edit: Edit) -> lsp.TextEdit:
        where = convert.span_range(file, edit.span, self.server.encoding)
        return lsp.TextEdit(where, edit.replacement)


def is_kind(asked: str, kind: str) -> bool:
    """Whether an editor that asks for a kind of action wants one of this kind."""
    return asked in ("", kind) or kind.startswith(f"{asked}.")


def documented(c: completion.Completion) -> lsp.MarkupContent | None:
    """The text about a name."""
    text = c.documentation
    return lsp.MarkupContent(lsp.MarkupKind.Markdown, text) if text else None
