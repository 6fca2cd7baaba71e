"""Requests about what belongs together: types, calls, links, and parts of what is asked of whole
files (colours of a range and what changed of them, formatting of lines)."""

from __future__ import annotations

import itertools

from lsprotocol import types as lsp

from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lsp.ide import definition, hierarchy, links, symbols, tokens
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.format import formatting_of_lines
from tessera_lsp.server import convert
from tessera_lsp.server.answers import SYMBOL_KINDS
from tessera_lsp.server.navigation import Navigation
from tessera_lsp.server.server import TesseraServer, member


class Structure(Navigation):
    """Answers that lead from one place to others. ``_colours``: what was last sent of each file,
    with its name."""

    def __init__(self, server: TesseraServer) -> None:
        super().__init__(server)
        self._colours: dict[str, tuple[str, list[int]]] = {}
        self._numbers = itertools.count(1)

    # --- types and calls -----------------------------------------------------------------

    def type_definition(self, params: lsp.TypeDefinitionParams) -> lsp.Location | None:
        def find(document: Document) -> lsp.Location | None:
            found = definition.type_definition(document, self.offset(document, params))
            if found is None or found.span is None:
                return None
            file = document.session.source(found.path)
            where = convert.span_range(file, found.span, self.server.encoding)
            return lsp.Location(self.server.uri(found.path), where)

        return self.ask(params, find, None)

    def prepare_calls(self, params: lsp.CallHierarchyPrepareParams) -> list[lsp.CallHierarchyItem]:
        def find(document: Document) -> list[lsp.CallHierarchyItem]:
            found = hierarchy.item_at(document, self.offset(document, params))
            return [] if found is None else [self.item(document, found)]

        return self.ask(params, find, [])

    def item(self, document: Document, item: hierarchy.Item) -> lsp.CallHierarchyItem:
        """A function as the editor shows it; the top level of a file has the file's name."""
        file, encoding, d = (
            document.session.source(item.path),
            self.server.encoding,
            item.declaration,
        )
        uri, name = self.server.uri(item.path), "" if d is None else d.name
        if d is None:
            whole = lsp.Range(convert.START.start, convert.position(file, len(file.text), encoding))
            shown, kind, where, at = uri.rsplit("/")[-1], lsp.SymbolKind.File, whole, convert.START
        else:
            shown, kind = name, SYMBOL_KINDS["kernel" if symbols.is_kernel(d) else "function"]
            where = convert.span_range(file, d.span, encoding)
            at = convert.span_range(file, d.name_span, encoding)
        return lsp.CallHierarchyItem(shown, kind, uri, where, at, data={"name": name})

    def of_item(self, item: lsp.CallHierarchyItem) -> tuple[Document, hierarchy.Item] | None:
        """What an editor asks about: a function that it was shown before, in a file that it may
        not have opened."""
        path = self.server.path(item.uri)
        known = self.server.open.get(path)
        project = known.project if known is not None else self.server.project_of(path)
        document = Document(project.session, path)
        name = str(member(item.data, "name") or "")
        found = hierarchy.item_named(document, path, name)
        return None if found is None else (document, found)

    def incoming(
        self, params: lsp.CallHierarchyIncomingCallsParams
    ) -> list[lsp.CallHierarchyIncomingCall]:
        def find() -> list[lsp.CallHierarchyIncomingCall]:
            asked = self.of_item(params.item)
            if asked is None:
                return []
            document, item = asked
            return [
                lsp.CallHierarchyIncomingCall(
                    self.item(document, c.item), self.ranges(document, c.item.path, c.places)
                )
                for c in hierarchy.incoming(document, item, self.files(document))
            ]

        return self.guarded(find, [])

    def outgoing(
        self, params: lsp.CallHierarchyOutgoingCallsParams
    ) -> list[lsp.CallHierarchyOutgoingCall]:
        def find() -> list[lsp.CallHierarchyOutgoingCall]:
            asked = self.of_item(params.item)
            if asked is None:
                return []
            document, item = asked
            return [
                lsp.CallHierarchyOutgoingCall(
                    self.item(document, c.item), self.ranges(document, document.path, c.places)
                )
                for c in hierarchy.outgoing(document, item)
            ]

        return self.guarded(find, [])

    def ranges(self, document: Document, path: str, spans: list[Span]) -> list[lsp.Range]:
        file = document.session.source(path)
        return [convert.span_range(file, s, self.server.encoding) for s in spans]

    def links(self, params: lsp.DocumentLinkParams) -> list[lsp.DocumentLink]:
        def find(document: Document) -> list[lsp.DocumentLink]:
            return [
                lsp.DocumentLink(
                    convert.span_range(document.file, link.span, self.server.encoding),
                    self.server.uri(link.path),
                    link.title,
                )
                for link in links.links(document)
            ]

        return self.ask(params, find, [])

    # --- colours -------------------------------------------------------------------------

    def tokens(self, params: lsp.SemanticTokensParams) -> lsp.SemanticTokens:
        return self.kept(params.text_document.uri, list(super().tokens(params).data))

    def kept(self, uri: str, data: list[int]) -> lsp.SemanticTokens:
        """Colours with a name, by which what changes of them can be asked for."""
        name = str(next(self._numbers))
        self._colours = {u: c for u, c in self._colours.items() if self.server.is_open(u)}
        self._colours[uri] = name, data
        return lsp.SemanticTokens(data, name)

    def tokens_delta(
        self, params: lsp.SemanticTokensDeltaParams
    ) -> lsp.SemanticTokens | lsp.SemanticTokensDelta:
        uri = params.text_document.uri
        before = self._colours.get(uri)
        now = self.tokens(lsp.SemanticTokensParams(params.text_document))
        if before is None or before[0] != params.previous_result_id:
            return now
        old, new = before[1], list(now.data)
        head = 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        middle = list(new[head : len(new) - tail])
        edits = [lsp.SemanticTokensEdit(head, len(old) - head - tail, middle)]
        same = len(old) == len(new) == head
        return lsp.SemanticTokensDelta([] if same else edits, now.result_id)

    def tokens_in(self, params: lsp.SemanticTokensRangeParams) -> lsp.SemanticTokens:
        def find(document: Document) -> lsp.SemanticTokens:
            lo, hi = self.offsets(document, params.range)
            found = (
                t for t in tokens.tokens(document) if t.offset < hi and lo < t.offset + t.length
            )
            return lsp.SemanticTokens(convert.encoded(document.file, found, self.server.encoding))

        return self.ask(params, find, lsp.SemanticTokens([]))

    def offsets(self, document: Document, at: lsp.Range) -> tuple[int, int]:
        file, encoding = document.file, self.server.encoding
        lo = file.offset_at(at.start.line, at.start.character, encoding)
        return lo, file.offset_at(at.end.line, at.end.character, encoding)

    # --- formatting ----------------------------------------------------------------------

    def range_formatting(self, params: lsp.DocumentRangeFormattingParams) -> list[lsp.TextEdit]:
        def find(document: Document) -> list[lsp.TextEdit]:
            start, end = params.range.start, params.range.end
            last = end.line - (end.character == 0 and end.line > start.line)
            found = formatting_of_lines(document, start.line, last)
            return [self.text_edit(document.file, e) for e in found]

        return self.ask(params, find, [])

    def on_new_line(self, params: lsp.DocumentOnTypeFormattingParams) -> list[lsp.TextEdit]:
        """The statement above the new line; the line itself stays as the editor made it."""

        def find(document: Document) -> list[lsp.TextEdit]:
            last = params.position.line - 1
            if last < 0:
                return []
            offset = document.file.starts[last] if last < len(document.file.starts) else 0
            function = document.function_at(offset)
            body = function.body if function is not None else document.module.body
            lines = document.file.line_of
            first = last
            for statement in body:
                if lines(statement.span.lo) <= last <= lines(statement.span.hi):
                    compound = isinstance(statement, (ast.FunctionDef, ast.If, ast.For, ast.While))
                    first = last if compound else lines(statement.span.lo)
            found = formatting_of_lines(document, first, last)
            return [self.text_edit(document.file, e) for e in found]

        return self.ask(params, find, [])
