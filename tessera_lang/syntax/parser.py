"""Text to syntax trees: files by chunks, and single expressions.

Owns the way through the package: splitting, layout, the machine, blocks. Must not know
names or types. A parse never fails: what cannot be read is reported and stands in the tree
as ``ErrorExpr`` or ``ErrorStmt``.
"""

from __future__ import annotations

import re

from tessera_grammar.keywords import UNSUPPORTED_WORDS

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.record import dataclass, field
from tessera_lang.source import Anchor, SourceFile
from tessera_lang.syntax import ast, faults, semantic_values
from tessera_lang.syntax.blocks import Blocks, docstring
from tessera_lang.syntax.depth import too_deep
from tessera_lang.syntax.lalr_driver import END, Machine
from tessera_lang.syntax.layout import NESTING_LIMIT, Layout, Line
from tessera_lang.syntax.lexer import Token
from tessera_lang.syntax.limits import check_size, reordered
from tessera_lang.syntax.meant import meant
from tessera_lang.syntax.recovery import diagnose, lost, repair
from tessera_lang.syntax.splitting import SegmentCache, split
from tessera_lang.syntax.statements import Actions

MAX_DIAGNOSTICS = 100

_LONE_RETURN = re.compile(r"\r(?!\n)")


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A statement in column 0 with all that belongs to it, parsed by itself.

    ``text`` decides everything in it; ``anchor.offset`` is where it stands now.
    """

    text: str
    anchor: Anchor
    body: tuple[ast.Stmt, ...]
    diagnostics: tuple[Diagnostic, ...]


@dataclass(slots=True)
class ParseCache:
    """The chunks of the last parse of one file; the next parse takes over what it can."""

    path: str = ""
    chunks: dict[str, list[Chunk]] = field(default_factory=dict[str, list[Chunk]])
    segments: SegmentCache = field(default_factory=SegmentCache)


@dataclass(frozen=True, slots=True, eq=False)
class ParsedModule:
    """``reused`` counts the chunks that were taken from the cache."""

    module: ast.Module
    diagnostics: tuple[Diagnostic, ...]
    chunks: tuple[Chunk, ...]
    reused: int = 0


class _Parser:
    """The machine and its actions over one text, set to a chunk at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.actions = Actions()
        self.actions.read_expression = self.inner_expression
        self.machine = Machine(self.actions)

    def chunk(self, start: int, end: int, path: str) -> Chunk:
        text = self.text
        anchor = Anchor(path, start)
        diagnostics: list[Diagnostic] = []
        self.actions.at(anchor, diagnostics)
        layout = Layout(text, start, end, anchor)
        lines = layout.read()
        diagnostics.extend(layout.diagnostics)
        blocks = Blocks(0, diagnostics)
        foreign: tuple[int, str] | None = None
        for i, line in enumerate(lines):
            if blocks.skips(line.indent):
                continue
            word = line.tokens[0].text
            if foreign is not None:
                # A construct of another language was reported with its first line.
                inside = line.indent > foreign[0]
                goes_on = line.indent == foreign[0] and foreign[1] == "try"
                if inside or (goes_on and word in ("except", "finally", "else")):
                    line.faulty = True
                else:
                    foreign = None
            first = layout.span(line.start, line.start + 1)
            blocks.place(line.indent, layout.span(line.margin, line.start), first)
            opens = i + 1 < len(lines) and lines[i + 1].indent > line.indent
            parsed = self.line(line, opens)
            if foreign is None and opens and _is_lost(parsed) and word in UNSUPPORTED_WORDS:
                foreign = (line.indent, word)
            blocks.add(parsed, line.indent)
            if len(diagnostics) > MAX_DIAGNOSTICS:
                break
        body = blocks.finish()
        diagnostics.sort(key=lambda d: d.span.start if d.span else 0)
        return Chunk(text[start:end], anchor, body, tuple(diagnostics))

    def line(self, line: Line, opens_block: bool) -> semantic_values.ParsedLine:
        """Parses one logical line; a damaged one adds exactly one diagnostic."""
        diagnostics = self.actions.diagnostics
        span = self.actions.span
        before = len(diagnostics)
        tokens = [*line.tokens, Token(END, "", line.end, line.end)]
        if line.deep:
            return lost(line, tokens, span, opens_block)
        at = self.machine.begin("line")
        done, value = self.machine.run(tokens, at)
        if not done:
            if not line.faulty:
                fault = diagnose(self.machine, line, tokens, at, span)
                del diagnostics[before:]
                diagnostics.append(fault)
                before += 1
            value = None
            line_meant = meant(tokens)
            if line_meant is not None:
                done, value = self.machine.run(line_meant.tokens, self.machine.begin("line"))
            if not done and tokens[0].text not in UNSUPPORTED_WORDS:
                value = repair(self.machine, tokens, at)
            if value is None or (opens_block and isinstance(value, semantic_values.SimpleLine)):
                value = lost(line, tokens, span, opens_block)
            del diagnostics[before:]
        elif line.faulty:
            del diagnostics[before:]
        if len(tokens) > NESTING_LIMIT:
            deep = too_deep(value, NESTING_LIMIT)
            if deep is not None:
                del diagnostics[before:]
                diagnostics.append(faults.nested_too_deep(deep, NESTING_LIMIT))
                return lost(line, tokens, span, opens_block)
        return value

    def inner_expression(self, start: int, end: int) -> ast.Expr:
        """An expression inside an f-string of the text that is being parsed."""
        actions = self.actions
        layout = Layout(self.text, start, end, actions.anchor, joined=True)
        lines = layout.read()
        actions.diagnostics.extend(layout.diagnostics)
        line = lines[0] if lines else Line(0, start)
        return self.expression(line, Token(END, "", end, end))

    def expression(self, line: Line, last: Token) -> ast.Expr:
        actions, machine = self.actions, self.machine
        tokens = [*line.tokens, last]
        whole = actions.span(tokens[0].start, last.end)
        if line.deep:
            return ast.ErrorExpr(whole)
        before = len(actions.diagnostics)
        at = machine.begin("tests")
        done, value = machine.run(tokens, at)
        if not done:
            fault = diagnose(machine, line, tokens, at, actions.span)
            del actions.diagnostics[before:]
            if not line.faulty:
                actions.diagnostics.append(fault)
                before += 1
            value = repair(machine, tokens, at) or ast.ErrorExpr(whole)
            del actions.diagnostics[before:]
        deep = too_deep(value, NESTING_LIMIT) if len(tokens) > NESTING_LIMIT else None
        if deep is not None:
            actions.diagnostics.append(faults.nested_too_deep(deep, NESTING_LIMIT))
            return ast.ErrorExpr(whole)
        return value


def _is_lost(line: semantic_values.ParsedLine) -> bool:
    return isinstance(line, semantic_values.HeaderLine) and isinstance(
        line.header, semantic_values.LostHeader
    )


def parse_expression(
    text: str, file: str = "<expression>"
) -> tuple[ast.Expr | None, tuple[Diagnostic, ...]]:
    """Parses one expression, which may be a tuple without parentheses; lines are joined.

    Returns None with diagnostics where the text is not an expression. ``file`` is the name
    that its spans carry.
    """
    source = SourceFile(file, text)
    refused = check_size(source)
    if refused is not None:
        return None, (refused,)
    parser = _Parser(_LONE_RETURN.sub("\n", text))
    diagnostics: list[Diagnostic] = []
    parser.actions.at(Anchor(file), diagnostics)
    value = parser.inner_expression(0, len(text))
    return (None if diagnostics else value), tuple(diagnostics)


def parse_module(file: SourceFile, cache: ParseCache | None = None) -> ParsedModule:
    """Parses a file. With a ``cache`` only chunks whose text is new are parsed.

    Chunks taken from the cache keep their nodes; their anchors move to the new place.
    What stands behind ``MAX_DIAGNOSTICS`` faults is not read.
    """
    refused = check_size(file)
    if refused is not None:
        return ParsedModule(ast.Module(file.path, ()), (refused,), ())
    text = _LONE_RETURN.sub("\n", file.text) if "\r" in file.text else file.text
    cache = cache or ParseCache()
    old = cache.chunks if cache.path == file.path else {}
    new: dict[str, list[Chunk]] = {}
    chunks: list[Chunk] = []
    reused = faulty = 0
    parser = _Parser(text)
    for start, end in split(text, cache.segments):
        key = text[start:end].rstrip(" \t\r\n\f")
        known = old.get(key)
        if known:
            chunk = known.pop()
            chunk.anchor.offset = start
            reused += 1
        else:
            chunk = parser.chunk(start, start + len(key), file.path)
        new.setdefault(key, []).append(chunk)
        chunks.append(chunk)
        faulty += len(chunk.diagnostics)
        if faulty > MAX_DIAGNOSTICS:
            break
    cache.path, cache.chunks = file.path, new
    body = tuple(statement for chunk in chunks for statement in chunk.body)
    found = [diagnostic for chunk in chunks for diagnostic in chunk.diagnostics]
    places = {d.span.lo for d in found if d.span}
    found += [d for d in reordered(file.path, text) if d.span and d.span.lo not in places]
    if len(found) > MAX_DIAGNOSTICS:
        last = found[MAX_DIAGNOSTICS - 1].span
        found[MAX_DIAGNOSTICS:] = [faults.too_many_errors(last, MAX_DIAGNOSTICS)]
    module = ast.Module(file.path, body, docstring(body))
    return ParsedModule(module, tuple(found), tuple(chunks), reused)
