"""What stands above kernels, tests and programs: what they take, and what can be done with them.

What is proved is said so: bytes of shared memory. Groups at once are estimated without registers,
until the assembler has told them. Must not know LSP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tessera_lang.analysis.resources.occupancy import buffers_of, occupancy
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.arch import ROWS
from tessera_lsp.ide.document import Document

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lens:
    """A line of text above a place. ``kind``: what a click does; ``name``: of what it is about."""

    span: Span
    title: str
    kind: str
    name: str = ""


def resources(
    document: Document, archs: Sequence[str], known: Mapping[tuple[str, str], Answer]
) -> list[Lens]:
    """A line for each kernel whose arguments are known. ``known``: what the assembler told, by
    kernel and architecture."""
    found: list[Lens] = []
    lowered = lanes_of(document.session, document.path)
    for function in document.session.kernels(document.path):
        texts = [
            told(known[function.name, arch], arch) for arch in archs
            if (function.name, arch) in known
        ]  # fmt: skip
        kernel = lowered.get(function.name)
        if not texts and kernel is not None:
            texts = [estimated(kernel, arch) for arch in archs]
        for text in dict.fromkeys(texts):
            found.append(Lens(function.name_span, text, "resources", function.name))
        if not texts and kernel_level(function) == "tile" and document.instances_of(function):
            text = "what it takes is not known yet"
            found.append(Lens(function.name_span, text, "resources", function.name))
    return found


def lanes_of(session: Session, path: str) -> dict[str, Operation]:
    """The lane kernels that checks have lowered, the first of each name."""
    found: dict[str, Operation] = {}
    for program, _ in session.lowered(path, path):
        kernel = program.operations[0]
        found.setdefault(str(kernel.attributes["sym_name"]), kernel)
    return found


def estimated(kernel: Operation, arch: str) -> str:
    """Shared memory, and groups at once without registers."""
    buffers = buffers_of(kernel)
    row = ROWS.get(arch)
    text = memory(sum(buffers.values()), buffers)
    if row is None:
        return f"{arch}: {text}"
    at_once = occupancy(prod(kernel.integers("group")), sum(buffers.values()), row.limits)
    groups = groups_of(at_once.groups, at_once.percent, at_once.limit)
    return f"{arch}: {text} · {groups} (estimate without registers)"


def told(answer: Answer, arch: str) -> str:
    """What the assembler told of the launches of a kernel."""
    if "error" in answer:
        return f"{arch}: {answer['error']}"
    texts: list[str] = []
    for launch in answer["launches"]:
        registers, spills = launch["registers"], launch["spills"]
        text = "registers are not known: there is no ptxas" if registers < 0 else (
            f"{registers} registers, {f'{spills} bytes spilled' if spills > 0 else 'no spills'}"
        )  # fmt: skip
        text += f" · {memory(launch['shared'], launch['buffers'])}"
        if launch["groups"] >= 0:
            text += (
                f" · {groups_of(launch['groups'], launch['percent'], launch['limit'])} (estimate)"
            )
        texts.append(text)
    return f"{arch}: {'; then '.join(texts)}"


def memory(total: int, buffers: Mapping[str, int]) -> str:
    """The bytes of shared memory and the arrays in it."""
    if not total:
        return "no shared memory"
    shown = ", ".join(f"{name} {size}" for name, size in buffers.items())
    return f"{total} bytes of shared memory" + (f" ({shown})" if shown else "")


def groups_of(groups: int, percent: int, limit: str) -> str:
    return (
        f"{groups} {'group' if groups == 1 else 'groups'} at once on a multiprocessor, "
        f"{percent} % of its warps, limited by {limit}"
    )


def runs(document: Document) -> list[Lens]:
    """What can be run: the program of a file, at its first statement, and each test."""
    found: list[Lens] = []
    for statement in document.module.body:
        calls = isinstance(statement, (ast.ExprStmt, ast.Assign, ast.For, ast.If))
        text = isinstance(statement, ast.ExprStmt) and isinstance(statement.value, ast.StringLit)
        if calls and not text:
            found.append(Lens(statement.span, "run", "run"))
            break
    for function in document.session.tests(document.path):
        found.append(Lens(function.name_span, "run the test", "test", function.name))
    return found


def shown(document: Document) -> list[Lens]:
    """What of a kernel can be shown beside the text."""
    return [
        Lens(k.name_span, "show the IR and the code", "view", k.name)
        for k in document.session.kernels(document.path)
        if document.instances_of(k)
    ]
