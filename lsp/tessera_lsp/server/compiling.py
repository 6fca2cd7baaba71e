"""What needs the compiler as a whole: lenses above kernels, IR and code beside the text, runs.

Every request is a command of ``workspace/executeCommand`` too, with one object of the same
members. What compiles or runs is in a process of its own (``children.py``).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from lsprotocol import types as lsp

from tessera_lang.record import dataclass, field
from tessera_lang.target.arch import OLDEST, ROWS
from tessera_lsp.ide import lenses
from tessera_lsp.ide.document import Document
from tessera_lsp.server import convert
from tessera_lsp.server.answers import Answers
from tessera_lsp.server.children import Children, Stopped, refused
from tessera_lsp.server.server import TesseraServer, member

USUAL = (OLDEST.name,)
COMMANDS = ("tessera.viewIr", "tessera.resources", "tessera.run", "tessera.test",
            "tessera.toggleRemarks")  # fmt: skip
OF_LENS = {"resources": "tessera.resources", "view": "tessera.viewIr", "run": "tessera.run",
           "test": "tessera.test"}  # fmt: skip
Json = dict[str, Any]


def never() -> bool:
    return False


@dataclass(slots=True, eq=False)
class _Told:
    """What the assembler told of a file's kernels, and of which text."""

    text: str
    answers: dict[tuple[str, str], Json] = field(default_factory=dict[tuple[str, str], Json])


class Compiling(Answers):
    """Lenses, and commands. ``archs``: the architectures that lenses speak of; ``runs``: whether
    the editor lets programs of this workspace be run."""

    def __init__(self, server: TesseraServer) -> None:
        super().__init__(server)
        self.children = Children()
        self.archs: Sequence[str] = USUAL
        self.runs = False
        self._told: dict[str, _Told] = {}
        server.on_edit.append(self.edited)
        server.on_settings.append(self.configured)
        server.on_end.append(lambda: self.children.stop_all("the server ends"))

    def configured(self, settings: object) -> None:
        """``{"archs": [ARCH, ...], "run": true}``."""
        archs = member(settings, "archs")
        if isinstance(archs, list):
            named = map(str, cast("list[object]", archs))
            known = tuple(a for a in named if a in ROWS)
            self.archs = known or USUAL
        run = member(settings, "run")
        if isinstance(run, bool):
            self.runs = run

    def edited(self, path: str) -> None:
        """What the assembler is asked about a text that is no longer there ends."""
        key = ("resources", path)
        self.server.on_loop(lambda: self.children.stop(key, "the file was edited"))

    # --- lenses --------------------------------------------------------------------------

    def lenses(self, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        def find(document: Document) -> list[lsp.CodeLens]:
            told = self._told.get(document.path)
            known = told.answers if told is not None and told.text == document.file.text else {}
            found = lenses.shown(document)  # first: the lines of resources are long
            found += lenses.resources(document, self.archs, known)
            found += lenses.runs(document) if self.runs else []
            return [self.lens(document, lens) for lens in found]

        return self.ask(params, find, [])

    def lens(self, document: Document, lens: lenses.Lens) -> lsp.CodeLens:
        where = convert.span_range(document.file, lens.span, self.server.encoding)
        asked: Json = {"uri": self.server.uri(document.path)}
        asked |= {"kernel" if lens.kind in ("resources", "view") else "test": lens.name}
        return lsp.CodeLens(where, lsp.Command(lens.title, OF_LENS[lens.kind], arguments=[asked]))

    # --- commands ------------------------------------------------------------------------

    async def snapshot(self, asked: Json) -> Json:
        """A file as all edits before leave it: what a child needs to know of it."""

        def take() -> Json:
            server = self.server
            path = server.path(str(asked.get("uri", "")))
            known = server.open.get(path)
            project = known.project if known is not None else server.project_of(path)
            texts = {p: k.file.text for p, k in server.open.items()}
            found: Json = {"path": path, "texts": texts, "search": list(project.options.path)}
            at = asked.get("position")
            if isinstance(at, dict) and known is not None:
                place = cast("dict[str, int]", at)
                line, character = int(place["line"]), int(place["character"])
                found["offset"] = known.file.offset_at(line, character, server.encoding)
            return found

        self.server.loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(self.server.analysis.submit(take, never))

    async def view_ir(self, asked: Json) -> Json:
        """``{uri, position | kernel, stage, arch, signature}`` to the text of a kernel at a stage
        and the line of the file that each of its lines is of, -1 where there is none."""
        question: Json = {**await self.snapshot(asked), "task": "ir"}
        for name in ("kernel", "stage", "arch", "signature"):
            if asked.get(name):
                question[name] = asked[name]
        if question.get("stage") in ("ptx", "sass"):
            question.setdefault("arch", self.archs[0])
        try:
            async for answer in self.children.answers(("ir", question["path"]), question):
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer
        except (Stopped, RuntimeError) as error:
            raise refused(error) from None
        raise refused(RuntimeError("the compiler gave no answer"))

    async def resources(self, asked: Json) -> list[Json]:
        """``{uri, kernel?, archs?}`` to what each kernel takes; lenses say it from then on."""
        question: Json = {**await self.snapshot(asked), "task": "resources"}
        question["archs"] = list(asked.get("archs") or self.archs)
        if asked.get("kernel"):
            question["kernels"] = [asked["kernel"]]
        path, found = question["path"], list[Json]()
        text = str(question["texts"].get(path, ""))
        told = self._told.get(path)
        if told is None or told.text != text:
            told = self._told[path] = _Told(text)
        try:
            async for answer in self.children.answers(("resources", path), question):
                if "kernel" not in answer:
                    raise RuntimeError(answer["error"])
                found.append(answer)
                told.answers[answer["kernel"], answer["arch"]] = answer
        except (Stopped, RuntimeError) as error:
            raise refused(error) from None
        if self.server.can("workspace", "code_lens", "refresh_support"):
            self.server.workspace_code_lens_refresh(None)
        return found

    async def run(self, asked: Json) -> Json:
        """``{uri}``: the program of a saved file, as ``tesserac run`` runs it."""
        return await self._run(asked, ["run"])

    async def test(self, asked: Json) -> Json:
        """``{uri, test?}``: the tests of a saved file, or one of them."""
        name = asked.get("test")
        return await self._run(asked, ["test", *(["-k", f"::{name}"] if name else [])])

    async def _run(self, asked: Json, words: list[str]) -> Json:
        if not self.runs:
            text = "programs are run only where the setting `run` is true: a trusted workspace"
            raise refused(RuntimeError(text))
        snapshot = await self.snapshot(asked)
        path = snapshot["path"]
        if not os.path.isfile(path):
            raise refused(RuntimeError("the file is not saved"))
        search = [w for folder in snapshot["search"] for w in ("--path", str(folder))]
        command = [sys.executable, "-m", "tessera_lang.driver.cli", words[0], path, *words[1:],
                   *search]  # fmt: skip
        try:
            folder = os.path.dirname(path)
            code, output = await self.children.output((words[0], path), command, folder)
        except Stopped as error:
            raise refused(error) from None
        return {"code": code, "output": output}

    async def toggle_remarks(self, asked: Json) -> bool:
        """``{on?}``: remarks and kept guards as diagnostics, or not; whether they are now."""
        on = asked.get("on")
        server = self.server

        def switch() -> bool:
            server.remarks = (not server.remarks) if on is None else bool(on)
            server.schedule_all()
            return server.remarks

        self.server.loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(server.analysis.submit(switch, lambda: True))


def plain(value: object) -> Any:
    """An object that the protocol library made of JSON, as JSON."""
    fields: Any = getattr(value, "_asdict", None)
    if fields is not None:
        return {str(k): plain(v) for k, v in fields().items()}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in cast("Json", value).items()}
    return value
