"""Processes that compile or run something for the editor: with a deadline, killed when what they
were asked is asked anew, is cancelled, or is of a text that was edited.

Owns the processes. All of it runs in the loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

logger = logging.getLogger("tessera-lsp")
DEADLINE = 60.0  # seconds; what ptxas takes of the library's longest kernel is below
LONGEST = 8 << 20  # bytes of one line of an answer
Key = tuple[str, ...]
Json = dict[str, Any]


class Stopped(Exception):
    """Why a child was ended: it took too long, or something newer took its place."""


class Children:
    """The processes that run, by what they are for."""

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.subprocess.Process] = {}
        self._stopped: dict[int, str] = {}
        self.command = [sys.executable, "-m", "tessera_lsp.child"]
        self.deadline = DEADLINE

    def stop(self, key: Key, why: str) -> None:
        """End what runs for a purpose."""
        process = self._running.pop(key, None)
        if process is not None:
            self._stopped[process.pid] = why
            with suppress(ProcessLookupError):
                process.kill()

    def stop_all(self, why: str) -> None:
        for key in list(self._running):
            self.stop(key, why)

    async def answers(self, key: Key, question: Json) -> AsyncIterator[Json]:
        """The answers of a child of the compiler, one for each line that it writes. Raises Stopped,
        and RuntimeError where it dies."""
        process = await self._start(key, self.command, asyncio.subprocess.PIPE)
        errors = asyncio.ensure_future(_read(process.stderr))
        try:
            async with asyncio.timeout(self.deadline):
                assert process.stdin is not None and process.stdout is not None
                with suppress(ConnectionError):
                    process.stdin.write(json.dumps(question).encode())
                    await process.stdin.drain()
                process.stdin.close()
                while line := await process.stdout.readline():
                    yield cast("Json", json.loads(line))
                code = await process.wait()
            self._raise_if_stopped(process)
            if code:
                logger.error("a child ended with %s: %s", code, (await errors)[-2000:])
                raise RuntimeError(f"the compiler ended with {code}: see the server's output")
        except TimeoutError:
            raise Stopped(f"it took longer than {self.deadline:g} seconds") from None
        finally:
            await self._end(key, process)
            errors.cancel()

    async def output(self, key: Key, command: list[str], folder: str) -> tuple[int, str]:
        """How a program ended, and what it wrote. Raises Stopped."""
        process = await self._start(key, command, asyncio.subprocess.STDOUT, folder)
        try:
            async with asyncio.timeout(self.deadline):
                written, _ = await process.communicate()
            self._raise_if_stopped(process)
        except TimeoutError:
            raise Stopped(f"it took longer than {self.deadline:g} seconds") from None
        finally:
            await self._end(key, process)
        return process.returncode or 0, written.decode(errors="replace")

    async def _start(
        self, key: Key, command: list[str], errors: int, folder: str | None = None
    ) -> asyncio.subprocess.Process:
        """A process for a purpose, in place of the one that there was."""
        self.stop(key, "it was asked anew")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=errors, limit=LONGEST, cwd=folder,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )  # fmt: skip
        self._running[key] = process
        return process

    def _raise_if_stopped(self, process: asyncio.subprocess.Process) -> None:
        why = self._stopped.pop(process.pid, None)
        if why is not None:
            raise Stopped(why)

    async def _end(self, key: Key, process: asyncio.subprocess.Process) -> None:
        if self._running.get(key) is process:
            del self._running[key]
        self._stopped.pop(process.pid, None)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _read(stream: asyncio.StreamReader | None) -> str:
    if stream is None:
        return ""
    return (await stream.read()).decode(errors="replace")


def refused(error: Exception) -> JsonRpcException:
    """What the editor is told: content that is no longer wanted, or a request that failed."""
    codes = lsp.LSPErrorCodes
    code = codes.ContentModified if isinstance(error, Stopped) else codes.RequestFailed
    return JsonRpcException(str(error), code)
