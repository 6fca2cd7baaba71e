"""What the editor asks of the compiler that needs LLVM or ptxas: a process of its own, so that
nothing that they do ends the server, and what is no longer wanted is killed.

Reads one JSON object, ``{"task", "path", "texts", "search", ...}``, and writes a JSON object a
line. Must not know the protocol.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from math import prod
from typing import Any

from tessera_lang.analysis.resources.occupancy import buffers_of, occupancy
from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.code_lines import locator, sass_with_lines, unescaped, with_lines
from tessera_lang.driver.kernel_instances import has_errors
from tessera_lang.driver.options import from_environment
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.ir.core import Program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.spelling import string_text
from tessera_lang.sema.side_tables import Signature
from tessera_lang.syntax import ast
from tessera_lang.target.arch import ROWS, is_gpu_name
from tessera_lang.target.backend import LINES, TargetOptions

_OF_IR = re.compile(r' loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)\)$')
_OF_PTX = re.compile(r"^\s*\.loc\s+(\d+) (\d+) (\d+)$")
_OF_SASS = re.compile(r'^\s*//## File "(.*)", line (\d+)')
_INSTRUCTION = re.compile(r"^ *(/\*\w+\*/) {13}(.*)$")  # beside its address, without the margin
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
Json = dict[str, Any]


class NotShown(Exception):
    """Why there is no answer, in words for the user."""


class Asked:
    """A question about a file: its session, and the kernels that its checks have seen."""

    def __init__(self, question: Json) -> None:
        self.question = question
        self.path = str(question["path"])
        self.session = Session(question.get("search", ()))
        for path, text in question.get("texts", {}).items():
            self.session.set_text(path, text)
        found = self.session.check(self.path)
        errors = [d for d in found if d.severity == "error"]
        if errors:
            raise NotShown(f"the file has errors: {errors[0].message} ({errors[0].code})")

    def options(self, arch: str) -> TargetOptions:
        """What code is made for: a GPU where an architecture of one is named, else the CPU."""
        target = "cuda" if is_gpu_name(arch) else "cpu"
        return from_environment().for_target(target, arch or "native")

    def kernel(self) -> ast.FunctionDef:
        """The kernel that is asked about: by name, or around an offset, or the first one."""
        kernels = self.session.kernels(self.path)
        name, offset = self.question.get("kernel"), self.question.get("offset")
        for function in kernels:
            if name == function.name or (
                name is None and offset is not None and
                function.span.lo <= offset <= function.span.hi
            ):  # fmt: skip
                return function
        if name is not None or not kernels:
            raise NotShown(f"there is no kernel {f'`{name}`' if name else 'here'}")
        before = [f for f in kernels if offset is None or f.span.lo <= offset]
        return before[-1] if before and offset is not None else kernels[0]

    def signatures(self, function: ast.FunctionDef) -> dict[str, Signature]:
        """What a kernel was checked for, in words."""
        found: dict[str, Signature] = {}
        for known, signature, _, instance in self.session.instances_of(self.path, self.path):
            typed = instance.typed
            if known is not function or typed is None or has_errors(instance.diagnostics):
                continue
            given = zip(typed.parameters, typed.parameter_types, strict=False)
            found.setdefault(", ".join(f"{p.name}: {t}" for p, t in given), signature)
        if not found:
            raise NotShown(f"nothing says what the arguments of `{function.name}` are: call it, or "
                           "write their types")  # fmt: skip
        return found


def ir(asked: Asked) -> Json:
    """A kernel at a stage, and the line of the program (from 0, or -1) of each of its lines."""
    question, function = asked.question, asked.kernel()
    signatures = asked.signatures(function)
    wanted = question.get("signature")
    name = wanted if wanted in signatures else next(iter(signatures))
    stage, arch = str(question.get("stage", "tile")), str(question.get("arch", ""))
    text, lines = _stage(asked, function, signatures[name], stage, arch)
    return {"kernel": function.name, "stage": stage, "arch": arch, "signature": name,
            "signatures": list(signatures), "text": text, "lines": lines}  # fmt: skip


def _stage(
    asked: Asked, function: ast.FunctionDef, signature: Signature, stage: str, arch: str
) -> tuple[str, list[int]]:
    session, options = asked.session, asked.options(arch)
    if stage in ("schedule", "tile"):
        locate = locator(session.files.known())
        programs = _programs(asked, function, signature, stage, options)
        text = "\n".join(print_program(p, locate=locate).rstrip("\n") for p in programs)
        return _of_ir(text, asked.path)
    if stage not in ("ptx", "sass", "llvm", "asm"):
        raise NotShown(f"there is no stage `{stage}`")
    made = session.compile_kernel(asked.path, function.name, signature, options, (stage, LINES))
    text = made.texts.get(stage)
    if text is None:
        raise NotShown(f"the target {options.target} has no stage `{stage}`")
    if stage == "ptx":
        return _of_ptx(with_lines(text, session.files.known()), asked.path)
    if stage == "sass":
        text = sass_with_lines(text, made.texts["ptx"], session.files.known())
        return _of_sass(text, asked.path)
    return text, [-1] * len(text.splitlines())


def _programs(
    asked: Asked, function: ast.FunctionDef, signature: Signature, stage: str,
    options: TargetOptions,
) -> list[Program]:  # fmt: skip
    session, path = asked.session, asked.path
    if kernel_level(function) != "tile":
        if stage == "schedule":
            raise NotShown(f"`{function.name}` is a lane kernel: it has no schedule")
        return [session.tile(path, function.name, signature)[0]]
    machine = session.machine(options.target, options.arch)
    session.tile(path, function.name, signature, machine)  # raises where it is refused
    launches = session.for_machine(path, function.name, signature, machine).launches
    if stage == "schedule":
        return [launch.schedule for launch in launches]
    return [launch.lowered[0] for launch in launches if launch.lowered is not None]


def _of_ir(text: str, path: str) -> tuple[str, list[int]]:
    name = string_text(path)[1:-1]
    shown: list[str] = []
    lines: list[int] = []
    for line in text.split("\n"):
        m = _OF_IR.search(line)
        shown.append(line if m is None else line[: m.start()])
        lines.append(-1 if m is None or m[1] != name else int(m[2]) - 1)
    return "\n".join(shown), lines


def _of_ptx(text: str, path: str) -> tuple[str, list[int]]:
    """Without its locations; an instruction is of the line of the last one."""
    files = {m[1]: unescaped(m[2]) for m in map(_FILE.match, text.split("\n")) if m is not None}
    shown: list[str] = []
    lines: list[int] = []
    now = -1
    for line in text.split("\n"):
        m = _OF_PTX.match(line)
        if m is not None:
            now = int(m[2]) - 1 if files.get(m[1]) == path or len(files) == 2 else -1
        elif _FILE.match(line) is None and not line.startswith(("$L__tmp", "$L__func_")):
            shown.append(line)
            lines.append(now if line.startswith("\t") else -1)
        if line.startswith("}"):
            now = -1
    return "\n".join(shown), lines


def _of_sass(text: str, path: str) -> tuple[str, list[int]]:
    """Without its locations; an instruction is of the line of the last one."""
    shown: list[str] = []
    lines: list[int] = []
    now = -1
    for line in text.split("\n"):
        m = _OF_SASS.match(line)
        if m is not None:
            now = int(m[2]) - 1 if m[1] == path else -1
            continue
        instruction = _INSTRUCTION.match(line)
        now = now if instruction or line.startswith(".L_") else -1
        shown.append(line if instruction is None else f"{instruction[1]} {instruction[2]}")
        lines.append(-1 if instruction is None else now)
    return "\n".join(shown), lines


def resources(asked: Asked) -> Iterator[Json]:
    """What each kernel takes, an answer for each architecture as it is known."""
    kernels = asked.session.kernels(asked.path)
    wanted = set(asked.question.get("kernels") or [k.name for k in kernels])
    for function in kernels:
        if function.name not in wanted:
            continue
        for arch in asked.question.get("archs", ()):
            head = {"kernel": function.name, "arch": arch}
            try:
                signature = next(iter(asked.signatures(function).values()))
                yield {**head, "launches": _launches(asked, function, signature, arch)}
            except NotShown as error:
                yield {**head, "error": str(error)}
            except TesseraError as error:
                yield {**head, "error": error.diagnostics[0].message}


def _launches(
    asked: Asked, function: ast.FunctionDef, signature: Signature, arch: str
) -> list[Json]:
    options = asked.options(arch)
    made = asked.session.compile_kernel(asked.path, function.name, signature, options, ("ptx",))
    programs = _programs(asked, function, signature, "tile", options)
    found: list[Json] = []
    for code, program in zip((made, *made.then), programs, strict=False):
        kernel, r = program.operations[0], code.resources
        lanes, shared = prod(kernel.integers("group")), max(0, r.shared_bytes)
        row = ROWS.get(arch)
        at_once = None
        if row is not None and r.registers > 0:
            at_once = occupancy(lanes, shared, row.limits, r.registers)
        found.append({
            "registers": r.registers, "spills": r.spill_bytes, "shared": shared, "lanes": lanes,
            "buffers": buffers_of(kernel),
            "groups": at_once.groups if at_once else -1,
            "percent": at_once.percent if at_once else -1,
            "limit": at_once.limit if at_once else "",
        })  # fmt: skip
    return found


def answers(question: Json) -> Iterator[Json]:
    """The answers to a question; words say why there is none."""
    try:
        asked = Asked(question)
        if question["task"] == "ir":
            yield ir(asked)
        else:
            yield from resources(asked)
    except NotShown as error:
        yield {"error": str(error)}
    except TesseraError as error:
        yield {"error": error.diagnostics[0].message}


def main() -> None:
    question = json.loads(sys.stdin.buffer.read())
    output = sys.stdout.buffer
    sys.stdout = sys.stderr
    for answer in answers(question):
        output.write(json.dumps(answer).encode() + b"\n")
        output.flush()


if __name__ == "__main__":
    main()
