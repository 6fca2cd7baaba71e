"""The printed form of the tree, for ``emit --stage=ast``.

Owns the format: one statement a line, blocks indented, offsets behind it; expressions in
source form with every operator in parentheses. Must not know how trees are made. Walks with
a stack of its own, since a chain of operators may be thousands of nodes long.
"""

from __future__ import annotations

from typing import assert_never

from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.literals import UNITS

_Piece = ast.Expr | str


def dump(module: ast.Module) -> str:
    """The tree of a module as text; the same for the same source."""
    lines = [f"module {module.path}"]
    waiting: list[tuple[int, ast.Stmt | str]] = [(1, s) for s in reversed(module.body)]
    while waiting:
        depth, part = waiting.pop()
        pad = "  " * depth
        if isinstance(part, str):
            lines.append(pad + part)
            continue
        head, blocks = _statement(part)
        lines.extend(pad + line for line in head[:-1])
        lines.append(f"{pad}{head[-1]}  {_place(part.span)}")
        for title, body in reversed(blocks):
            waiting.extend((depth + 1, s) for s in reversed(body))
            if title:
                waiting.append((depth, title))
    return "\n".join(lines) + "\n"


def _place(span: Span) -> str:
    return f"[{span.lo}:{span.hi}]"


_Blocks = list[tuple[str, tuple[ast.Stmt, ...]]]


def _statement(s: ast.Stmt) -> tuple[list[str], _Blocks]:
    """The lines of a statement, and its blocks with the line that stands above each."""
    match s:
        case ast.If():
            blocks: _Blocks = [("", s.body)]
            if s.orelse:
                blocks.append(("else", s.orelse))
            return [f"if {source_text(s.test)}"], blocks
        case ast.For():
            target = source_text(s.target)
            return [f"for {target} in {source_text(s.iterable)}"], [("", s.body)]
        case ast.While():
            return [f"while {source_text(s.test)}"], [("", s.body)]
        case ast.With():
            target = f" as {source_text(s.target)}" if s.target else ""
            return [f"with {source_text(s.context)}{target}"], [("", s.body)]
        case ast.FunctionDef():
            return _function(s), [("", s.body)]
        case _:
            return [_simple(s)], []


def _simple(
    s: ast.ExprStmt | ast.Assign | ast.AnnotatedAssign | ast.AugmentedAssign | ast.Break
    | ast.Continue | ast.Pass | ast.Return | ast.Assert | ast.Import | ast.FromImport
    | ast.ErrorStmt,
) -> str:  # fmt: skip
    match s:
        case ast.ExprStmt():
            return f"expression {source_text(s.value)}"
        case ast.Assign():
            return f"assign {source_text(s.target)} = {source_text(s.value)}"
        case ast.AnnotatedAssign():
            value = f" = {source_text(s.value)}" if s.value else ""
            return f"declare {source_text(s.target)}: {type_text(s.annotation)}{value}"
        case ast.AugmentedAssign():
            return f"update {source_text(s.target)} {s.operator}= {source_text(s.value)}"
        case ast.Break():
            return "break"
        case ast.Continue():
            return "continue"
        case ast.Pass():
            return "pass"
        case ast.Return():
            return f"return {source_text(s.value)}" if s.value else "return"
        case ast.Assert():
            message = f", {source_text(s.message)}" if s.message else ""
            return f"assert {source_text(s.test)}{message}"
        case ast.Import():
            return f"import {_imported(s.names)}"
        case ast.FromImport():
            return f"from {s.module} import {_imported(s.names)}"
        case ast.ErrorStmt():
            names = " ".join(name.id for name in s.names)
            return f"error {names}".rstrip()
        case _:
            assert_never(s)


def _imported(names: tuple[ast.ImportedName, ...]) -> str:
    return ", ".join(f"{n.name} as {n.alias}" if n.alias else n.name for n in names)


def _function(s: ast.FunctionDef) -> list[str]:
    lines: list[str] = []
    for decorator in s.decorators:
        clauses = ""
        for clause in decorator.clauses:
            closer = "]" if clause.bracket == "[" else ")"
            arguments = ", ".join(source_text(a) for a in clause.arguments)
            clauses += f" {clause.name}{clause.bracket}{arguments}{closer}"
        lines.append(f"@{source_text(decorator.value)}{clauses}")
    brackets = f"[{_parameters(s.brackets)}]" if s.brackets else ""
    returns = f" -> {type_text(s.returns)}" if s.returns else ""
    where = f" where {', '.join(source_text(w) for w in s.where)}" if s.where else ""
    lines.append(f"def {s.name}{brackets}({_parameters(s.parameters)}){returns}{where}")
    return lines


def _parameters(parameters: tuple[ast.Parameter, ...]) -> str:
    return ", ".join(_parameter(p) for p in parameters)


def _parameter(p: ast.Parameter) -> str:
    annotation = f": {type_text(p.annotation)}" if p.annotation else ""
    return f"{p.name}{annotation}{f' = {source_text(p.default)}' if p.default else ''}"


def type_text(t: ast.TypeExpr) -> str:
    """A type as it is written."""
    if t.items:
        return f"({', '.join(map(type_text, t.items))})"
    qualifier = f"{t.qualifier} " if t.qualifier else ""
    shape = "" if t.shape is None else f"[{', '.join(source_text(e) for e in t.shape)}]"
    return f"{qualifier}{source_text(t.base)}{shape}"


def source_text(expression: ast.Expr) -> str:
    """An expression in source form, with parentheses around every operator."""
    out: list[str] = []
    waiting: list[_Piece] = [expression]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            out.append(piece)
        else:
            waiting.extend(reversed(_pieces(piece)))
    return "".join(out)


def _joined(items: tuple[ast.Expr, ...]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for item in items:
        pieces += [", ", item] if pieces else [item]
    return pieces


def _pieces(e: ast.Expr) -> list[_Piece]:
    match e:
        case ast.Unary():
            space = " " if e.operator == "not" else ""
            return [f"({e.operator}{space}", e.operand, ")"]
        case ast.Binary():
            return ["(", e.left, f" {e.operator} ", e.right, ")"]
        case ast.BoolOp():
            pieces: list[_Piece] = ["(", e.values[0]]
            for value in e.values[1:]:
                pieces += [f" {e.operator} ", value]
            return [*pieces, ")"]
        case ast.Compare():
            pieces = ["(", e.first]
            for operator, value in zip(e.operators, e.rest, strict=True):
                pieces += [f" {operator} ", value]
            return [*pieces, ")"]
        case ast.Conditional():
            return ["(", e.then, " if ", e.test, " else ", e.orelse, ")"]
        case ast.Lambda():
            names = _parameters(e.parameters)
            return [f"(lambda{' ' if names else ''}{names}: ", e.body, ")"]
        case ast.Call():
            pieces = [e.function, "(", *_joined(e.arguments)]
            for i, keyword in enumerate(e.keywords):
                pieces += [", " if i or e.arguments else "", f"{keyword.name}=", keyword.value]
            return [*pieces, ")"]
        case ast.Attribute():
            return [e.value, f".{e.name}"]
        case ast.Subscript():
            return [e.value, "[", *(_joined(e.items) if e.items else ["()"]), "]"]
        case ast.SliceExpr():
            pieces = [e.lower or "", ":", e.upper or ""]
            return [*pieces, ":", e.step] if e.step else pieces
        case ast.ErrorExpr():
            return ["<error ", e.inner, ">"] if e.inner else ["<error>"]
        case _:
            return _literal_pieces(e)


def _literal_pieces(
    e: ast.Name | ast.IntLit | ast.FloatLit | ast.StringLit | ast.FString | ast.BoolLit
    | ast.NoneLit | ast.TupleExpr | ast.ListExpr | ast.DictExpr | ast.Comprehension,
) -> list[_Piece]:  # fmt: skip
    match e:
        case ast.Name():
            return [e.id]
        case ast.IntLit():
            return [_integer(e)]
        case ast.FloatLit():
            return [repr(e.value)]
        case ast.StringLit():
            return [repr(e.value)]
        case ast.FString():
            return ["f(", *_formatted(e), ")"]
        case ast.BoolLit():
            return [str(e.value)]
        case ast.NoneLit():
            return ["None"]
        case ast.TupleExpr():
            return ["(", *_joined(e.items), ",)" if len(e.items) == 1 else ")"]
        case ast.ListExpr():
            return ["[", *_joined(e.items), "]"]
        case ast.DictExpr():
            pieces: list[_Piece] = []
            for key, value in zip(e.keys, e.values, strict=True):
                pieces += [", " if pieces else "{", key, ": ", value]
            return [*pieces, "}"] if pieces else ["{}"]
        case ast.Comprehension():
            rounds, inner = [e], e.element
            while rounds[-1].joined and isinstance(inner, ast.Comprehension):
                rounds.append(inner)
                inner = inner.element
            pieces = ["[", inner]
            for one in rounds:
                pieces += [" for ", one.target, " in ", one.iterable]
                for condition in one.conditions:
                    pieces += [" if ", condition]
            return [*pieces, "]"]
        case _:
            assert_never(e)


def _integer(e: ast.IntLit) -> str:
    if e.unit is not None:
        return f"{e.value // UNITS[e.unit]}_{e.unit}"
    # The limit of Python's conversion to decimal does not hold for hexadecimal.
    return str(e.value) if e.value.bit_length() < 8000 else hex(e.value)


def _formatted(e: ast.FString) -> list[_Piece]:
    pieces: list[_Piece] = []
    for part in e.parts:
        if pieces:
            pieces.append(", ")
        if isinstance(part, str):
            pieces.append(repr(part))
        else:
            pieces += ["{", part.value, f":{part.format}}}" if part.format else "}"]
    return pieces
