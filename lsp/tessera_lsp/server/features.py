"""Every feature of the server, and what it tells the client that it has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from lsprotocol import types as lsp

from tessera_lang.driver.project import NAME
from tessera_lsp.ide import tokens
from tessera_lsp.server.compiling import Compiling, plain
from tessera_lsp.server.protocol import in_analysis
from tessera_lsp.server.pull import Pulls
from tessera_lsp.server.server import TesseraServer, guarded, member
from tessera_lsp.server.structure import Structure

LEGEND = lsp.SemanticTokensLegend(
    token_types=list(tokens.TYPES), token_modifiers=list(tokens.MODIFIERS)
)


def never() -> bool:
    return False


def analysed(
    answer: Callable[[Any], object], changes: Callable[[], bool] = never
) -> Callable[[Any], object]:
    """A function of its own for the library, which notes things on it; what it gives is found by
    the thread of the analysis. ``changes``: whether no check may go on after it."""

    def handler(params: Any) -> object:
        return answer(params)

    return in_analysis(handler, changes)


def make_server() -> TesseraServer:
    """A server with every feature registered."""
    server = TesseraServer()
    answers = Structure(server)
    triggers = lsp.CompletionOptions(trigger_characters=[".", "@"], resolve_provider=True)
    kinds = lsp.CodeActionKind
    fixes = lsp.CodeActionOptions(code_action_kinds=[kinds.QuickFix, kinds.SourceFixAll])
    new_line = lsp.DocumentOnTypeFormattingOptions("\n")
    brackets = lsp.SignatureHelpOptions(["(", ","], [")"])
    for method, answer, options in (
        (lsp.TEXT_DOCUMENT_HOVER, answers.hover, None),
        (lsp.TEXT_DOCUMENT_COMPLETION, answers.completion, triggers),
        (lsp.TEXT_DOCUMENT_DEFINITION, answers.definition, None),
        (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, answers.symbols, None),
        (lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, answers.tokens, LEGEND),
        (lsp.TEXT_DOCUMENT_FORMATTING, answers.formatting, None),
        (lsp.TEXT_DOCUMENT_SIGNATURE_HELP, answers.signature, brackets),
        (lsp.TEXT_DOCUMENT_REFERENCES, answers.references, None),
        (lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, answers.highlights, None),
        (lsp.TEXT_DOCUMENT_PREPARE_RENAME, answers.prepare_rename, None),
        (lsp.TEXT_DOCUMENT_RENAME, answers.rename, lsp.RenameOptions(prepare_provider=True)),
        (lsp.TEXT_DOCUMENT_INLAY_HINT, answers.hints, None),
        (lsp.TEXT_DOCUMENT_FOLDING_RANGE, answers.folds, None),
        (lsp.TEXT_DOCUMENT_SELECTION_RANGE, answers.selections, None),
        (lsp.WORKSPACE_SYMBOL, answers.workspace_symbols, None),
        (lsp.COMPLETION_ITEM_RESOLVE, answers.resolve_completion, None),
        (lsp.TEXT_DOCUMENT_TYPE_DEFINITION, answers.type_definition, None),
        (lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY, answers.prepare_calls, None),
        (lsp.CALL_HIERARCHY_INCOMING_CALLS, answers.incoming, None),
        (lsp.CALL_HIERARCHY_OUTGOING_CALLS, answers.outgoing, None),
        (lsp.TEXT_DOCUMENT_DOCUMENT_LINK, answers.links, lsp.DocumentLinkOptions()),
        (lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA, answers.tokens_delta, LEGEND),
        (lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE, answers.tokens_in, LEGEND),
        (lsp.TEXT_DOCUMENT_RANGE_FORMATTING, answers.range_formatting, None),
        (lsp.TEXT_DOCUMENT_ON_TYPE_FORMATTING, answers.on_new_line, new_line),
    ):
        server.feature(method, options)(analysed(answer))
    # What is told of an edited file is looked up first, and no two checks may mix.
    actions = analysed(answers.actions, lambda: any(k.is_due for k in server.open.values()))
    server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, fixes)(actions)
    compiling = Compiling(server)
    server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)(analysed(compiling.lenses))
    register_commands(server, compiling)
    register_events(server)
    return server


def register_commands(server: TesseraServer, compiling: Compiling) -> None:
    """What can be asked for by name, and as a request of its own."""
    for name, act in (
        ("viewIr", compiling.view_ir),
        ("resources", compiling.resources),
        ("run", compiling.run),
        ("test", compiling.test),
        ("toggleRemarks", compiling.toggle_remarks),
    ):
        server.command(f"tessera.{name}")(command(act))
        server.feature(f"tessera/{name}")(command(act))


def command(act: Callable[[dict[str, Any]], Awaitable[object]]) -> Callable[[Any], object]:
    """A function of its own that takes JSON."""

    async def handler(asked: Any) -> object:
        given = plain(asked)
        return await act(cast("dict[str, Any]", given) if isinstance(given, dict) else {})

    return handler


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
        server.feature(method)(analysed(safe(event), changes=lambda: True))

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        guarded(lambda: begin(server, params.initialization_options), None)

    @server.feature(lsp.INITIALIZED)
    def initialized(params: lsp.InitializedParams) -> None:
        guarded(lambda: watch_files(server), None)

    @server.feature(lsp.SHUTDOWN)
    def shutdown(params: None) -> None:
        for tell in server.on_end:
            tell()
        server.ended_well = True


def begin(server: TesseraServer, options: object) -> None:
    """Settings that count from the start; ``{"diagnostics": "pull"}``: the editor asks for
    diagnostics, and none are sent unasked."""
    if member(options, "diagnostics") == "pull":
        pulls = server.pulls = Pulls(server)
        told = lsp.DiagnosticOptions(True, True, "tessera")
        server.feature(lsp.TEXT_DOCUMENT_DIAGNOSTIC, told)(analysed(pulls.document, lambda: True))

        async def workspace(params: lsp.WorkspaceDiagnosticParams) -> object:
            return await pulls.workspace(params)

        server.feature(lsp.WORKSPACE_DIAGNOSTIC)(workspace)
    server.configured(options)


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
