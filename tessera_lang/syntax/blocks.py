"""Lines to blocks: nests the statements of parsed lines by their indentation.

Owns indentation levels, ``if`` chains and decorators. Must not know tokens or the grammar.
"""

from __future__ import annotations

from typing import assert_never

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.record import dataclass, field
from tessera_lang.source import Span
from tessera_lang.syntax import ast, faults, semantic_values

BLOCK_LIMIT = 200


@dataclass(slots=True)
class _Branch:
    header: semantic_values.BranchHeader
    body: tuple[ast.Stmt, ...]
    end: Span


@dataclass(slots=True)
class _Frame:
    """One open block. ``indent`` is None until its first line is seen."""

    header: semantic_values.HeaderLine | None
    outer: int
    indent: int | None = None
    tolerated: int | None = None
    opened: Span | None = None
    statements: list[ast.Stmt] = field(default_factory=list[ast.Stmt])
    branches: list[_Branch] = field(default_factory=list[_Branch])
    decorators: list[ast.Decorator] = field(default_factory=list[ast.Decorator])
    pending: tuple[ast.Decorator, ...] = ()
    full: bool = False


class Blocks:
    """Takes lines in order; ``finish`` gives the statements of the outermost block."""

    def __init__(self, indent: int, diagnostics: list[Diagnostic]) -> None:
        self._frames = [_Frame(None, -1, indent)]
        self._diagnostics = diagnostics
        self._too_deep: int | None = None

    def skips(self, indent: int) -> bool:
        """Whether a line lies in a block that is nested too deep, and is left out."""
        if self._too_deep is not None and indent > self._too_deep:
            return True
        self._too_deep = None
        return False

    def place(self, indent: int, margin: Span, first: Span) -> None:
        """Opens and closes blocks for a line indented so; ``margin`` is its white space."""
        top = self._frames[-1]
        if top.indent is None:
            if indent > top.outer:
                top.indent = indent
                top.opened = first
                return
            self._close()
            top = self._frames[-1]
        while len(self._frames) > 1 and top.indent is not None and indent < top.indent:
            if indent == top.tolerated:
                return
            outer = self._frames[-2]
            if indent > (outer.indent or 0) and indent != outer.tolerated:
                self._wrong_dedent(top, indent, margin)
                return
            self._close()
            top = self._frames[-1]
        if indent == top.indent:
            top.tolerated = None
        elif indent != top.tolerated:
            top.tolerated = indent
            self._diagnostics.append(faults.unexpected_indent(margin, top.indent or 0))

    def _wrong_dedent(self, top: _Frame, indent: int, margin: Span) -> None:
        """Reports a line between two levels, and reads it as part of the inner block."""
        levels = tuple(frame.indent for frame in self._frames if frame.indent is not None)
        fault = faults.wrong_dedent(margin, indent, levels, top.opened or margin)
        self._diagnostics.append(fault)
        top.tolerated = indent

    def add(self, line: semantic_values.ParsedLine, indent: int) -> None:
        """Takes a line that ``place`` found the block of."""
        top = self._frames[-1]
        match line:
            case semantic_values.DecoratorLine():
                self._end_branches(top)
                top.decorators.append(line.decorator)
            case semantic_values.SimpleLine():
                if isinstance(line.statements[0], ast.ErrorStmt):
                    # What the decorators belong to is reported already.
                    top.decorators.clear()
                self._settle(top)
                top.statements.extend(line.statements)
            case semantic_values.HeaderLine():
                self._open(top, line, indent)
            case _:
                assert_never(line)

    def _open(self, top: _Frame, line: semantic_values.HeaderLine, indent: int) -> None:
        header = line.header
        frame = _Frame(line, indent)
        if isinstance(header, semantic_values.DefHeader | semantic_values.LostHeader):
            self._end_branches(top)
            frame.pending = tuple(top.decorators)
            top.decorators.clear()
        elif isinstance(header, semantic_values.BranchHeader) and header.keyword != "if":
            self._continue_branches(top, header)
        else:
            self._settle(top)
        if line.suite is not None:
            frame.statements.extend(line.suite)
            self._attach(frame, line.suite[-1].span if line.suite else line.end)
            return
        if len(self._frames) > BLOCK_LIMIT:
            self._diagnostics.append(faults.nested_too_deep(header.span, BLOCK_LIMIT))
            self._too_deep = indent
            frame.statements.append(ast.ErrorStmt(header.span))
            self._attach(frame, line.end)
            return
        self._frames.append(frame)

    def _continue_branches(self, top: _Frame, header: semantic_values.BranchHeader) -> None:
        """Checks that an ``elif`` or ``else`` has an ``if`` to go on from."""
        branches = top.branches
        if branches and branches[-1].header.keyword != "else":
            if len(branches) >= BLOCK_LIMIT and not top.full:
                top.full = True
                self._diagnostics.append(faults.too_many_branches(header.span, BLOCK_LIMIT))
            return
        word = header.keyword
        previous = top.statements[-1] if top.statements and not branches else None
        if isinstance(previous, ast.For | ast.While):
            loop = "for" if isinstance(previous, ast.For) else "while"
            instead = "set a variable in the loop and test it behind the loop"
            what = f"'else' behind a '{loop}' loop is"
            self._diagnostics.append(faults.not_in_language(header.span, what, instead))
        elif not isinstance(previous, ast.ErrorStmt):
            message = f"'{word}' has no 'if' before it"
            if branches:
                message = f"'{word}' cannot follow 'else'"
            help_text = f"'{word}' stands at the indentation of the 'if' it belongs to"
            self._diagnostics.append(faults.misplaced(header.span, message, help_text))
        self._end_branches(top)

    def _settle(self, top: _Frame) -> None:
        """Ends what only certain lines may follow."""
        self._end_branches(top)
        if top.decorators:
            message = "a decorator stands above a function"
            help_text = "put a 'def' on the line below it"
            fault = faults.misplaced(top.decorators[-1].span, message, help_text)
            self._diagnostics.append(fault)
            top.statements.append(ast.ErrorStmt(top.decorators[0].span))
            top.decorators.clear()

    def _close(self) -> None:
        """Closes the innermost block and gives its statement to the block around it."""
        frame = self._frames.pop()
        self._settle(frame)
        line = frame.header
        assert line is not None
        if not frame.statements:
            if not isinstance(line.header, semantic_values.LostHeader):
                word = _word(line.header)
                self._diagnostics.append(faults.missing_block(line.end, f"this '{word}'"))
            frame.statements.append(ast.ErrorStmt(line.end))
        self._attach(frame, frame.statements[-1].span)

    def _attach(self, frame: _Frame, end: Span) -> None:
        top = self._frames[-1]
        line = frame.header
        assert line is not None
        header = line.header
        body = tuple(frame.statements)
        span = header.span.to(end)
        match header:
            case semantic_values.BranchHeader():
                if len(top.branches) < BLOCK_LIMIT:
                    top.branches.append(_Branch(header, body, end))
            case semantic_values.WhileHeader():
                top.statements.append(ast.While(span, header.test, body))
            case semantic_values.ForHeader():
                top.statements.append(ast.For(span, header.target, header.iterable, body))
            case semantic_values.WithHeader():
                top.statements.append(ast.With(span, header.context, header.target, body))
            case semantic_values.DefHeader():
                top.statements.append(self._function(frame, header, line.end, end))
            case semantic_values.LostHeader():
                names = (*header.names, *_declared(body))
                top.statements.append(ast.ErrorStmt(span, names))
            case _:
                assert_never(header)

    def _function(
        self, frame: _Frame, header: semantic_values.DefHeader, colon: Span, end: Span
    ) -> ast.FunctionDef:
        start = frame.pending[0].span if frame.pending else header.span
        body = tuple(frame.statements)
        return ast.FunctionDef(
            start.to(end),
            header.name.text,
            header.name_span,
            header.span.to(colon),
            frame.pending,
            header.brackets,
            header.parameters,
            header.returns,
            header.where,
            body,
            docstring(body),
        )

    def _end_branches(self, top: _Frame) -> None:
        """Turns the branches seen so far into one ``If``, nested at its ``elif``s."""
        if not top.branches:
            return
        orelse: tuple[ast.Stmt, ...] = ()
        end = top.branches[-1].end
        for branch in reversed(top.branches):
            header = branch.header
            if header.keyword == "else" and branch is not top.branches[0]:
                orelse = branch.body
                continue
            test = header.test or ast.ErrorExpr(header.span)
            orelse = (ast.If(header.span.to(end), test, branch.body, orelse),)
        top.branches.clear()
        top.full = False
        top.statements.extend(orelse)

    def finish(self) -> tuple[ast.Stmt, ...]:
        while len(self._frames) > 1:
            self._close()
        self._settle(self._frames[0])
        return tuple(self._frames[0].statements)


def docstring(body: tuple[ast.Stmt, ...]) -> str | None:
    """The text of a leading string statement."""
    if body and isinstance(body[0], ast.ExprStmt) and isinstance(body[0].value, ast.StringLit):
        return body[0].value.value
    return None


def _declared(body: tuple[ast.Stmt, ...]) -> list[ast.Name]:
    """Names that the statements of a lost block would have given a meaning."""
    names: list[ast.Name] = []
    for statement in body:
        match statement:
            case ast.Assign(target=ast.Name() as name):
                names.append(name)
            case ast.FunctionDef():
                names.append(ast.Name(statement.name_span, statement.name))
            case ast.ErrorStmt():
                names.extend(statement.names)
            case _:
                pass
    return names


def _word(header: semantic_values.Header) -> str:
    match header:
        case semantic_values.BranchHeader():
            return header.keyword
        case semantic_values.WhileHeader():
            return "while"
        case semantic_values.ForHeader():
            return "for"
        case semantic_values.WithHeader():
            return "with"
        case semantic_values.DefHeader() | semantic_values.LostHeader():
            return "def"
        case _:
            assert_never(header)
