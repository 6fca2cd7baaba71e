"""The protocol library, without its own copies of the texts (``texts.py`` says why)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol, lsp_method
from pygls.protocol.json_rpc import RPCRequest

Handler = TypeVar("Handler", bound=Callable[[Any], object])
_CHANGES = "tessera_changes"


def in_analysis(handler: Handler, changes: Callable[[], bool]) -> Handler:
    """Mark a handler that the thread of the analysis runs. ``changes``: whether no check may go on
    after it, asked when its turn has come."""
    setattr(handler, _CHANGES, changes)
    return handler


class TesseraProtocol(LanguageServerProtocol):
    """Hands the messages about texts to the server's handlers and keeps nothing; what asks about
    files goes to the thread of the analysis, in the order in which it came."""

    def _execute_handler(
        self, msg_id: str | int, handler: Callable[..., Any],
        callback: Callable[[Future[Any]], None],
        args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        changes = getattr(handler, _CHANGES, None)
        if changes is None:
            super()._execute_handler(msg_id, handler, callback, args, kwargs)
            return
        server = cast("Any", self._server)
        loop = server.loop = asyncio.get_running_loop()
        future: Future[Any] = server.analysis.submit(
            lambda: handler(*(args or ()), **(kwargs or {})), changes
        )
        self._request_futures[msg_id] = future

        def answer() -> None:
            self._request_futures.pop(msg_id, None)
            callback(future)

        # Whatever is written is written by the loop.
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(answer))

    def structure_message(self, data: dict[str, Any]) -> Any:
        """As the library's; a request with wrong parameters is answered, which it is not there."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=error.to_response_error())
            raise

    def handle_message(self, message: Any) -> None:
        """As the library's; after `shutdown` a request is answered with an error."""
        if self._shutdown and isinstance(message, RPCRequest):
            text = "the server was told to shut down"
            error = lsp.ResponseError(lsp.ErrorCodes.InvalidRequest, text)
            self._send_response(message.id, error=error)
            return
        super().handle_message(message)

    @lsp_method(lsp.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, params: lsp.ExecuteCommandParams
    ) -> object:
        """A command with its one argument; it can be cancelled, which it cannot in the library."""
        commands = cast("dict[str, Callable[[Any], Any]]", cast("Any", self.fm).commands)
        act = commands.get(params.command)
        if act is None:
            text = f"there is no command {params.command!r}"
            raise JsonRpcException(text, lsp.ErrorCodes.InvalidParams)
        arguments = list(params.arguments or ())
        return await act(arguments[0] if arguments else None)

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
