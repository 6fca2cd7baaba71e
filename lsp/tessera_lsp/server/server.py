"""The server's state: the session, the open files, and the diagnostics that are due.

Owns when a file is checked and what is pushed. Analysis is the compiler's session, in this
process; LLVM and CUDA are never loaded here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from tessera_lang import __version__
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver.advice import Questions, advice
from tessera_lang.driver.options import from_environment
from tessera_lang.driver.session import Session
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import SourceFile, Span
from tessera_lang.target.arch import OLDEST
from tessera_lang.target.backend import TargetOptions
from tessera_lsp.ide import imports
from tessera_lsp.ide.document import Document, Memory
from tessera_lsp.server import convert
from tessera_lsp.server.protocol import TesseraProtocol
from tessera_lsp.server.texts import applied

T = TypeVar("T")
logger = logging.getLogger("tessera-lsp")

QUICK = 0.1  # a check below this many seconds waits for no pause in typing
SOON = 0.002  # long enough to read what has arrived already
LATEST = 1.0  # diagnostics are never older than this plus a check


@dataclass(slots=True)
class OpenFile:
    """A file in the editor. ``seconds``: what its last check after an edit took; ``since``:
    when the change came that waits for a check."""

    uri: str
    file: SourceFile
    memory: Memory = field(default_factory=Memory)
    timer: asyncio.TimerHandle | None = None
    since: float = 0.0
    seconds: float = 0.0
    checked: bool = False

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _search_folders() -> tuple[str, ...]:
    """Where imports are looked for: as the environment and the project of the folder in which the
    editor started the server say; nowhere else where those are not usable."""
    try:
        return from_environment().path
    except (ValueError, TesseraError) as error:
        logger.error("the settings could not be read: %s", error)
        return ()


@cache
def _made_for() -> TargetOptions | None:
    """What a run of the file would make code for, where the environment or the project says it:
    the editor then says what the run would. Whether there is a device is not looked at here."""
    try:
        options = from_environment()
        if options.target not in ("cpu", "cuda"):
            return None
        usual = "native" if options.target == "cpu" else OLDEST.name
        return options.for_target(options.target, options.arch or usual)
    except (ValueError, TesseraError):
        return None


class TesseraServer(LanguageServer):
    """The server, its session, and the open files by the session's name of each."""

    def __init__(self) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "tessera-lsp",
            __version__,
            text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental,
            protocol_cls=TesseraProtocol,
        )
        self.session = Session(_search_folders())
        self.open: dict[str, OpenFile] = {}
        self.ended_well = False

    @property
    def encoding(self) -> str:
        """The negotiated position encoding."""
        found = self.workspace.position_encoding
        return str(getattr(found, "value", found))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A fault in a message costs this message: it is logged, no box pops up."""
        logger.error("a message could not be handled: %s", error)

    # --- files -------------------------------------------------------------------------

    def path(self, uri: str) -> str:
        """The session's name of a file."""
        return self.session.files.spelling(convert.path_of(uri))

    def uri(self, path: str) -> str:
        """A file's URI, as the editor writes it where it is open."""
        known = self.open.get(path)
        return known.uri if known is not None else convert.uri_of(path)

    def document(self, uri: str) -> Document | None:
        """An open file with the editor's text of it."""
        path = self.path(uri)
        known = self.open.get(path)
        return None if known is None else Document(self.session, path, known.memory)

    def opened(self, uri: str, text: str, version: int) -> None:
        path = self.path(uri)
        known = self.open.get(path)
        if known is not None:
            known.cancel()
        self.take(path, OpenFile(uri, SourceFile(path, text, version)))

    def changed(
        self, uri: str, changes: Sequence[lsp.TextDocumentContentChangeEvent], version: int
    ) -> None:
        path = self.path(uri)
        known = self.open.get(path)
        if known is None:
            logger.error("a change of a file that is not open: %s", uri)
            return
        known.file = applied(known.file, changes, version, self.encoding)
        self.take(path, known)

    def take(self, path: str, known: OpenFile) -> None:
        """Give the session the editor's text; diagnostics of this file, and of those that
        import it, follow."""
        self.open[path] = known
        self.session.set_text(path, known.file.text, known.file.version)
        self.schedule(path)
        self.schedule_importers(path)

    def closed(self, uri: str) -> None:
        path = self.path(uri)
        known = self.open.pop(path, None)
        if known is None:
            return
        known.cancel()
        self.session.drop_text(path)
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=known.uri, diagnostics=[])
        )
        self.schedule_importers(path)

    # --- diagnostics -------------------------------------------------------------------

    def schedule(self, path: str) -> None:
        """Check a file soon: after a pause in typing where a check takes long."""
        known = self.open[path]
        now = time.monotonic()
        if known.timer is None:
            known.since = now
        known.cancel()
        pause = SOON if known.seconds < QUICK else min(0.5, max(0.05, known.seconds))
        left = max(SOON, known.since + LATEST - now)
        loop = asyncio.get_running_loop()
        known.timer = loop.call_later(min(pause, left), self.publish, path)

    def schedule_all(self) -> None:
        for path in self.open:
            self.schedule(path)

    def schedule_importers(self, path: str) -> None:
        """Check the open files again that import a file, directly or not."""
        for other in self.open:
            if other != path and imports.imports(self.session, other, path):
                self.schedule(other)

    def publish(self, path: str) -> None:
        """Check a file and push what is said of it, with its version."""
        known = self.open.get(path)
        if known is None:
            return
        known.timer = None
        start = time.monotonic()
        items = guarded(lambda: self.checked(path, known.file), None)
        if known.checked:  # the first one finds nothing kept and says little of the next
            known.seconds = time.monotonic() - start
        known.checked = True
        if items is None:
            text = "the language server could not check this file; its output says why"
            items = [lsp.Diagnostic(convert.START, text, lsp.DiagnosticSeverity.Warning)]
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(known.uri, items, version=known.file.version)
        )

    def checked(self, path: str, file: SourceFile) -> list[lsp.Diagnostic]:
        self.session.options = _made_for()
        found: tuple[Diagnostic, ...] = self.session.check(path)
        found += hints(self.session, path)

        def import_of(other: str) -> Span | None:
            return imports.import_of(self.session, path, other)

        files = self.session.files.known()
        to = convert.Converter(file, files, self.encoding, self.uri, import_of)
        return [to.diagnostic(d) for d in found]


def hints(session: Session, path: str) -> tuple[Diagnostic, ...]:
    """Slow accesses of the kernels that the check lowered, always as hints."""
    found = guarded(lambda: advice(session, path, Questions(lints=True)), ())
    return tuple(replace(d, severity="hint") for d in found)


def guarded(ask: Callable[[], T], otherwise: T) -> T:
    """A fault of ours costs one answer, never the server."""
    try:
        return ask()
    except Exception:
        logger.exception("a fault of tessera-lsp; please report it with this text")
        return otherwise
