"""Formats a file: indentation, blank lines, comments, and the proof that nothing changed.

Owns the layout of lines against each other. Must not know files on disk.
"""

from __future__ import annotations

import re

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.source import SourceFile
from tessera_lang.syntax.dump import dump
from tessera_lang.syntax.format.lines import LogicalLine, Reader
from tessera_lang.syntax.format.wrapping import STEP, laid_out
from tessera_lang.syntax.lexer import COMMENT, tokens
from tessera_lang.syntax.parser import ParsedModule, parse_module

_BOM = "\ufeff"
_LONE_RETURN = re.compile(r"\r(?!\n)")
_PLACE = re.compile(r"  \[\d+:\d+\]$", re.MULTILINE)


class FormatFault(Exception):
    """The formatter would have changed a program: a fault of ours."""


def format_source(file: SourceFile) -> str | None:
    """The formatted text of a file; None where it has syntax errors other than indentation by
    tabs.

    Raises FormatFault where the result would not be the same program.
    """
    parsed = parse_module(file)
    errors = [d for d in parsed.diagnostics if d.severity == "error"]
    if errors and all(d.code == "T0020" and d.fixes for d in errors):
        return format_source(SourceFile(file.path, _with_spaces(file.text, errors)))
    if errors:
        return None
    before = _LONE_RETURN.sub("\n", file.text)
    text = before.removeprefix(_BOM)
    end = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    lines = _Formatter(Reader(text).read()).lines()
    after = (_BOM if before.startswith(_BOM) else "") + "".join(line + end for line in lines)
    _compare(file, parsed, before, after)
    return after


def _with_spaces(text: str, said: list[Diagnostic]) -> str:
    """A text with the fixes of what is said of its tabs."""
    edits = [e for d in said for e in d.fixes[0].edits]
    for edit in sorted(edits, key=lambda e: e.span.lo, reverse=True):
        text = text[: edit.span.lo] + edit.replacement + text[edit.span.hi :]
    return text


def _compare(file: SourceFile, parsed: ParsedModule, before: str, after: str) -> None:
    again = parse_module(SourceFile(file.path, after))
    for fault in again.diagnostics:
        if fault.severity == "error":
            raise FormatFault(f"the result has a fault: {fault.message}")
    if _PLACE.sub("", dump(parsed.module)) != _PLACE.sub("", dump(again.module)):
        raise FormatFault("the result has another tree")
    if _kept(before) != _kept(after):
        raise FormatFault("the result has other comments or strings")


def _kept(text: str) -> list[str]:
    """What a formatter may not touch, in order."""
    start = int(text.startswith(_BOM))
    return [
        t.text.rstrip() if t.kind is COMMENT else t.text
        for t in tokens(text, start, len(text))
        if t.kind is COMMENT or t.kind in ("STRING", "NAME", "NUMBER")
    ]


class _Formatter:
    def __init__(self, lines: list[LogicalLine]) -> None:
        self.source = lines
        self.levels = _levels(lines)

    def lines(self) -> list[str]:
        out: list[str] = []
        after_function = False
        for i, line in enumerate(self.source):
            level = self.levels[i]
            out += [""] * (self._blanks(i, after_function) if out else 0)
            indent = STEP * level
            if line.pieces:
                physical = laid_out(line.pieces, indent)
                if line.comment:
                    physical[-1] += f"  {line.comment}"
                out += physical
                if level == 0:
                    after_function = line.first == "def"
            else:
                out.append(" " * indent + line.comment)
                if level == 0:
                    after_function = False
        return out

    def _blanks(self, i: int, after_function: bool) -> int:
        """The blank lines above a line that is not the first."""
        line, before = self.source[i], self.source[i - 1]
        if before.opens_block or before.first == "@":
            return 0
        if self.levels[i]:
            return min(line.blanks, 1)
        if after_function:
            return 2
        if self._leads_to_function(i):
            follows = not before.pieces and self.levels[i - 1] == 0 and line.blanks == 0
            return 0 if follows else 2
        return min(line.blanks, 2)

    def _leads_to_function(self, i: int) -> bool:
        """Whether a line is a function's head, a decorator of it, or a comment upon it."""
        while i < len(self.source) and not self.source[i].pieces:
            if i + 1 < len(self.source) and self.source[i + 1].blanks:
                return False
            i += 1
        return i < len(self.source) and self.source[i].first in ("@", "def")


def _levels(lines: list[LogicalLine]) -> list[int]:
    """The block depth of each line. A comment stands with the line below it, or with a block
    that ends above it, as deep as its column says."""
    levels = [0] * len(lines)
    stack = [0]
    waiting: list[int] = []
    for i, line in enumerate(lines):
        if not line.pieces:
            waiting.append(i)
            continue
        before = list(stack)
        if line.indent > stack[-1]:
            stack.append(line.indent)
        while line.indent < stack[-1]:
            stack.pop()
        levels[i] = len(stack) - 1
        _place(lines, levels, waiting, before, levels[i])
        waiting = []
    _place(lines, levels, waiting, stack, 0)
    return levels


def _place(
    lines: list[LogicalLine], levels: list[int], waiting: list[int], stack: list[int], least: int
) -> None:
    highest = len(stack) - 1
    for i in waiting:
        fitting = [d for d in range(len(stack)) if stack[d] <= lines[i].indent]
        highest = max(least, min(highest, max(fitting, default=0)))
        levels[i] = highest
