"""Comments that say which diagnostics are meant to be so: ``# tessera: ignore[T0412]``.

Owns of which lines a comment speaks, and which comments spoke of nothing. A comment behind a
statement speaks of all its lines, one on a line of its own of the statement below. Errors stay:
nothing can be compiled of what they are said of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from tessera_lang.diagnostics import Diagnostic, Edit, Fix, TesseraError
from tessera_lang.diagnostics.codes import all_codes
from tessera_lang.record import dataclass
from tessera_lang.source import Anchor, SourceFile, Span
from tessera_lang.syntax.lexer import CLOSERS, COMMENT, JOIN, NEWLINE, OPENERS, Token, tokens

MARK = re.compile(r"#\s*tessera:\s*ignore\b[ \t]*(?:\[([^\]]*)\])?")
_LONE_RETURN = re.compile(r"\r(?!\n)")
_ASKED_FOR: dict[str, str] = {
    "T0412": "strict", "T0413": "strict", "T0416": "strict", "P1001": "lints", "P1002": "lints",
    "P1003": "occupancy", "P1004": "guards",
}  # fmt: skip
"""Codes that are said only where a question is asked, by the name of the question."""
_OF_REMARKS = ("T074", "T075", "P1006")

Used = set[tuple[str, int, str]]
"""Comments that a diagnostic was found for: file, offset, code."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """A comment: its place and the offsets of what it speaks of, which starts in ``lo`` to
    ``hi``."""

    start: int
    end: int
    lo: int
    hi: int
    codes: tuple[str, ...]


@lru_cache(maxsize=512)
def ignores(text: str) -> tuple[Ignore, ...]:
    """The comments of a text, in order."""
    if MARK.search(text) is None:
        return ()
    text = _LONE_RETURN.sub("\n", text)
    found: list[Ignore] = []
    waiting: list[Token] = []  # comments whose statement is not over
    depth, first = 0, -1  # open brackets; where the statement begins
    for token in (*tokens(text, 0, len(text)), Token(NEWLINE, "\n", len(text), len(text))):
        if token.kind is COMMENT:
            if MARK.match(token.text):
                waiting.append(token)
        elif token.kind is NEWLINE:
            if depth == 0 and first >= 0:
                found += [_read(c, first, token.start) for c in waiting]
                waiting, first = [], -1
        elif token.kind is not JOIN:
            first = token.start if first < 0 else first
            depth = max(0, depth + (token.kind in OPENERS) - (token.kind in CLOSERS))
    return (*found, *(_read(c, c.start, c.end) for c in waiting))


def _read(comment: Token, lo: int, hi: int) -> Ignore:
    mark = MARK.match(comment.text)
    assert mark is not None
    start = comment.start
    codes = tuple(dict.fromkeys(c.upper() for c in re.findall(r"[^\s,]+", mark[1] or "")))
    return Ignore(start, start + mark.end(), lo, hi, codes)


def heeded(
    found: Iterable[Diagnostic], source: Callable[[str], SourceFile], used: Used
) -> list[Diagnostic]:
    """Diagnostics without those that a comment speaks of; which ones spoke goes into ``used``."""
    kept: list[Diagnostic] = []
    for d in found:
        span = d.span
        if d.severity == "error" or span is None:
            kept.append(d)
            continue
        try:
            text = source(span.file).text
        except TesseraError:
            kept.append(d)
            continue
        spoken = [
            i for i in ignores(text)
            if i.lo <= span.lo <= i.hi and d.code in i.codes
        ]  # fmt: skip
        used.update((span.file, i.start, d.code) for i in spoken)
        if not spoken:
            kept.append(d)
    return kept


def unused(file: SourceFile, used: Used, asked: Iterable[str]) -> list[Diagnostic]:
    """P1007 for each comment with codes that were looked for and not found."""
    questions, found = set(asked), list[Diagnostic]()
    for i in ignores(file.text):
        left = [
            c for c in i.codes
            if (file.path, i.start, c) not in used
            and (c not in all_codes() or _sought(c, questions))
        ]  # fmt: skip
        if i.codes and not left:
            continue
        span = Span(Anchor(file.path), i.start, i.end)
        kept = tuple(c for c in i.codes if c not in left)
        if not i.codes:
            message = "the comment names no code, and ignores nothing"
        elif unknown := [c for c in left if c not in all_codes()]:
            message = f"there is no diagnostic {' or '.join(unknown)}"
        else:
            message = f"nothing is told here as {' or '.join(left)}: the comment ignores nothing"
        found.append(
            Diagnostic(
                "P1007", message, span, severity="warning", notes=("errors are not ignored",),
                helps=() if i.codes else ("name what is ignored: `# tessera: ignore[T0412]`",),
                fixes=(_without(file, i, kept),),
            )
        )  # fmt: skip
    return found


def _sought(code: str, asked: set[str]) -> bool:
    """Whether a code would have been told if there was something to tell."""
    return not code.startswith(_OF_REMARKS) and _ASKED_FOR.get(code, "lints") in asked


def _without(file: SourceFile, i: Ignore, kept: tuple[str, ...]) -> Fix:
    """The comment with these codes alone; without any it goes, with the blanks before it, or with
    its line where it stands alone."""
    lo, hi, text = i.start, i.end, file.text
    if kept:
        edit = Edit(Span(Anchor(file.path), lo, hi), f"# tessera: ignore[{', '.join(kept)}]")
        return Fix("remove what is not told here", (edit,))
    line = file.line_of(lo)
    rest = text[hi : file.starts[line] + len(file.line_text(line))].strip(" \t\r\n")
    if rest:
        return Fix("remove the mark", (Edit(Span(Anchor(file.path), lo, hi), "#"),))
    lo -= len(text[file.starts[line] : lo]) - len(text[file.starts[line] : lo].rstrip(" \t"))
    if lo == file.starts[line] and line + 1 < len(file.starts):
        hi = file.starts[line + 1]
    return Fix("remove the comment", (Edit(Span(Anchor(file.path), lo, hi), ""),))


def ignoring(file: SourceFile, code: str, at: int) -> Fix:
    """The edit by which a code is ignored in the statement at an offset."""
    text = _LONE_RETURN.sub("\n", file.text)
    for i in ignores(file.text):
        if i.lo <= at <= i.hi:
            codes = (*i.codes, *(() if code in i.codes else (code,)))
            edit = Edit(Span(Anchor(file.path), i.start, i.end),
                        f"# tessera: ignore[{', '.join(codes)}]")  # fmt: skip
            return Fix(f"ignore {code} here", (edit,), "unsafe")
    end, depth, last = len(text), 0, None
    for token in tokens(text, 0, len(text)):
        if token.kind is NEWLINE and depth == 0:
            if token.start >= at:
                end = token.start
                break
            last = None
        depth = max(0, depth + (token.kind in OPENERS) - (token.kind in CLOSERS))
        last = token if token.kind is not NEWLINE else last
    if last is not None and last.kind is COMMENT:  # the line has a comment of its own
        line = file.line_of(at)
        start = file.starts[line]
        indent = re.match(r"[ \t]*", file.line_text(line))
        margin = "" if indent is None else indent[0]
        edit = Edit(Span(Anchor(file.path), start, start), f"{margin}# tessera: ignore[{code}]\n")
    else:
        edit = Edit(Span(Anchor(file.path), end, end), f"  # tessera: ignore[{code}]")
    return Fix(f"ignore {code} here", (edit,), "unsafe")
