"""Diagnostics that the editor asks for, of a file and of the workspace.

Owns what was answered of files that are not open, and until when it holds. A question about the
workspace is worked on file by file, when nothing of an open file is due.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from lsprotocol import converters
from lsprotocol import types as lsp

from tessera_lang.driver.session import Session
from tessera_lang.record import dataclass, field
from tessera_lang.source import SourceFile
from tessera_lsp.ide import imports
from tessera_lsp.server.navigation import sources_in

if TYPE_CHECKING:
    from tessera_lsp.server.projects import Project
    from tessera_lsp.server.server import TesseraServer

AT_ONCE = 50  # files that one session reads before their trees are forgotten
Report = lsp.WorkspaceFullDocumentDiagnosticReport | lsp.WorkspaceUnchangedDocumentDiagnosticReport
_CONVERTER = converters.get_converter()


def result_id(items: Iterable[lsp.Diagnostic]) -> str:
    """A name for what is told, the same for the same."""
    text = repr([_CONVERTER.unstructure(i, lsp.Diagnostic) for i in items])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


@dataclass(slots=True, eq=False)
class _Question:
    """About the workspace: the files that are left, what is answered, whom to tell."""

    left: list[tuple[str, Project]]
    before: Mapping[str, str]
    answer: Future[lsp.WorkspaceDiagnosticReport]
    partial: lsp.ProgressToken | None
    found: list[Report] = field(default_factory=list[Report])
    session: Session | None = None
    read: int = 0


@dataclass(frozen=True, slots=True)
class _Known:
    """What was told of a file, and the files that it rests on as they were."""

    items: tuple[lsp.Diagnostic, ...]
    stamps: tuple[tuple[str, object], ...]
    whole: bool  # no import is missing


class Pulls:
    """Answers to questions for diagnostics."""

    def __init__(self, server: TesseraServer) -> None:
        self.server = server
        self._known: dict[str, _Known] = {}
        self._questions: list[_Question] = []

    def forget(self) -> None:
        """Settings changed."""
        self._known.clear()

    # --- one file ------------------------------------------------------------------------

    def document(self, params: lsp.DocumentDiagnosticParams) -> lsp.DocumentDiagnosticReport:
        items = self.items(self.server.path(params.text_document.uri))
        name = result_id(items)
        if name == params.previous_result_id:
            return lsp.RelatedUnchangedDocumentDiagnosticReport(name)
        return lsp.RelatedFullDocumentDiagnosticReport(items, result_id=name)

    def items(self, path: str) -> list[lsp.Diagnostic]:
        """What is told of a file now; of an open one all, where the editor cannot be told later
        that there is more."""
        server = self.server
        known = server.open.get(path)
        if known is None:
            project = server.project_of(path)
            return list(self.closed(path, project, project.session).items)
        told_later = server.can("workspace", "diagnostics", "refresh_support")
        if known.late_at is not None and not told_later:
            server.check_late(path)
        return server.converted(path, known.project, known.file, server.said_of(path))

    # --- the workspace -------------------------------------------------------------------

    async def workspace(
        self, params: lsp.WorkspaceDiagnosticParams
    ) -> lsp.WorkspaceDiagnosticReport:
        self.server.loop = asyncio.get_running_loop()
        answer = Future[lsp.WorkspaceDiagnosticReport]()
        self.server.analysis.submit(lambda: self._begin(params, answer), changes=lambda: False)
        return await asyncio.wrap_future(answer)

    def _begin(
        self, params: lsp.WorkspaceDiagnosticParams, answer: Future[lsp.WorkspaceDiagnosticReport]
    ) -> None:
        before = {p.uri: p.value for p in params.previous_result_ids}
        token = params.partial_result_token
        self._questions.append(_Question(self._files(), before, answer, token))

    def _files(self) -> list[tuple[str, Project]]:
        """Open files, and those in the folders of the workspace, the last one first."""
        found = {path: known.project for path, known in self.server.open.items()}
        for folder in self.server.folders():
            for path in sources_in(folder, True):
                found.setdefault(path, self.server.project_of(path))
        return list(reversed(found.items()))

    def step(self) -> Callable[[], None] | None:
        """The next piece of work, where there is one."""
        while self._questions and self._questions[0].answer.cancelled():
            self._questions.pop(0)
        if not self._questions:
            return None
        return lambda: self._answer(self._questions[0])

    def _answer(self, question: _Question) -> None:
        """One file more. An edit drops this, and it is done again."""
        if question.left:
            path, project = question.left[-1]
            report = self._report(path, project, question)
            question.left.pop()
            if question.partial is not None:
                self._send(question.partial, report)
            else:
                question.found.append(report)
        if not question.left:
            self._questions.remove(question)
            if question.answer.set_running_or_notify_cancel():
                question.answer.set_result(lsp.WorkspaceDiagnosticReport(question.found))

    def _report(self, path: str, project: Project, question: _Question) -> Report:
        server, uri = self.server, self.server.uri(path)
        known = server.open.get(path)
        if known is not None:
            items = self.items(path)
        else:
            if question.session is None or question.read >= AT_ONCE:
                question.session, question.read = server.fresh_session(project), 0
            question.read += 1
            items = list(self.closed(path, project, question.session).items)
        name, version = result_id(items), known.file.version if known is not None else None
        if question.before.get(uri) == name:
            return lsp.WorkspaceUnchangedDocumentDiagnosticReport(uri, name, version)
        return lsp.WorkspaceFullDocumentDiagnosticReport(uri, items, version, result_id=name)

    def _send(self, token: lsp.ProgressToken, report: Report) -> None:
        value = lsp.WorkspaceDiagnosticReportPartialResult([report])
        params = lsp.ProgressParams(token, _CONVERTER.unstructure(value))
        self.server.on_loop(lambda: self.server.protocol.notify(lsp.PROGRESS, params))

    def closed(self, path: str, project: Project, session: Session) -> _Known:
        """What is told of a file on disk; it is looked at again when it, or what it imports, is
        another."""
        kept = self._known.get(path)
        if kept is not None and kept.whole and all(self._stamp(p) == s for p, s in kept.stamps):
            return kept
        found = self.server.everything_in(session, path, project)
        closure = session.closure(path) if os.path.exists(path) else ()
        file = session.source(path) if closure else SourceFile(path, "")
        items = self.server.converted(path, project, file, found, session)
        whole = not imports.misses_some(session, path) if closure else False
        stamps = tuple((p, self._stamp(p)) for p in (path, *closure))
        self._known[path] = _Known(tuple(items), stamps, whole)
        return self._known[path]

    def _stamp(self, path: str) -> object:
        known = self.server.open.get(path)
        if known is not None:
            return known.file.version, known.file.text
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
