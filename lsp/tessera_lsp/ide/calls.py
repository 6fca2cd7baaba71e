"""The call around a place: what is called, which argument is being written, what is left to give.

Works on the text before the place, so that a call that is not finished is no hindrance. Must not
know LSP.
"""

from __future__ import annotations

import re

from tessera_lang.record import dataclass, field
from tessera_lang.sema.builtins import FUNCTIONS, TILE_FUNCTIONS
from tessera_lang.sema.side_tables import Builtin, FunctionSymbol
from tessera_lsp.ide.builtin_docs import help_of, signature_of
from tessera_lsp.ide.document import Document

_TOKEN = re.compile(
    r"#[^\n]*|[fFrR]{0,2}(?:\"{3}[\s\S]*?(?:\"{3}|\Z)|'{3}[\s\S]*?(?:'{3}|\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<comma>,)|(?P<equals>=(?!=))|(?P<compare>[=!<>]=)|(?P<other>[^\s])"
)
_TOP = re.compile(r"^\S", re.M)


@dataclass(slots=True)
class _Open:
    """A bracket that is open, and what stands before it."""

    bracket: str
    name: str
    commas: int = 0
    keyword: str = ""
    given: list[str] = field(default_factory=list[str])
    words: int = 0  # of the argument that is being written


@dataclass(frozen=True, slots=True)
class Called:
    """``parameters``: as they are declared, with their names; ``active``: the place of the one
    that is being written, None where there are too many."""

    label: str
    documentation: str
    parameters: tuple[tuple[str, str], ...]
    active: int | None
    given: tuple[str, ...]
    begins: bool
    """Whether no more than the first word of an argument is there."""


def called(document: Document, offset: int) -> Called | None:
    """The innermost call that an offset lies in."""
    text = document.file.text[:offset]
    tops = [m.start() for m in _TOP.finditer(text)]
    found = _open_call(text[tops[-1] if tops else 0 :])
    if found is None or re.search(r"\bdef\s+\w+\s*(?:\[[^\]]*\])?\s*\([^)]*$", text):
        return None
    names = tuple(found.name.split("."))
    function = document.function_at(offset)
    if names[0] in document.variables(function):
        return None
    symbol = document.resolve(names)
    match symbol:
        case FunctionSymbol(declaration=d):
            source = document.session.source(symbol.module).text
            shown = tuple((p.name, source[p.span.lo : p.span.hi]) for p in d.parameters)
            returns = d.returns
            behind = "" if returns is None else f" -> {source[returns.span.lo : returns.span.hi]}"
            label = f"{d.name}({', '.join(s for _, s in shown)}){behind}"
            brackets = tuple((p.name, source[p.span.lo : p.span.hi]) for p in d.brackets)
            return _called(found, label, d.docstring or "", shown, brackets, False)
        case Builtin(full):
            label = signature_of(full)
            inner = label[label.find("(") + 1 : -1] if label.endswith(")") else ""
            words = [w for w in inner.split(", ") if w]
            parameters = tuple((w.rstrip("="), w) for w in words)
            info = TILE_FUNCTIONS.get(full) or FUNCTIONS.get(full)
            variadic = "..." in words or (info is not None and bool(info.variadic))
            return _called(found, label, help_of(full), parameters, (), variadic)
        case _:
            return None


def _called(
    found: _Open, label: str, documentation: str, parameters: tuple[tuple[str, str], ...],
    brackets: tuple[tuple[str, str], ...], variadic: bool,
) -> Called:  # fmt: skip
    names = [n for n, _ in parameters]
    active: int | None = found.commas
    if found.keyword:
        active = names.index(found.keyword) if found.keyword in names else None
    elif found.commas >= len(names):
        active = len(names) - 1 if variadic and names else None
    given = (*names[: found.commas - len(found.given)], *found.given)
    begins = not found.keyword and found.words <= 1
    return Called(label, documentation, (*parameters, *brackets), active, given, begins)


def _open_call(text: str) -> _Open | None:
    """The innermost bracket of a call that is open at the end of a text."""
    stack: list[_Open] = []
    before, word = "", ""  # what a bracket would stand behind; the last word of an argument
    for m in _TOKEN.finditer(text):
        top = stack[-1] if stack else None
        kind = m.lastgroup
        if kind == "name":
            before = word = m["name"]
            if top is not None:
                top.words += 1
            continue
        if kind == "open":
            stack.append(_Open(m["open"], before if m["open"] != "{" else ""))
            before = ""
        elif kind == "close":
            if stack:
                closed = stack.pop()
                # `kernel[(4,)](x)` is a call of `kernel`.
                before = closed.name if closed.bracket == "[" else ""
            if stack:
                stack[-1].words += 1
        elif kind == "comma" and top is not None:
            if top.keyword:
                top.given.append(top.keyword)
            top.commas, top.keyword, top.words, before = top.commas + 1, "", 0, ""
        elif kind == "equals" and top is not None and top.bracket == "(" and top.words == 1:
            top.keyword, before = word, ""
        else:
            if top is not None and not m[0].startswith("#"):
                top.words += 2
            before = ""
    return next((o for o in reversed(stack) if o.bracket == "(" and o.name), None)
