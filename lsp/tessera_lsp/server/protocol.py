"""The protocol library, without its own copies of the texts (``texts.py`` says why)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.protocol import LanguageServerProtocol, lsp_method


class TesseraProtocol(LanguageServerProtocol):
    """Hands the messages about texts to the server's handlers and keeps nothing."""

    def _handed_on(self, method: str, params: object) -> Generator[Any, Any, None]:
        features = cast("dict[str, Callable[..., object]]", cast("Any", self.fm).features)
        handler = features.get(method)
        if handler is not None:
            yield handler, (params,), None

    @lsp_method(lsp.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(
        self, params: lsp.DidOpenTextDocumentParams
    ) -> Generator[Any, Any, None]:
        yield from self._handed_on(lsp.TEXT_DOCUMENT_DID_OPEN, params)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(
        self, params: lsp.DidChangeTextDocumentParams
    ) -> Generator[Any, Any, None]:
        yield from self._handed_on(lsp.TEXT_DOCUMENT_DID_CHANGE, params)

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(
        self, params: lsp.DidCloseTextDocumentParams
    ) -> Generator[Any, Any, None]:
        yield from self._handed_on(lsp.TEXT_DOCUMENT_DID_CLOSE, params)
