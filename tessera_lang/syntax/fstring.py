"""The inside of f-strings: literal text and replacement fields.

Owns where fields begin and end. Must not know how their expressions are parsed: the caller
gives a function that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.source import Span
from tessera_lang.syntax import ast, faults

_CONVERSION = re.compile(r"(?<=.)(![A-Za-z]|(?<![=!<>])=)$")
"""`!r` and the `=` of `f"{x=}"`, at the end of a field."""
_OPEN, _CLOSE = "([{", ")]}"


def read_fstring(
    body: str,
    start: int,
    read: Callable[[int, int], ast.Expr],
    span: Callable[[int, int], Span],
    report: Callable[[Diagnostic], None],
) -> tuple[list[str | ast.FormattedValue], tuple[str, int] | None]:
    """Text (with its escapes) and values in order; the first fault and its offset.

    ``start`` is the offset of ``body`` in the file, which ``read`` counts in too.
    """
    parts: list[str | ast.FormattedValue] = []
    text = ""
    i = 0
    while i < len(body):
        c = body[i]
        if c not in "{}":
            text += c
            i += 1
        elif body.startswith(c, i + 1):
            text += c
            i += 2
        elif c == "}":
            return parts, ("this '}' closes no field of the f-string", start + i)
        else:
            stop, colon = _field(body, i + 1)
            if stop < 0:
                return parts, ("this field of the f-string is not closed", start + i)
            end = colon if colon >= 0 else stop
            if not body[i + 1 : end].strip():
                return parts, ("this field of the f-string is empty", start + i)
            form = body[colon + 1 : stop] if colon >= 0 else ""
            if "{" in form:
                return parts, ("a format cannot hold a field of its own", start + colon)
            if text:
                parts.append(text)
                text = ""
            read_to = _without_python(body, (i, end), (start, span), report)
            value = read(start + i + 1, start + read_to)
            parts.append(ast.FormattedValue(span(start + i, start + stop + 1), value, form))
            i = stop + 1
    if text:
        parts.append(text)
    return parts, None


def _without_python(
    body: str, field: tuple[int, int], at: tuple[int, Callable[[int, int], Span]],
    report: Callable[[Diagnostic], None],
) -> int:  # fmt: skip
    """Where the expression of a field ends: in front of `!r` and of a last `=`, which are
    Python's and are reported."""
    begin, end = field
    start, span = at
    written = body[begin + 1 : end].rstrip()
    found = _CONVERSION.search(written)
    if found is None:
        return end
    stop = begin + 1 + len(written[: found.start()].rstrip())
    where = span(start + stop, start + begin + 1 + len(written))
    if found[0].startswith("!"):
        report(faults.format_conversion(where, found[0]))
    else:
        opened = span(start + begin, start + begin)
        report(faults.format_with_name(where, opened, f"{written[: found.start()].strip()}="))
    return stop


def _field(body: str, i: int) -> tuple[int, int]:
    """Offsets of the '}' that ends the field and of the ':' before its format, or -1."""
    depth = 0
    quote = ""
    while i < len(body):
        c = body[i]
        if quote:
            if c == quote:
                quote = ""
        elif c in "'\"":
            quote = c
        elif c == "}" and depth == 0:
            return i, -1
        elif c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
        elif c == ":" and depth == 0:
            return body.find("}", i), i
        i += 1
    return -1, -1
