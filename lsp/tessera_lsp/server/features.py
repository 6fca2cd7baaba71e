"""Every feature of the server, and what it tells the client that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lsprotocol import types as lsp

from tessera_lang.driver.project import NAME
from tessera_lsp.ide import tokens
from tessera_lsp.server.navigation import Navigation
from tessera_lsp.server.protocol import in_analysis
from tessera_lsp.server.server import TesseraServer, guarded

LEGEND = lsp.SemanticTokensLegend(
    token_types=list(tokens.TYPES), token_modifiers=list(tokens.MODIFIERS)
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
    answers = Navigation(server)
    triggers = lsp.CompletionOptions(trigger_characters=[".", "@"])
    kinds = lsp.CodeActionKind
    fixes = lsp.CodeActionOptions(code_action_kinds=[kinds.QuickFix, kinds.SourceFixAll])
    brackets = lsp.SignatureHelpOptions(["(", ","], [")"])
    for method, answer, options in (
        (lsp.TEXT_DOCUMENT_HOVER, answers.hover, None),
        (lsp.TEXT_DOCUMENT_COMPLETION, answers.completion, triggers),
        (lsp.TEXT_DOCUMENT_DEFINITION, answers.definition, None),
        (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, answers.symbols, None),
        (lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, answers.tokens, LEGEND),
        (lsp.TEXT_DOCUMENT_FORMATTING, answers.formatting, None),
        (lsp.TEXT_DOCUMENT_CODE_ACTION, answers.actions, fixes),
        (lsp.TEXT_DOCUMENT_SIGNATURE_HELP, answers.signature, brackets),
        (lsp.TEXT_DOCUMENT_REFERENCES, answers.references, None),
        (lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, answers.highlights, None),
        (lsp.TEXT_DOCUMENT_PREPARE_RENAME, answers.prepare_rename, None),
        (lsp.TEXT_DOCUMENT_RENAME, answers.rename, lsp.RenameOptions(prepare_provider=True)),
        (lsp.TEXT_DOCUMENT_INLAY_HINT, answers.hints, None),
        (lsp.TEXT_DOCUMENT_FOLDING_RANGE, answers.folds, None),
        (lsp.TEXT_DOCUMENT_SELECTION_RANGE, answers.selections, None),
        (lsp.WORKSPACE_SYMBOL, answers.workspace_symbols, None),
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
