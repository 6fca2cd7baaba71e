"""Texts with a mark where the cursor is, asked without a server."""

from __future__ import annotations

from tessera_lsp.ide.document import Document

from tessera_lang.driver.session import Session

PATH = "<marked>"


def marked(text: str) -> tuple[Document, int]:
    """The text without its one ``¦``, and where that was."""
    assert text.count("¦") == 1, text
    session = Session()
    session.set_text(PATH, text.replace("¦", ""))
    return Document(session, PATH), text.index("¦")
