"""A real client (pytest-lsp) and one real server process for all tests that can share it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_lsp
from lsprotocol import types as lsp
from pytest_lsp import ClientServerConfig, LanguageClient

from tests.lsp.published import PUBLISHED

SERVER = [sys.executable, "-m", "tessera_lsp.server.main"]
_numbers = itertools.count()


@pytest_lsp.fixture(
    scope="session", loop_scope="session", config=ClientServerConfig(server_command=SERVER)
)
async def client(lsp_client: LanguageClient):
    @lsp_client.feature(lsp.CLIENT_REGISTER_CAPABILITY)
    def _(params: lsp.RegistrationParams) -> None:
        """The server asks to hear of files that change."""

    lsp_client.protocol.fm.features.pop(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)

    @lsp_client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def _(params: lsp.PublishDiagnosticsParams) -> None:
        lsp_client.diagnostics[params.uri] = params.diagnostics
        PUBLISHED.append(params)

    await lsp_client.initialize_session(
        lsp.InitializeParams(
            capabilities=pytest_lsp.client_capabilities("visual-studio-code"), root_uri=None
        )
    )
    yield
    await lsp_client.shutdown_session()


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[str], Path]:
    """A path that no other test of the session has used."""
    return lambda name: tmp_path / f"{name}{next(_numbers)}.tessera"
