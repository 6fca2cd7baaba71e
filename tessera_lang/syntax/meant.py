"""Lines of other languages whose meaning is plain: what they are called, and the line meant.

The fault is reported once, and the file is read on as if the right line stood there, so that
nothing follows from it. Owns the patterns. Must not know the parser.
"""

from __future__ import annotations

from tessera_lang.record import dataclass
from tessera_lang.syntax.lexer import CLOSERS, OPENERS, Token
from tessera_lang.types.dtype import dtype_named

_ELIF_WORDS = frozenset(("elsif", "elseif", "elsIf", "elseIf", "elf", "elfi", "ELIF"))
_DECLARING_WORDS = frozenset(("auto", "var", "let", "const", "int", "float", "double"))


@dataclass(frozen=True, slots=True)
class Meant:
    """``what`` stands from ``first`` to ``last``; ``instead`` says what to write, and
    ``replacement`` is the text for it where that is all. ``tokens`` is the line meant."""

    first: Token
    last: Token
    what: str
    instead: str
    tokens: list[Token]
    replacement: str = ""


def meant(tokens: list[Token]) -> Meant | None:
    """The line that ``tokens``, which end in the end of the line, stands for."""
    if len(tokens) < 3:
        return None
    for rule in (_elif, _declaration, _counting_loop, _mut_behind):
        found = rule(tokens)
        if found is not None:
            return found
    return None


def _elif(tokens: list[Token]) -> Meant | None:
    """``else if x:`` and ``elsif x:``."""
    first, second = tokens[0], tokens[1]
    if first.kind == "else" and second.kind == "if":
        last, text, rest = second, "else if", tokens[2:]
    elif first.text in _ELIF_WORDS and any(t.kind == ":" for t in tokens[2:]):
        last, text, rest = first, first.text, tokens[1:]
    else:
        return None
    line = [Token("elif", "elif", first.start, last.end), *rest]
    return Meant(first, last, f"'{text}' is", "write 'elif'", line, "elif")


def _declaration(tokens: list[Token]) -> Meant | None:
    """``float a = 0.0`` and ``float a``."""
    word, name, third = tokens[:3]
    if word.kind != "NAME" or name.kind != "NAME":
        return None
    known = word.text in _DECLARING_WORDS or dtype_named(word.text) is not None
    if third.kind == "=":
        line = tokens[1:]
    elif known and third is tokens[-1]:
        line = [name, Token("=", "=", third.start, third.start),
                Token("NAME", "", third.start, third.start), third]  # fmt: skip
    else:
        return None
    what = f"'{word.text}' in front of a variable is"
    dtype = dtype_named(word.text)
    typed = f", or '{name.text}: {dtype} = ...' to fix its type" if dtype is not None else ""
    return Meant(word, word, what, f"write '{name.text} = ...'{typed}", line)


def _counting_loop(tokens: list[Token]) -> Meant | None:
    """``for (int i = 0; i < n; i++):``."""
    first = tokens[0]
    if first.kind != "for" or not any(t.kind == ";" for t in tokens):
        return None
    equals = next((i for i, t in enumerate(tokens) if t.kind == "="), 0)
    name = tokens[equals - 1]
    if name.kind != "NAME":
        return None
    end, here = tokens[-1], name.end
    line = [first, name, Token("in", "in", here, here), Token("NAME", "", here, here),
            Token(":", ":", end.start, end.start), end]  # fmt: skip
    return Meant(first, tokens[-2], "this 'for' of three parts is",
                 f"write 'for {name.text} in range(n):'", line)  # fmt: skip


def _mut_behind(tokens: list[Token]) -> Meant | None:
    """``x: f32[n] mut``."""
    at = next((i for i, t in enumerate(tokens) if (t.kind, t.text) == ("NAME", "mut") and i > 2), 0)
    if not at or tokens[at - 1].kind not in ("]", "NAME"):
        return None
    depth, place = 0, 0
    for i in range(at - 1, 0, -1):
        kind = tokens[i].kind
        depth += (kind in CLOSERS) - (kind in OPENERS)
        if kind == ":" and depth == 0:
            place = i
            break
    if not place:
        return None
    mut, colon = tokens[at], tokens[place]
    line = [*tokens[: place + 1], Token("NAME", "mut", colon.end, colon.end),
            *tokens[place + 1 : at], *tokens[at + 1 :]]  # fmt: skip
    return Meant(mut, mut, "'mut' behind a type is", "write it in front: 'x: mut f32[n]'", line)
