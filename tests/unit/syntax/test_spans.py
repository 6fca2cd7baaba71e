"""Every node knows its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from tessera_lang.source import SourceFile, Span
from tessera_lang.syntax import ast, parse_expression, parse_module

PROGRAM = '''\
# a comment
@kernel tile[(128,)] shared(16_KiB)
def sum_reduce(x: f32[n], out: mut f32[grid_groups]) -> f32[n] where n > 0:
    """Sums."""
    acc: f32 = 0.0
    for k in range(i, n, group_tile_count()):
        acc += (x[k]) * (2 + y)
    if i < s: smem[i] += smem[i + s]
    elif a.b(c, d=1)[::2]:
        pass
    else:
        print(f"a{acc:3}")

import std.reduce as r
from m.n import p as q
'''


def walk(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from walk(item)
    elif is_dataclass(value) and not isinstance(value, Span):
        yield value
        for field in fields(value):
            yield from walk(getattr(value, field.name))


def text_of(text: str, span: Span) -> str:
    return text[span.lo : span.hi]


def test_names_and_operators_are_where_they_stand() -> None:
    module = parse_module(SourceFile("m", PROGRAM)).module
    for node in walk(module.body):
        match node:
            case ast.Name():
                assert text_of(PROGRAM, node.span) == node.id
            case ast.Binary() | ast.AugmentedAssign():
                assert text_of(PROGRAM, node.operator_span).removesuffix("=") == node.operator
            case ast.Attribute() | ast.Keyword() | ast.Parameter() | ast.FunctionDef():
                assert text_of(PROGRAM, node.name_span) == node.name
            case ast.FromImport():
                assert text_of(PROGRAM, node.module_span) == node.module
            case _:
                pass


def test_children_lie_inside_their_parents() -> None:
    module = parse_module(SourceFile("m", PROGRAM)).module
    for node in walk(module.body):
        for child in walk(tuple(getattr(node, f.name) for f in fields(node))):
            assert node.span.lo <= child.span.lo <= child.span.hi <= node.span.hi


def test_spans_cover_whole_constructs() -> None:
    module = parse_module(SourceFile("m", PROGRAM)).module
    function = module.functions[0]
    assert text_of(PROGRAM, function.span).startswith("@kernel")
    assert text_of(PROGRAM, function.span).endswith('print(f"a{acc:3}")')
    assert text_of(PROGRAM, function.signature_span) == PROGRAM.splitlines()[2]
    assert text_of(PROGRAM, function.decorators[0].span) == PROGRAM.splitlines()[1]
    clause = function.decorators[0].clauses[1]
    assert text_of(PROGRAM, clause.span) == "shared(16_KiB)"
    annotation = function.parameters[1].annotation
    assert annotation is not None
    assert text_of(PROGRAM, annotation.span) == "mut f32[grid_groups]"
    loop = function.body[2]
    assert isinstance(loop, ast.For)
    update = loop.body[0]
    assert isinstance(update, ast.AugmentedAssign)
    assert text_of(PROGRAM, update.value.span) == "(x[k]) * (2 + y)"
    branch = function.body[3]
    assert isinstance(branch, ast.If)
    assert text_of(PROGRAM, branch.orelse[0].span).startswith("elif a.b")
    imported = module.body[1]
    assert isinstance(imported, ast.Import)
    assert text_of(PROGRAM, imported.names[0].span) == "std.reduce as r"


@pytest.mark.parametrize(
    ("text", "part", "kind"),
    [
        ("(a + b) * c", "(a + b) * c", ast.Binary),
        ("f(x)[1:2]", "1:2", ast.SliceExpr),
        ("f(a, k=(1))", "k=(1)", ast.Keyword),
        ("a if (b) else c", "a if (b) else c", ast.Conditional),
        ("not a", "not a", ast.Unary),
        ("'a' 'b'", "'a' 'b'", ast.StringLit),
        ("f'é{ x + 1 :3}'", "x + 1", ast.Binary),
        ("f'é{ x + 1 :3}'", "{ x + 1 :3}", ast.FormattedValue),
        ("1, 2", "1, 2", ast.TupleExpr),
        ("(1, 2)", "(1, 2)", ast.TupleExpr),
    ],
)
def test_expression_spans(text: str, part: str, kind: type[Any]) -> None:
    value, _ = parse_expression(text)
    found = [text_of(text, node.span) for node in walk(value) if isinstance(node, kind)]
    assert part in found


def test_places_in_a_line_with_astral_characters() -> None:
    text = "# 😋😋\nx = '😋' + yy\n"
    module = parse_module(SourceFile("m", text)).module
    names = [n for n in walk(module.body) if isinstance(n, ast.Name)]
    assert [text_of(text, n.span) for n in names] == ["x", "yy"]
