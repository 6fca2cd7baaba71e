"""The requests and notifications that are answered: each asks ``ide`` and converts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from lsprotocol import types as lsp

from tessera_lang.diagnostics import Edit
from tessera_lang.driver.project import NAME
from tessera_lang.source import SourceFile
from tessera_lsp.ide import actions, completion, definition, hover, symbols, tokens
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.format import formatting
from tessera_lsp.server import convert
from tessera_lsp.server.protocol import in_analysis
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
}
SYMBOL_KINDS = {
    "kernel": lsp.SymbolKind.Event,
    "function": lsp.SymbolKind.Function,
    "variable": lsp.SymbolKind.Variable,
}
LEGEND = lsp.SemanticTokensLegend(
    token_types=list(tokens.TYPES), token_modifiers=list(tokens.MODIFIERS)
)


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

    def ask(self, params: OfDocument, find: Callable[[Document], T], otherwise: T) -> T:
        def answer() -> T:
            document = self.server.document(params.text_document.uri)
            return otherwise if document is None else find(document)

        return guarded(answer, otherwise)

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
            items = [completion_item(c, i) for i, c in enumerate(found)]
            return lsp.CompletionList(len(found) >= completion.LIMIT, items)

        return self.ask(params, find, lsp.CompletionList(False, []))

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
            if kinds is not None and not any(_is_quick_fix(kind) for kind in kinds):
                return []
            at, encoding = params.range, self.server.encoding
            lo = document.file.offset_at(at.start.line, at.start.character, encoding)
            hi = document.file.offset_at(at.end.line, at.end.character, encoding)
            return [
                self.action(document, found, params.context.diagnostics)
                for found in actions.quick_fixes(
                    document, lo, hi, self.server.said_of(document.path)
                )
            ]

        return self.ask(params, find, [])

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


def _is_quick_fix(kind: str) -> bool:
    """Whether an editor that asks for this kind of action wants quick fixes."""
    return kind in ("", lsp.CodeActionKind.QuickFix.value)


def completion_item(c: completion.Completion, place: int) -> lsp.CompletionItem:
    text = c.documentation
    return lsp.CompletionItem(
        label=c.label,
        kind=COMPLETION_KINDS[c.kind],
        detail=c.detail or None,
        documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, text) if text else None,
        sort_text=f"{place:04}",
    )


def analysed(answer: Callable[[Any], object], changes: bool = False) -> Callable[[Any], object]:
    """A function of its own for the library, which notes things on it; what it gives is found by
    the thread of the analysis. ``changes``: it is no question."""

    def handler(params: Any) -> object:
        return answer(params)

    return in_analysis(handler, changes)


def make_server() -> TesseraServer:
    """A server with every feature registered."""
    server = TesseraServer()
    answers = Answers(server)
    triggers = lsp.CompletionOptions(trigger_characters=[".", "@"])
    fixes = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    for method, answer, options in (
        (lsp.TEXT_DOCUMENT_HOVER, answers.hover, None),
        (lsp.TEXT_DOCUMENT_COMPLETION, answers.completion, triggers),
        (lsp.TEXT_DOCUMENT_DEFINITION, answers.definition, None),
        (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, answers.symbols, None),
        (lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, answers.tokens, LEGEND),
        (lsp.TEXT_DOCUMENT_FORMATTING, answers.formatting, None),
        (lsp.TEXT_DOCUMENT_CODE_ACTION, answers.actions, fixes),
    ):
        server.feature(method, options)(analysed(answer))
    register_events(server)
    return server


def register_events(server: TesseraServer) -> None:
    """What is no question: edits, saving, files that change on disk, settings, the end."""

    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        d = params.text_document
        server.opened(d.uri, d.text, d.version)

    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        d = params.text_document
        server.changed(d.uri, params.content_changes, d.version)

    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)

    def others_changed(params: object) -> None:
        server.schedule_all()

    def configured(params: lsp.DidChangeConfigurationParams) -> None:
        server.configured(params.settings)

    for method, event in (
        (lsp.TEXT_DOCUMENT_DID_OPEN, opened),
        (lsp.TEXT_DOCUMENT_DID_CHANGE, changed),
        (lsp.TEXT_DOCUMENT_DID_CLOSE, closed),
        (lsp.TEXT_DOCUMENT_DID_SAVE, others_changed),
        (lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, others_changed),
        (lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, configured),
    ):
        server.feature(method)(analysed(safe(event), changes=True))

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        guarded(lambda: server.configured(params.initialization_options), None)

    @server.feature(lsp.INITIALIZED)
    def initialized(params: lsp.InitializedParams) -> None:
        guarded(lambda: watch_files(server), None)

    @server.feature(lsp.SHUTDOWN)
    def shutdown(params: None) -> None:
        server.ended_well = True


def safe(event: Callable[[Any], None]) -> Callable[[Any], None]:
    """A fault of ours costs one message."""
    return lambda params: guarded(lambda: event(params), None)


def watch_files(server: TesseraServer) -> None:
    """Ask an editor that can to say when a source file changes on disk."""
    workspace = server.client_capabilities.workspace
    files = workspace.did_change_watched_files if workspace is not None else None
    if files is None or not files.dynamic_registration:
        return
    patterns = ("**/*.tessera", f"**/{NAME}")
    watchers = [lsp.FileSystemWatcher(glob_pattern=p) for p in patterns]
    server.client_register_capability(
        lsp.RegistrationParams(
            [
                lsp.Registration(
                    id="tessera-files",
                    method=lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                    register_options=lsp.DidChangeWatchedFilesRegistrationOptions(watchers),
                )
            ]
        )
    )
