"""Requests about names over files, calls, and what is shown beside the text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tessera_lang.source import SourceFile
from tessera_lsp.ide import calls, folding, hints, occurrences, symbols
from tessera_lsp.ide.document import Document
from tessera_lsp.server import convert
from tessera_lsp.server.answers import SYMBOL_KINDS, Answers

T = TypeVar("T")
MOST_FILES = 2000
_LEFT_OUT = frozenset({"node_modules", "build", "__pycache__"})


class Navigation(Answers):
    """Answers that look at more than one file, and hints."""

    def files(self, document: Document) -> Iterator[str]:
        """The files in which a name of a file may occur: open ones, and those of its project."""
        yield from self.server.open
        known = self.server.open.get(document.path)
        folder = known.project.folder if known is not None else None
        if not document.path.startswith("<"):
            yield from sources_in(folder or os.path.dirname(document.path), folder is not None)

    def signature(self, params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        def find(document: Document) -> lsp.SignatureHelp | None:
            call = calls.called(document, self.offset(document, params))
            if call is None:
                return None
            shown = lsp.SignatureInformation(
                call.label,
                lsp.MarkupContent(lsp.MarkupKind.Markdown, call.documentation),
                [lsp.ParameterInformation(written) for _, written in call.parameters],
            )
            # One behind the last: no parameter is shown as the one that is being written.
            active = len(call.parameters) if call.active is None else call.active
            return lsp.SignatureHelp([shown], 0, active)

        return self.ask(params, find, None)

    def references(self, params: lsp.ReferenceParams) -> list[lsp.Location]:
        def find(document: Document) -> list[lsp.Location]:
            found = occurrences.at(document, self.offset(document, params))
            if found is None:
                return []
            places = occurrences.references(document, found.thing, self.files(document))
            declared = params.context.include_declaration
            return [
                self.location(document, o)
                for o in places
                if declared or not occurrences.declares(document, o)
            ]

        return self.ask(params, find, [])

    def location(self, document: Document, o: occurrences.Occurrence) -> lsp.Location:
        file = document.session.source(o.span.file)
        where = convert.span_range(file, o.span, self.server.encoding)
        return lsp.Location(self.server.uri(o.span.file), where)

    def highlights(self, params: lsp.DocumentHighlightParams) -> list[lsp.DocumentHighlight]:
        def find(document: Document) -> list[lsp.DocumentHighlight]:
            found = occurrences.at(document, self.offset(document, params))
            if found is None:
                return []
            kinds = lsp.DocumentHighlightKind
            return [
                lsp.DocumentHighlight(
                    convert.span_range(document.file, o.span, self.server.encoding),
                    kinds.Write if o.writes else kinds.Read,
                )
                for o in occurrences.occurrences(document)
                if o.thing == found.thing
            ]

        return self.ask(params, find, [])

    def prepare_rename(self, params: lsp.PrepareRenameParams) -> lsp.Range | None:
        def find(document: Document) -> lsp.Range | str:
            try:
                found = occurrences.prepared(document, self.offset(document, params))
            except occurrences.NotRenamed as error:
                return str(error)
            return convert.span_range(document.file, found.span, self.server.encoding)

        return _or_refused(self.ask(params, find, None))

    def rename(self, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        def find(document: Document) -> lsp.WorkspaceEdit | str:
            offset, files = self.offset(document, params), self.files(document)
            try:
                edits = occurrences.renamed(document, offset, params.new_name, files)
            except occurrences.NotRenamed as error:
                return str(error)
            changes: dict[str, list[lsp.TextEdit]] = {}
            for edit in edits:
                file = document.session.source(edit.span.file)
                uri = self.server.uri(edit.span.file)
                changes.setdefault(uri, []).append(self.text_edit(file, edit))
            return lsp.WorkspaceEdit(changes=changes)

        return _or_refused(self.ask(params, find, None))

    def hints(self, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        def find(document: Document) -> list[lsp.InlayHint]:
            start, end, encoding = params.range.start, params.range.end, self.server.encoding
            lo = document.file.offset_at(start.line, start.character, encoding)
            hi = document.file.offset_at(end.line, end.character, encoding)
            kinds = lsp.InlayHintKind
            return [
                lsp.InlayHint(
                    convert.position(document.file, h.offset, encoding),
                    h.label,
                    kinds.Type if h.is_type else kinds.Parameter,
                    tooltip=h.tooltip or None,
                )
                for h in hints.hints(document, lo, hi)
            ]

        return self.ask(params, find, [])

    def folds(self, params: lsp.FoldingRangeParams) -> list[lsp.FoldingRange]:
        def find(document: Document) -> list[lsp.FoldingRange]:
            kind = lsp.FoldingRangeKind.Imports
            return [
                lsp.FoldingRange(first, last, kind=kind if imports else None)
                for first, last, imports in folding.folds(document)
            ]

        return self.ask(params, find, [])

    def selections(self, params: lsp.SelectionRangeParams) -> list[lsp.SelectionRange]:
        def find(document: Document) -> list[lsp.SelectionRange]:
            encoding = self.server.encoding
            found: list[lsp.SelectionRange] = []
            for at in params.positions:
                offset = document.file.offset_at(at.line, at.character, encoding)
                last = lsp.SelectionRange(_whole(document.file, encoding))
                for span in reversed(folding.selections(document, offset)):
                    where = convert.span_range(document.file, span, encoding)
                    last = lsp.SelectionRange(where, last)
                found.append(last)
            return found

        return self.ask(params, find, [])

    def workspace_symbols(self, params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
        """Names of open files and of the workspace's that have the letters asked for in order."""
        return self.guarded(lambda: list(self.symbols_with(params.query.lower())), [])

    def symbols_with(self, query: str) -> Iterator[lsp.WorkspaceSymbol]:
        encoding, seen = self.server.encoding, set[str]()
        for project in self.server.projects:
            inside = sources_in(project.folder, True) if project.folder else ()
            for path in (*self.server.open, *inside):
                if path in seen:
                    continue
                seen.add(path)
                document = Document(project.session, path)
                for e in self.guarded(lambda d=document: symbols.outline(d), ()):
                    if has_letters(e.name.lower(), query):
                        where = convert.span_range(document.file, e.name_span, encoding)
                        place = lsp.Location(self.server.uri(path), where)
                        yield lsp.WorkspaceSymbol(place, e.name, SYMBOL_KINDS[e.kind])


def has_letters(name: str, query: str) -> bool:
    """Whether the letters of a query stand in a name in their order."""
    rest = iter(name)
    return all(c in rest for c in query)


def _whole(file: SourceFile, encoding: str) -> lsp.Range:
    return lsp.Range(lsp.Position(0, 0), convert.position(file, len(file.text), encoding))


def _or_refused(found: T | str) -> T:
    """What was found; words say why there is nothing. Raises JsonRpcException."""
    if isinstance(found, str):
        raise JsonRpcException(found, lsp.LSPErrorCodes.RequestFailed)
    return found


def sources_in(folder: str, deep: bool) -> Iterator[str]:
    """The source files in a folder, and below if ``deep``; hidden folders are left out."""
    count = 0
    for at, folders, names in os.walk(folder):
        folders[:] = (
            sorted(f for f in folders if f[0] != "." and f not in _LEFT_OUT) if deep else []
        )
        for name in sorted(names):
            if name.endswith(".tessera"):
                count += 1
                if count > MOST_FILES:
                    return
                yield str(Path(at) / name)
