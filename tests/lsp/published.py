"""What the server has sent of diagnostics to the client of all tests."""

from __future__ import annotations

import asyncio

from lsprotocol import types as lsp

WAIT = 60
PUBLISHED: list[lsp.PublishDiagnosticsParams] = []
"""Of all files, in order."""


async def published(uri: str, since: int, version: int | None = None) -> None:
    """Wait for what is sent of this file, behind the first ``since`` of what was sent; that of
    other files, or of the text before an edit, may still come."""
    async with asyncio.timeout(WAIT):
        while not any(
            p.uri == uri and version in (None, p.version) for p in PUBLISHED[since:]
        ):  # fmt: skip
            await asyncio.sleep(0.005)
