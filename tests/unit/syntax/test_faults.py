"""Damaged programs: one fault for each, in its place, and the rest of the file kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera_lang.diagnostics.codes.t00 import CODES
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_expression, parse_module
from tessera_lang.syntax.dump import dump

# What is broken, the code, the text of the span, and words of the message.
BROKEN = [
    ("x = max(1, 2\n", "T0031", "(", "'(' is never closed"),
    ("def f(x):\n    y = g(1, 2\n    z = 3\n    return z\n", "T0031", "(", "never closed"),
    ("def f(x):\n    y = g(1\n    z = h(2)\n    return z\n", "T0031", "(", "never closed"),
    ("def f(x):\n    if g(x:\n        y = 1\n    return y\n", "T0031", "(", "never closed"),
    ("def f(x, y:\n    return x\n", "T0031", "(", "never closed"),
    ("def f(x):\n    y = x[1, 2\n    return y\n", "T0031", "[", "'[' is never closed"),
    ("x = {'a': 1\n", "T0031", "{", "'{' is never closed"),
    ("x = max(1, 2]\n", "T0032", "]", "']' does not close '('"),
    ("x = max(1, 2))\n", "T0032", ")", "')' closes nothing"),
    (") ( ] [ + - : :\n", "T0032", ")", "closes nothing"),
    ("x =\n", "T0030", "", "expected an expression, found the end of the line"),
    ("x = 1 +\n", "T0030", "", "expected an expression, found the end of the line"),
    ("x = * 2\n", "T0035", "*", "unpacking"),
    ("def f():\n    smem.\n    x = 1\n", "T0030", "", "expected a name"),
    ("x y\n", "T0030", "y", "expected the end of the line, found 'y'"),
    ("print x\n", "T0030", "x", "found 'x'"),
    ("x = f(a b)\n", "T0030", "b", "expected ',' or ')', found 'b'"),
    ("x = a if b\n", "T0030", "", "expected 'else'"),
    ("for i range(3):\n    x = 1\n", "T0030", "range", "expected 'in', found 'range'"),
    ("x = lambda y\n", "T0030", "", "expected ':'"),
    ("def f(x: 3):\n    pass\n", "T0030", "3", "expected a type, found '3'"),
    ("def f(x) -> :\n    pass\n", "T0030", ":", "expected a type, found ':'"),
    ("def (x):\n    return x\n", "T0030", "(", "expected a name, found '('"),
    ("import\n", "T0030", "", "expected a name"),
    ("from a\n", "T0030", "", "expected 'import'"),
    ("in = 3\n", "T0030", "in", "expected a statement, found 'in'"),
    ("@\ndef f():\n    pass\n", "T0030", "", "expected an expression"),
    ("if x > 2\n    y = 1\n", "T0033", "", "expected ':' behind this 'if'"),
    ("def f(x)\n    return x\n", "T0033", "", "behind this 'def'"),
    ("while x\n    x = 1\n", "T0033", "", "behind this 'while'"),
    ("if x:\n    y = 1\nelse\n    y = 2\n", "T0033", "", "behind this 'else'"),
    ("if x = 3:\n    y = 1\n", "T0034", "=", "cannot stand in a condition"),
    ("while f(x) = 3: y = 1\n", "T0034", "=", "cannot stand in a condition"),
    ("class A:\n    def m(self):\n        return 1\n", "T0035", "class", "'class' is not part"),
    ("try:\n    x = 1\nexcept E:\n    y = 2\nfinally:\n    z = 3\n", "T0035", "try", "'try'"),
    ("def f():\n    try:\n        x = 1\n    except E:\n        y = 2\n", "T0035", "try", "'try'"),
    ("try: x = 1\n", "T0035", "try", "'try'"),
    ("raise Foo(1)\n", "T0035", "raise", "'raise'"),
    ("def f():\n    global x\n    x = 1\n", "T0035", "global", "'global'"),
    ("def f():\n    yield 1\n", "T0035", "yield", "'yield'"),
    ("del x\n", "T0035", "del", "'del'"),
    ("match x:\n    case 1:\n        y = 2\n", "T0035", "match", "'match'"),
    ("async def f():\n    pass\n", "T0035", "async", "'async'"),
    ("@kernel\nclass A:\n    x = 1\n", "T0035", "class", "'class'"),
    ("from a import *\n", "T0035", "*", "'import *'"),
    ("from . import a\n", "T0035", ".", "a relative import"),
    ("def f(*args):\n    return 1\n", "T0035", "*", "a parameter list with '*'"),
    ("f(**x)\n", "T0035", "**", "unpacking with '**'"),
    ("if (x := 3):\n    y = 1\n", "T0035", ":=", "':='"),
    ("x = (a for a in b)\n", "T0035", "for", "a generator expression"),
    ("x = {a: 1 for a in b}\n", "T0035", "for", "a dict or set comprehension"),
    ("x = {1, 2}\n", "T0035", "{", "a set"),
    ("if x:\n    y = 1\nelse if z:\n    y = 2\n", "T0035", "else if", "'else if'"),
    ("x++\n", "T0035", "++", "'++'"),
    ("if a && b:\n    x = 1\n", "T0035", "&&", "'&&'"),
    ("if a || b:\n    x = 1\n", "T0035", "||", "'||'"),
    ("for i in r:\n    x = 1\nelse:\n    x = 2\n", "T0035", "else", "'else' behind a 'for'"),
    ("x = ...\n", "T0035", "..", "'...'"),
    ("f(x) = 1\n", "T0036", "f(x)", "cannot assign to the result of a call"),
    ("1 = x\n", "T0036", "1", "cannot assign to a number"),
    ("x + 1 = 1\n", "T0036", "x + 1", "cannot assign to the result of an operator"),
    ("a, b += 1\n", "T0036", "a, b", "cannot assign to several targets"),
    ("for f(x) in r:\n    pass\n", "T0036", "f(x)", "cannot assign"),
    ("else:\n    x = 1\n", "T0037", "else", "'else' has no 'if'"),
    (
        "if a:\n    x = 1\nelse:\n    x = 2\nelif b:\n    x = 3\n",
        "T0037",
        "elif b",
        "cannot follow",
    ),
    ("@kernel\nx = 1\n", "T0037", "@kernel", "stands above a function"),
    ("f(a=1, 2)\n", "T0038", "2", "cannot follow a keyword argument"),
    ("f(a=1, a=2)\n", "T0038", "a", "given twice"),
    ("def f(x: var f32[n]):\n    pass\n", "T0039", "var", "not a qualifier"),
    ("@kernel block[(32,)]\ndef f():\n    pass\n", "T0040", "block", "not a clause"),
    ("def f():\n\tx = 1\n\ty = 2\n", "T0020", "\t", "contains a tab"),
    ("def f():\n    x = 1\n\ty = 2\n", "T0020", "\t", "contains a tab"),
    (
        "def f(x):\n    if x:\n        y = 1\n      y = 2\n        z = 3\n    return y\n",
        "T0021",
        "      ",
        "indented by 6 spaces",
    ),
    (
        "def f(x):\n    y = 1\n        z = 2\n        w = 3\n    return y\n",
        "T0022",
        " " * 8,
        "no block",
    ),
    ("x = 1\n    y = 2\n", "T0022", "    ", "no block was opened"),
    ("def f(x):\ny = 1\n", "T0023", ":", "block behind this 'def'"),
    ("def f(x):\n    if x:\n    return 1\n", "T0023", ":", "block behind this 'if'"),
    ('x = "abc\ny = 2\n', "T0011", '"', "before the end of the line"),
    ('def f():\n    """doc\n    return 1\n\ny = 1\n', "T0011", '"""', "before the end of the file"),
    ("x = 12abc + 1\n", "T0012", "12abc", "not a number"),
    ("x = 16KiB\n", "T0012", "16KiB", "not a number"),
    ("x = 007\n", "T0012", "007", "not a number"),
    ("x = 0b12\n", "T0012", "0b12", "not a number"),
    ("x = 3 KiB\n", "T0012", "3 KiB", "not a number"),
    ("x = 1if a else 2\n", "T0012", "1if", "not a number"),
    ("x = f(a, 1.5else 2)\n", "T0012", "1.5else", "not a number"),
    ("for i in range(2): x = 2and 3\n", "T0012", "2and", "not a number"),
    ("x = 2.to(f32)\n", "T0012", "2.to", "not a number"),
    ("x = 3 $ 4\n", "T0010", "$", "'$' has no meaning"),
    ("x = “a”\n", "T0010", "“", "has no meaning"),
    ("if !a:\n    x = 1\n", "T0010", "!", "has no meaning"),
    ("x = a ? b : c\n", "T0010", "?", "has no meaning"),
    ("x = 'a\\qb'\n", "T0013", "\\q", "not an escape"),
    ("x = 1  # \u202e2\n", "T0015", "\u202e", "U+202E shows"),
    ("x = 'a\u2067b'\n", "T0015", "\u2067", "another order"),
    ("x = f'{a'\n", "T0014", "{", "not closed"),
    ("x = f'a}'\n", "T0014", "}", "closes no field"),
    ("x = f'{}'\n", "T0014", "{", "empty"),
    ("x = f'{a b}'\n", "T0030", "b", "found 'b'"),
    ("x = f'{a +}'\n", "T0030", "", "expected an expression"),
]


@pytest.mark.parametrize(("text", "code", "part", "words"), BROKEN, ids=[b[0] for b in BROKEN])
def test_one_fault_and_the_rest_kept(text: str, code: str, part: str, words: str) -> None:
    whole = f"def before():\n    return 1\n\n{text}\ndef after():\n    return 2\n"
    parsed = parse_module(SourceFile("m", whole))
    assert [d.code for d in parsed.diagnostics] == [code], dump(parsed.module)
    fault = parsed.diagnostics[0]
    assert words in fault.message
    assert fault.span is not None
    assert whole[fault.span.lo : fault.span.hi] == part
    assert whole.index(text) <= fault.span.lo <= whole.index(text) + len(text)
    assert fault.helps or code in ("T0030", "T0032", "T0038")
    names = [f.name for f in parsed.module.functions]
    assert names[0] == "before" and names[-1] == "after"


@pytest.mark.parametrize(("text", "code", "part", "words"), BROKEN, ids=[b[0] for b in BROKEN])
def test_one_fault_with_no_line_behind(text: str, code: str, part: str, words: str) -> None:
    parsed = parse_module(SourceFile("m", text.rstrip("\n")))
    assert [d.code for d in parsed.diagnostics] == [code]


def kept(text: str) -> str:
    parsed = parse_module(SourceFile("m", text))
    assert len(parsed.diagnostics) == 1
    return "\n".join(line.split("  [")[0].strip() for line in dump(parsed.module).splitlines()[1:])


def test_the_lines_below_an_open_bracket_are_kept() -> None:
    tree = kept("def f(x):\n    y = g(1, 2\n    z = 3\n    return z\n")
    assert tree == "def f(x)\nassign y = g(1, 2)\nassign z = 3\nreturn z"
    tree = kept("def f(x):\n    if g(x:\n        y = 1\n    return y\n")
    assert tree == "def f(x)\nif g(x)\nassign y = 1\nreturn y"
    tree = kept("x = g(1\ny = 2\nz = 3\n")
    assert tree == "assign x = g(1)\nassign y = 2\nassign z = 3"


def test_what_is_missing_stands_in_the_tree() -> None:
    assert kept("def f(x):\n    acc += \n    return x\n").splitlines()[1] == "update acc += <error>"
    assert kept("if x > 2\n    y = 1\n") == "if (x > 2)\nassign y = 1"
    assert kept("for i in :\n    y = 1\n") == "for i in <error>\nassign y = 1"
    assert kept("x = f(a, )(b\n") == "assign x = f(a)(b)"


def test_the_receiver_of_a_missing_name_is_kept() -> None:
    parsed = parse_module(SourceFile("m", "smem.\n"))
    statement = parsed.module.body[0]
    assert isinstance(statement, ast.ExprStmt)
    assert isinstance(statement.value, ast.ErrorExpr)
    assert isinstance(statement.value.inner, ast.Name)


def test_names_of_a_lost_line_are_kept() -> None:
    parsed = parse_module(SourceFile("m", "class A:\n    x = 1\n    def m(self): pass\n"))
    lost = parsed.module.body[0]
    assert isinstance(lost, ast.ErrorStmt)
    assert {name.id for name in lost.names} >= {"A", "x", "m"}


def test_every_independent_fault_is_reported() -> None:
    text = "x = (1\ndef f():\n    y = \n    if y = 2:\n        z = 1 $\n    return 1\nw = 2 3\n"
    parsed = parse_module(SourceFile("m", text))
    assert [d.code for d in parsed.diagnostics] == ["T0031", "T0030", "T0034", "T0010", "T0030"]
    places = [d.span.lo for d in parsed.diagnostics if d.span is not None]
    assert places == sorted(places)


def test_fixes_mend_the_program() -> None:
    broken = [
        "if x > 2\n    y = 1\n",
        "if x = 3:\n    y = 1\n",
        "x = max(1, 2\n",
        "def f(a):\n\tx = 1\n\tif a:\n\t\ty = 2\n",
        "x = f(a b)\n",
        "if x:\n    y = 1\nelse if z:\n    y = 2\n",
        "x = a × b\n",
    ]
    for text in broken:
        fault = parse_module(SourceFile("m", text)).diagnostics[0]
        mended = text
        for edit in sorted(fault.fixes[0].edits, key=lambda e: -e.span.lo):
            mended = mended[: edit.span.lo] + edit.replacement + mended[edit.span.hi :]
        assert parse_module(SourceFile("m", mended)).diagnostics == (), mended


def test_a_broken_expression_is_none() -> None:
    for text in ("", "a b", "(", "a +", "x = 1", "a; b", "if"):
        value, found = parse_expression(text, "--set")
        assert value is None
        assert len(found) == 1
        assert found[0].span is not None and found[0].span.file == "--set"


def test_every_code_has_a_page_whose_examples_hold() -> None:
    pages = Path(__file__).resolve().parents[3] / "docs" / "errors"
    for code, row in CODES.items():
        text = (pages / f"{code}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {code} {row.slug}\n")
        right = text.split("```tessera right\n")[1].split("```")[0]
        assert parse_module(SourceFile("m", right)).diagnostics == ()
        if "```tessera wrong\n" in text:
            wrong = text.split("```tessera wrong\n")[1].split("```")[0]
            assert code in [d.code for d in parse_module(SourceFile("m", wrong)).diagnostics]


def test_a_character_that_reorders_is_one_fault() -> None:
    parsed = parse_module(SourceFile("m", "x = 1\nx = a \u2066 + b\n"))
    assert [d.code for d in parsed.diagnostics] == ["T0010"]
