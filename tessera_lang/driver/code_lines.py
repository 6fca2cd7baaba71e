"""Lines of the program in the texts of compiled code.

Owns how an offset of a debug location becomes a line and a column. Must not know how code is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tessera_lang.source import SourceFile, Span

_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"', re.MULTILINE)
_LOCATION = re.compile(r"^([ \t]*\.loc[ \t]+)(\d+)[ \t]+(\d+)[ \t]+0", re.MULTILINE)
_OF_SASS = re.compile(r'^([ \t]*//## File )"(.*)", line (\d+)', re.MULTILINE)
_EMPTY = re.compile(r"^[ \t]*\.section[ \t]+\.debug_\w+\s*\{\s*\}[ \t]*\n?", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")


def locator(files: Mapping[str, SourceFile]) -> Callable[[Span], tuple[str, int, int]]:
    """Gives file, line and column, both from 1, of a place."""

    def locate(span: Span) -> tuple[str, int, int]:
        file = files.get(span.file)
        if file is None:
            return span.file, 0, 0
        line, column = file.position(span.lo)
        return span.file, line + 1, column + 1

    return locate


def with_lines(ptx: str, files: Mapping[str, SourceFile]) -> str:
    """PTX whose debug locations have offsets, with lines and columns from 1; what is of no place
    keeps line 0."""
    ptx = _EMPTY.sub("", ptx)
    names = {m[1]: unescaped(m[2]) for m in _FILE.finditer(ptx)}

    def line(m: re.Match[str]) -> str:
        file, offset = files.get(names.get(m[2], "")), int(m[3]) - 1
        if file is None or not 0 <= offset <= len(file.text):
            return f"{m[1]}{m[2]} 0 0"
        row, column = file.position(offset)
        return f"{m[1]}{m[2]} {row + 1} {column + 1}"

    return _LOCATION.sub(line, ptx)


def sass_with_lines(sass: str, ptx: str, files: Mapping[str, SourceFile]) -> str:
    """SASS whose debug locations have offsets and the numbers of files in its PTX, with lines from
    1 and their names; what is of no place keeps line 0."""
    names = {m[1]: unescaped(m[2]) for m in _FILE.finditer(ptx)}

    def line(m: re.Match[str]) -> str:
        name, offset = names.get(m[2], m[2]), int(m[3]) - 1
        file = files.get(name)
        known = file is not None and 0 <= offset <= len(file.text)
        return f'{m[1]}"{name}", line {file.position(offset)[0] + 1 if file and known else 0}'

    return _OF_SASS.sub(line, sass)


def unescaped(name: str) -> str:
    """A file's name as it is: bytes that are not ASCII stand in octal."""
    plain = _OCTAL.sub(lambda m: chr(int(m[1], 8)), name)
    return plain.encode("latin-1", "replace").decode("utf-8", "replace")
