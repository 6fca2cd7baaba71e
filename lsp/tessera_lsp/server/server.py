"""The server's state: the sessions, the open files, and the diagnostics that are due.

Owns when a file is checked and what is pushed: first what needs no test of the file, and after a
rest the lints and what the tests show. Analysis is the compiler's session, in a thread of this
process (``analysis.py``); LLVM and CUDA are never loaded here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from tessera_lang import __version__
from tessera_lang.cancellation import Dropped, pause
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver.advice import Questions, advice, remarks_of
from tessera_lang.driver.session import Session
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax import ast
from tessera_lang.target.arch import OLDEST
from tessera_lsp.ide import imports
from tessera_lsp.ide.document import Document, Memory
from tessera_lsp.server import convert
from tessera_lsp.server.analysis import Analysis
from tessera_lsp.server.projects import Project, Projects
from tessera_lsp.server.protocol import TesseraProtocol
from tessera_lsp.server.texts import applied

T = TypeVar("T")
logger = logging.getLogger("tessera-lsp")

REST = 0.25  # seconds without an edit after which lints and tests are looked at
LINTS = ("on", "hints", "off")
FAULT = "the language server could not check this file; its output says why"


class Background(Protocol):
    """Work for when nothing of an open file is due."""

    def step(self) -> Callable[[], None] | None:
        """The next piece of it."""
        ...

    def forget(self) -> None:
        """Settings changed."""
        ...


@dataclass(slots=True, eq=False)
class OpenFile:
    """A file in the editor. ``touched``: larger the later it was edited or asked about, so that
    what is looked at goes first. ``late``: what only tests and lints show, with the declaration
    that each stands in; it stays until they are looked at again or that declaration is edited."""

    uri: str
    file: SourceFile
    project: Project
    memory: Memory = field(default_factory=Memory)
    touched: int = 0
    is_due: bool = False
    late_at: float | None = None
    early: tuple[Diagnostic, ...] = ()
    late: tuple[tuple[Diagnostic, ast.FunctionDef | None], ...] = ()
    shown: tuple[int, tuple[Diagnostic, ...]] | None = None

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What is known of the file now."""
        return (*self.early, *(d for d, _ in self.late))


class TesseraServer(LanguageServer):
    """The server, its sessions, and the open files by the session's name of each. All but the
    loop's own is touched by the thread of ``analysis`` only."""

    def __init__(self) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "tessera-lsp",
            __version__,
            text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental,
            protocol_cls=TesseraProtocol,
        )
        self.projects = Projects()
        self.open: dict[str, OpenFile] = {}
        self.analysis = Analysis(self.due)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.lints = "on"
        self.pulls: Background | None = None  # where the editor asks for diagnostics itself
        self.faulty: set[str] = set()  # files of settings that have a diagnostic
        self.remarks = False  # whether remarks and kept guards are told
        self.on_edit: list[Callable[[str], None]] = []  # of a file, by path
        self.on_end: list[Callable[[], None]] = []
        self.on_settings: list[Callable[[object], None]] = []
        self._touches = 0
        self._edited: set[str] = set()  # files whose importers are not looked for yet
        self._fed: set[Project] = set()  # those that have the texts of open files
        self.ended_well = False

    @property
    def session(self) -> Session:
        """That of files outside of the workspace."""
        return self.projects.outside.session

    @property
    def encoding(self) -> str:
        """The negotiated position encoding."""
        found = self.workspace.position_encoding
        return str(getattr(found, "value", found))

    def report_server_error(self, error: Exception, source: Any) -> None:
        """A fault in a message costs this message: it is logged, no box pops up."""
        logger.error("a message could not be handled: %s", error)

    def can(self, *names: str) -> bool:
        """Whether the editor says that it has a capability, named by the way to it."""
        return bool(self.capability(*names))

    def capability(self, *names: str) -> object:
        """What the editor says of a capability; None where it says nothing."""
        found: object = getattr(self.protocol, "client_capabilities", None)
        for name in names:
            found = getattr(found, name, None)
        return found

    def on_loop(self, call: Callable[[], object]) -> None:
        """Have the loop that writes do something."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(call)

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
        if known is None:
            return None
        self.touch(known)
        return Document(known.project.session, path, known.memory)

    def said_of(self, path: str) -> tuple[Diagnostic, ...]:
        """What is said of an open file as it is now; what tests and lints show where known."""
        known = self.open[path]
        if self._edited - {path}:
            self.schedule_importers()
        if known.is_due:
            self.check_early(path)
        return known.diagnostics

    def touch(self, known: OpenFile) -> None:
        self._touches += 1
        known.touched = self._touches

    def is_open(self, uri: str) -> bool:
        return self.path(uri) in self.open

    def folders(self) -> list[str]:
        """The folders of the workspace."""
        workspace = self.workspace
        uris = [f.uri for f in workspace.folders.values()]
        uris += [workspace.root_uri] if workspace.root_uri else []
        return list(dict.fromkeys(convert.path_of(u) for u in uris))

    def fresh_session(self, project: Project) -> Session:
        """A session with the settings of a project and the texts of open files."""
        session = Session(project.options.path)
        session.options = project.session.options
        for path, known in self.open.items():
            session.set_text(path, known.file.text, known.file.version)
        return session

    def project_of(self, path: str) -> Project:
        """What a file belongs to; a project that is new here gets the texts of open files."""
        found = self.projects.of(path, self.folders())
        if found not in self._fed:
            self._fed.add(found)
            for other, known in self.open.items():
                found.session.set_text(other, known.file.text, known.file.version)
        self.tell_faults(found)
        return found

    def opened(self, uri: str, text: str, version: int) -> None:
        path = self.path(uri)
        self.take(path, OpenFile(uri, SourceFile(path, text, version), self.project_of(path)))

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
        """Give the sessions the editor's text; diagnostics of this file, and of those that
        import it, follow."""
        self.open[path] = known
        for project in self.projects:
            project.session.set_text(path, known.file.text, known.file.version)
        self.schedule(path)
        self._edited.add(path)
        self.touch(known)
        for tell in self.on_edit:
            tell(path)

    def closed(self, uri: str) -> None:
        path = self.path(uri)
        known = self.open.pop(path, None)
        if known is None:
            return
        for project in self.projects:
            project.session.drop_text(path)
        self.push(lsp.PublishDiagnosticsParams(uri=known.uri, diagnostics=[]))
        self._edited.add(path)

    def configured(self, settings: object) -> None:
        """Settings of the editor: ``{"lints": "hints"}``, alone or under ``tessera``."""
        own = member(settings, "tessera") or settings
        for tell in self.on_settings:
            tell(own)
        lints = member(own, "lints")
        if lints in LINTS:
            self.lints = str(lints)
        elif lints is not None:
            logger.error("the setting `lints` is one of %s", LINTS)
        if self.pulls is not None:
            self.pulls.forget()
        self.schedule_all()

    # --- diagnostics -------------------------------------------------------------------

    def schedule(self, path: str) -> None:
        """Check a file as soon as nothing else waits, and all of it after a rest."""
        known = self.open[path]
        known.is_due, known.late_at = True, time.monotonic() + REST

    def schedule_all(self) -> None:
        """Files on disk or settings may have changed."""
        for project in self.projects:
            project.read()
            self.tell_faults(project)
        for path in self.open:
            self.schedule(path)

    def schedule_importers(self) -> None:
        """Check the open files again that import one that was edited, directly or not. Among many
        files that takes long: it is done once for all edits there were, and after the check of
        what was edited."""
        found: list[str] = []
        for other, known in self.open.items():
            pause()
            if imports.imports(known.project.session, other, self._edited):
                found.append(other)
        self._edited.clear()
        for other in found:
            self.schedule(other)

    def due(self, now: float) -> Callable[[], None] | float | None:
        """The check that comes next, or when there will be one."""
        first = [(k.touched, path) for path, k in self.open.items() if k.is_due]
        if first:
            path = max(first)[1]
            return lambda: self.check_early(path)
        if self._edited:
            return self.schedule_importers
        rested = [(k.late_at, -k.touched, p) for p, k in self.open.items() if k.late_at is not None]
        ready = [(touched, path) for at, touched, path in rested if at <= now]
        if not ready:
            more = self.pulls.step() if self.pulls is not None else None
            return more or (min(rested)[0] if rested else None)
        path = min(ready)[1]
        return lambda: self.check_late(path)

    def check_early(self, path: str) -> None:
        """Push what needs no test; what tests and lints showed before stays where it holds."""
        known = self.open[path]
        session = known.project.session
        found = guarded(lambda: session.check(path, tests=False), None)
        known.is_due = False
        if found is None:
            known.late, known.late_at = (), None
            found = (Diagnostic("T0902", FAULT, severity="warning"),)
        else:
            now = {id(f) for f in _functions(session, path)}
            known.late = tuple((d, f) for d, f in known.late if f is not None and id(f) in now)
        known.early = found
        self.publish(path, known)

    def check_late(self, path: str) -> None:
        """Push what tests and lints show too, if that is more."""
        known = self.open[path]
        found = guarded(lambda: self.everything(path, known.project), None)
        known.late_at = None
        if found is None:
            return
        session = known.project.session
        early = session.check(path, tests=False)
        before = {_key(d) for d in early}
        functions = _functions(session, path)
        known.early = early
        known.late = tuple((d, _holder(d, path, functions)) for d in found if _key(d) not in before)
        if known.shown != (known.file.version, known.diagnostics):
            self.publish(path, known)

    def everything(self, path: str, project: Project) -> tuple[Diagnostic, ...]:
        """All that is said of a file: what ``tesserac check`` says, and lints."""
        return self.everything_in(project.session, path, project)

    def everything_in(
        self, session: Session, path: str, project: Project
    ) -> tuple[Diagnostic, ...]:
        """All that is said of a file, by a session with the settings of a project."""
        checks = project.checks
        found = session.check(path)
        told = checks.get("lints")
        lints = told is not False and self.lints != "off"
        strict, guards = checks.get("strict", False), checks.get("explain-guards", False)
        guards = guards or self.remarks
        questions = Questions(strict, lints, bool(told) and lints, guards)
        more = guarded(lambda: advice(session, path, questions), ())
        if checks.get("remarks") or self.remarks:
            options = project.options
            target = "cpu" if options.target == "cpu" else "cuda"
            usual = "native" if target == "cpu" else OLDEST.name
            machine = session.machine(target, options.arch or usual)
            more = (*more, *guarded(lambda: remarks_of(session, path, machine), ()))
        if self.lints == "hints":
            more = tuple(replace(d, severity="hint") for d in more)
        return (*found, *more)

    def publish(self, path: str, known: OpenFile) -> None:
        """Push what is known of a file, with its version."""
        version, found = known.file.version, known.diagnostics
        known.shown = (version, found)
        if self.pulls is not None:
            if known.late_at is None and self.can("workspace", "diagnostics", "refresh_support"):
                self.on_loop(lambda: self.workspace_diagnostic_refresh(None))
            return
        items = guarded(lambda: self.converted(path, known.project, known.file, found), [])
        self.push(lsp.PublishDiagnosticsParams(known.uri, items, version=version))

    def push(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.on_loop(lambda: self.text_document_publish_diagnostics(params))

    def converted(
        self, path: str, project: Project, file: SourceFile, found: Sequence[Diagnostic],
        session: Session | None = None,
    ) -> list[lsp.Diagnostic]:  # fmt: skip
        """What is said of a file, as the editor takes it."""
        session = session or project.session

        def import_of(other: str) -> Span | None:
            return imports.import_of(session, path, other)

        files = session.files.known()
        to = convert.Converter(file, files, self.encoding, self.uri, import_of)
        return [to.diagnostic(d) for d in found]

    def tell_faults(self, project: Project) -> None:
        """Push what is wrong with a file of settings, and when it no longer is."""
        if project.file is None or not (project.faults or project.file in self.faulty):
            return
        (self.faulty.add if project.faults else self.faulty.discard)(project.file)
        with open(project.file, encoding="utf-8", errors="replace", newline="") as stream:
            text = stream.read()
        items: list[lsp.Diagnostic] = []
        for d in project.faults:
            file = SourceFile(d.span.file if d.span is not None else project.file, text)
            to = convert.Converter(file, {}, self.encoding, self.uri, lambda _: None)
            items.append(to.diagnostic(d))
        self.push(lsp.PublishDiagnosticsParams(convert.uri_of(project.file), items))


def member(settings: object, name: str) -> object:
    """A member of an object of JSON; None of what is none."""
    found = cast("dict[str, object]", settings) if isinstance(settings, dict) else {}
    return found.get(name)


def _functions(session: Session, path: str) -> Sequence[ast.FunctionDef]:
    try:
        return session.parsed(path).module.functions
    except TesseraError:
        return ()


def _key(d: Diagnostic) -> object:
    """What tells diagnostics of one text apart."""
    place = None if d.span is None else (d.span.file, d.span.lo, d.span.hi)
    return d.code, d.severity, d.message, place


def _holder(
    d: Diagnostic, path: str, functions: Sequence[ast.FunctionDef]
) -> ast.FunctionDef | None:
    """The declaration that a diagnostic stands in."""
    if d.span is None or d.span.file != path:
        return None
    lo = d.span.lo
    return next((f for f in functions if f.span.lo <= lo <= f.span.hi), None)


def guarded(ask: Callable[[], T], otherwise: T) -> T:
    """A fault of ours costs one answer, never the server. Raises Dropped."""
    try:
        return ask()
    except Dropped:
        raise
    except Exception:
        logger.exception("a fault of tessera-lsp; please report it with this text")
        return otherwise
