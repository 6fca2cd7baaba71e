"""What is done about a line that does not fit the grammar: one fault, and a tree all the same.

Owns the wording of what was expected and the small repairs. Must not know how lines form
blocks. A repair puts in at most ``MAX_REPAIRS`` tokens; a line that needs more is lost, but
the names in it are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera_lang.diagnostics import Diagnostic, Edit, Fix
from tessera_lang.source import Span
from tessera_lang.syntax import ast, faults, literals, semantic_values
from tessera_lang.syntax.foreign import foreign_construct
from tessera_lang.syntax.lalr_driver import END, Machine, Stuck
from tessera_lang.syntax.layout import Line
from tessera_lang.syntax.lexer import CLOSERS, OPENERS, Token

MAX_REPAIRS = 3
MAX_REPAIRED_TOKENS = 2000

_HEADERS = frozenset(("if", "elif", "else", "while", "for", "with", "def"))
_CONDITIONS = frozenset(("if", "elif", "while", "assert", "return"))
_OPERANDS = frozenset(("NAME", "NUMBER", "STRING"))
_SINGLE = ("NAME", ")", "]", "}", "else", ":", ",", "in", "import", "->")
_WORDS = {"NAME": "a name", "STRING": "a string", "NUMBER": "a number"}

SpanOf = Callable[[int, int], Span]


def diagnose(
    machine: Machine, line: Line, tokens: list[Token], at: Stuck, span: SpanOf
) -> Diagnostic:
    """Says what is wrong at the token that the machine is stuck at."""
    token = tokens[at.index]
    here = span(token.start, token.end)
    foreign = foreign_construct(tokens, at.index, span)
    if foreign is not None:
        return foreign
    number = _number_fault(tokens, at.index, span)
    if number is not None:
        return number
    accepted = machine.accepted(at.states)
    opened = _open_brackets(tokens, at.index)
    if line.unclosed is not None and (token.kind == END or not _opens_later(line, token)):
        opener = line.unclosed
        where, end = span(opener.start, opener.end), span(line.end, line.end)
        return faults.unclosed_bracket(where, opener.kind, OPENERS[opener.kind], end)
    if token.kind in CLOSERS:
        mismatch = _closer_fault(token, opened, here, span)
        if mismatch is not None:
            return mismatch
    if token.kind == "=" and tokens[0].kind in _CONDITIONS:
        return faults.assignment_in_expression(here)
    if ":" in accepted and tokens[0].kind in _HEADERS and not opened:
        if token.kind == "{":
            instead = "end the line with ':' and indent the block"
            return faults.not_in_language(here, "a block in braces is", instead)
        if token.kind == END or "NAME" not in accepted:
            previous = tokens[at.index - 1]
            return faults.missing_colon(
                span(previous.end, previous.end), f"this '{tokens[0].text}'"
            )
    return _unexpected(tokens, at, accepted, opened, span)


def _number_fault(tokens: list[Token], index: int, span: SpanOf) -> Diagnostic | None:
    """A word that is glued to the number in front of the token (``1if``), or its unit behind a
    blank (``3 KiB``)."""
    before, token = tokens[index - 1] if index else None, tokens[index]
    if before is None or before.kind != "NUMBER":
        return None
    value = literals.number(before.text)
    if isinstance(value, literals.Fault):
        return faults.malformed_number(span(before.start, before.end), before.text, value.help)
    if token.text in literals.UNITS:
        written = f"{before.text} {token.text}"
        value = literals.number(before.text + token.text)
        if isinstance(value, literals.Fault):
            return faults.malformed_number(span(before.start, token.end), written, value.help)
    return None


def _opens_later(line: Line, token: Token) -> bool:
    return line.unclosed is not None and line.unclosed.start > token.start


def _open_brackets(tokens: list[Token], end: int) -> list[Token]:
    opened: list[Token] = []
    for token in tokens[:end]:
        if token.kind in OPENERS:
            opened.append(token)
        elif token.kind in CLOSERS and opened:
            opened.pop()
    return opened


def _closer_fault(token: Token, opened: list[Token], here: Span, span: SpanOf) -> Diagnostic | None:
    if not opened:
        return faults.unmatched_closer(here, token.text, None)
    last = opened[-1]
    closer = OPENERS[last.kind]
    if closer == token.kind:
        return None
    return faults.unmatched_closer(
        here, token.text, (span(last.start, last.end), last.text, closer)
    )


def _unexpected(
    tokens: list[Token], at: Stuck, accepted: set[str], opened: list[Token], span: SpanOf
) -> Diagnostic:
    token = tokens[at.index]
    closer = OPENERS[opened[-1].kind] if opened else ""
    expected = _expected(accepted, closer, tokens[0].kind)
    found = "the end of the line" if token.kind == END else f"'{_shown(token)}'"
    where = span(token.start, token.end)
    helps: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    if closer and "," in accepted and token.kind in _OPERANDS:
        place = span(tokens[at.index - 1].end, tokens[at.index - 1].end)
        helps = ("separate the parts with ','",)
        fixes = (Fix("add ','", (Edit(place, ","),), "unsafe"),)
    elif at.index == 1 and tokens[0].text == "print" and token.kind in _OPERANDS:
        helps = ("print is a function: print(x)",)
    elif tokens[0].kind == "@" and any(t.text == "where" for t in tokens[: at.index]):
        helps = ("conditions stand behind the parameters: 'def f(x: f32[n]) where n > 0:'",)
    elif at.index and token.kind == "NAME" and tokens[at.index - 1].kind == "NAME" and not opened:
        helps = ("one statement stands on a line; separate two with ';'",)
    return faults.unexpected_token(where, expected, found, helps, fixes)


def _expected(accepted: set[str], closer: str, first: str) -> str:
    """The accepted tokens in plain words."""
    if "pass" in accepted:
        return "a statement"
    choices: list[str] = []
    if {"NAME", "(", "NUMBER"} <= accepted:
        choices.append("an expression")
    elif "NAME" in accepted and "None" in accepted:
        choices.append("a type")
    elif "NAME" in accepted:
        choices.append("a name")
    if closer and "," in accepted:
        choices.append("','")
    for kind in (closer, "else", ":", "in", "import", "->"):
        # ':' may open an annotation and 'in' may compare: not what is missed most.
        common = kind == ":" and first not in _HEADERS and END in accepted
        if kind and kind in accepted and not common and not (kind == "in" and "==" in accepted):
            choices.append(f"'{kind}'")
    if END in accepted:
        choices.append("the end of the line")
    if "(" in accepted and not choices:
        choices.append("'('")
    if not choices:
        choices = [_WORDS.get(kind, f"'{kind}'") for kind in sorted(accepted)[:3]]
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _shown(token: Token) -> str:
    text = token.text.split("\n")[0]
    return text if len(text) <= 30 else f"{text[:27]}..."


def repair(machine: Machine, tokens: list[Token], at: Stuck) -> Any:
    """Reads on after putting in what is missing; None if that takes too much.

    A name put in has an empty text, of which the actions make an ``ErrorExpr``.
    """
    line = tokens
    if len(tokens) - at.index > MAX_REPAIRED_TOKENS:
        return None
    for _ in range(MAX_REPAIRS):
        best: tuple[Stuck, list[Token]] | None = None
        for kind in _SINGLE:
            if not machine.accepts(at.states, kind):
                continue
            if kind == ":" and tokens[0].kind not in _HEADERS:
                continue
            if kind == "," and not _open_brackets(line, at.index):
                continue
            here = line[at.index].start if line[at.index].kind != END else at.end
            text = "" if kind == "NAME" else kind
            tried = [*line[: at.index], Token(kind, text, here, here), *line[at.index :]]
            copy = Stuck(list(at.states), list(at.values), list(at.starts), at.index, at.end)
            done, value = machine.run(tried, copy)
            if done:
                return value
            reached = best[0].index if best else at.index
            at_end = line[at.index].kind == END and best is None
            if copy.index > max(reached, at.index + 1) or at_end and copy.index > at.index:
                best = (copy, tried)
        if best is None:
            return None
        at, line = best
    return None


def lost(
    line: Line, tokens: list[Token], span: SpanOf, opens_block: bool
) -> semantic_values.ParsedLine:
    """Stands for a line that cannot be read; a header keeps the block below it."""
    names = tuple(
        ast.Name(span(t.start, t.end), t.text) for t in tokens if t.kind == "NAME" and t.text
    )
    where = span(line.start, line.end)
    error = ast.ErrorExpr(where)
    word = tokens[0].kind
    header: Any = None
    match word:
        case "if" | "elif":
            header = semantic_values.BranchHeader(where, word, error)
        case "else":
            header = semantic_values.BranchHeader(where, "else", None)
        case "while":
            header = semantic_values.WhileHeader(where, error)
        case "for":
            header = semantic_values.ForHeader(where, error, error)
        case "with":
            header = semantic_values.WithHeader(where, error, None)
        case "@":
            return semantic_values.DecoratorLine(ast.Decorator(where, error))
        case _:
            header = semantic_values.LostHeader(where, names)
    if opens_block or word == "def":
        return semantic_values.HeaderLine(header, span(line.end, line.end), None)
    return semantic_values.SimpleLine((ast.ErrorStmt(where, names),))
