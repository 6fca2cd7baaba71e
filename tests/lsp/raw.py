"""A client of a few lines: for what a well-behaved client never sends, and for processes that
are to end."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

SERVER = [sys.executable, "-m", "tessera_lsp.server.main"]
WAIT = 20.0


class Raw:
    """One server process, spoken to in JSON. ``published``: all diagnostics that came."""

    def __init__(self, command: list[str] | None = None, **capabilities: Any) -> None:
        self.process = subprocess.Popen(
            command or SERVER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self.published: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.number = 0
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._read_log, daemon=True).start()
        self.capabilities = capabilities

    def __enter__(self) -> Raw:
        self.initialized = self.ask("initialize", processId=None, rootUri=None,
                                    capabilities=self.capabilities)  # fmt: skip
        self.tell("initialized")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        try:
            while header := stream.readline():
                length = int(header.split(b":")[1])
                while stream.readline().strip():
                    pass
                self.messages.put(json.loads(stream.read(length)))
        except ValueError:
            return  # closed

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        try:
            for line in self.process.stderr:
                self.log.append(line.decode(errors="replace"))
        except ValueError:
            return  # closed

    def send(self, message: dict[str, Any]) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_bytes(self, body: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def tell(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request; notifications that come before it are kept."""
        self.number += 1
        number = self.number
        self.send({"id": number, "method": method, "params": params})
        answer = self.until(lambda m: m.get("id") == number and "method" not in m)
        assert "error" not in answer, answer
        return answer["result"]

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            message = self.messages.get(timeout=WAIT)
            if message.get("method") == "textDocument/publishDiagnostics":
                self.published.append(message["params"])
            if wanted(message):
                return message

    # --- files -------------------------------------------------------------------------

    def open(self, uri: str, text: str, version: int = 1) -> list[dict[str, Any]]:
        item = {"uri": uri, "languageId": "tessera", "version": version, "text": text}
        self.tell("textDocument/didOpen", textDocument=item)
        return self.diagnostics(uri, version)

    def change(self, uri: str, version: int, *changes: dict[str, Any]) -> None:
        identifier = {"uri": uri, "version": version}
        self.tell("textDocument/didChange", textDocument=identifier, contentChanges=list(changes))

    def diagnostics(self, uri: str, version: int | None) -> list[dict[str, Any]]:
        """The next diagnostics of a version of a file."""
        found = self.until(
            lambda m: (
                m.get("method") == "textDocument/publishDiagnostics"
                and m["params"]["uri"] == uri
                and m["params"].get("version") == version
            )
        )
        return found["params"]["diagnostics"]

    def at(self, method: str, uri: str, line: int, column: int) -> Any:
        where = {"line": line, "character": column}
        return self.ask(f"textDocument/{method}", textDocument={"uri": uri}, position=where)


def edit(line: int, lo: int, hi: int, text: str) -> dict[str, Any]:
    """A change of a part of one line."""
    start, end = {"line": line, "character": lo}, {"line": line, "character": hi}
    return {"range": {"start": start, "end": end}, "text": text}
