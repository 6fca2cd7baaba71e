"""The values of number and string literals.

Owns their spelling. Must not know the tree; faults come back as text.
"""

from __future__ import annotations

import re
from math import isinf

from tessera_grammar.keywords import HARD_KEYWORDS

from tessera_lang.record import dataclass

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Python itself refuses to read longer decimal integers.
MAX_DIGITS = 4000

_DECIMAL = re.compile(r"[0-9]+(?:_[0-9]+)*")
_PREFIXED = re.compile(r"0(?:[xX](?:_?[0-9a-fA-F]+)+|[bB](?:_?[01]+)+)")
_FLOAT = re.compile(
    r"(?:[0-9]+(?:_[0-9]+)*\.(?:[0-9]+(?:_[0-9]+)*)?|\.[0-9]+(?:_[0-9]+)*|[0-9]+(?:_[0-9]+)*)"
    r"(?:[eE][+-]?[0-9]+(?:_[0-9]+)*)?"
)
_SIZED = re.compile(r"([0-9]+(?:_[0-9]+)*)_([A-Za-z]+)")
_GLUED = re.compile(r"([0-9.]+)([A-Za-z]+)")
_ESCAPE = re.compile(r"\\(\r?\n|[\s\S])")
_SIMPLE = {
    "\n": "",
    "\r\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "0": "\0",
}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a literal, and what to do; ``at`` is an offset into its text."""

    message: str
    help: str = ""
    at: int = 0


def number(text: str) -> tuple[int | float, str | None] | Fault:
    """The value, and the unit of a size in bytes (``16_KiB``)."""
    if _DECIMAL.fullmatch(text):
        if len(text) > MAX_DIGITS:
            return Fault("long", f"a number has at most {MAX_DIGITS} digits")
        if len(text) > 1 and text[0] == "0" and text.strip("0_"):
            return Fault("zero", "a decimal number does not start with 0")
        return int(text), None
    if _PREFIXED.fullmatch(text):
        return int(text, 0), None
    if _FLOAT.fullmatch(text):
        value = float(text.replace("_", ""))
        if isinf(value):
            return Fault("large", "it is larger than every number; infinity is written `inf`")
        return value, None
    sized = _SIZED.fullmatch(text)
    if sized is not None:
        if sized[2] in UNITS and len(text) <= MAX_DIGITS:
            return int(sized[1]) * UNITS[sized[2]], sized[2]
        return Fault("unit", "the units of sizes are B, KiB, MiB and GiB: 16_KiB")
    unit = next((u for u in UNITS if text.endswith(u) and _DECIMAL.fullmatch(text[: -len(u)])), "")
    if unit:
        return Fault("unit", f"a unit follows an underscore: {text[: -len(unit)]}_{unit}")
    word = _GLUED.fullmatch(text)
    if word is not None and word[2] in HARD_KEYWORDS:
        return Fault("word", f"a blank stands between a number and a word: {word[1]} {word[2]}")
    return Fault("number", "write 10, 1_000, 0x1f, 0b101, 1.5, 1e-3 or a size like 16_KiB")


def split_string(text: str) -> tuple[str, str, str]:
    """Prefix letters in lower case, the quotes, and the text between them."""
    body = text.lstrip("fFrR")
    prefix = text[: len(text) - len(body)].lower()
    quote = body[:3] if len(body) >= 6 and body[:3] in ('"""', "'''") else body[:1]
    return prefix, quote, body[len(quote) : len(body) - len(quote)]


def unescape(body: str, *, raw: bool) -> tuple[str, Fault | None]:
    """The value of the text between quotes; the first fault of its escapes."""
    if raw or "\\" not in body:
        return body.replace("\r\n", "\n"), None
    parts: list[str] = []
    fault: Fault | None = None
    position = 0
    for match in _ESCAPE.finditer(body):
        if match.start() < position:
            continue
        parts.append(body[position : match.start()])
        letter = match[1]
        position = match.end()
        if letter in _SIMPLE:
            parts.append(_SIMPLE[letter])
            continue
        width = _HEX_ESCAPES.get(letter, 0)
        digits = body[position : position + width]
        value = _code_point(digits, width)
        if value is None:
            fault = fault or Fault(f"'\\{letter}' is not an escape", at=match.start())
            parts.append(match[0])
        else:
            parts.append(chr(value))
            position += width
    parts.append(body[position:])
    return "".join(parts).replace("\r\n", "\n"), fault


def _code_point(digits: str, width: int) -> int | None:
    if width == 0 or not re.fullmatch(r"[0-9a-fA-F]+", digits) or len(digits) < width:
        return None
    value = int(digits, 16)
    return value if value < 0x110000 and not 0xD800 <= value < 0xE000 else None
