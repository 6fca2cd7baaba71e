"""Every construct of the language, printed back from its tree."""

from __future__ import annotations

import textwrap

import pytest

from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_expression, parse_module
from tessera_lang.syntax.dump import dump, source_text

EXPRESSIONS = [
    ("x", "x"),
    ("1_000", "1000"),
    ("0", "0"),
    ("0x1F", "31"),
    ("0b1_01", "5"),
    ("1.5", "1.5"),
    ("1e-3", "0.001"),
    (".5", "0.5"),
    ("1.", "1.0"),
    ("16_KiB", "16_KiB"),
    ("512_B", "512_B"),
    ("1_MiB", "1_MiB"),
    ("2_GiB", "2_GiB"),
    ("True", "True"),
    ("None", "None"),
    ("'a\\n\\x41\\u00e9'", repr("a\nAé")),
    ('"it\'s"', repr("it's")),
    ("r'a\\q'", repr("a\\q")),
    ("'a' \"b\" '''c'''", repr("abc")),
    ("'''a\nb'''", repr("a\nb")),
    ("'a\\\nb'", repr("ab")),
    ("f'{x}'", "f({x})"),
    ("f'a{x + 1:>8.3f}b{{}}'", "f('a', {(x + 1):>8.3f}, 'b{}')"),
    ("f'{d[\"k\"]}' 'tail'", "f({d['k']}, 'tail')"),
    ("f'{x[1:2]}'", "f({x[1:2]})"),
    ("f'{(lambda: 1)()}'", "f({(lambda: 1)()})"),
    ("()", "()"),
    ("(1,)", "(1,)"),
    ("1,", "(1,)"),
    ("1, 2", "(1, 2)"),
    ("(1, 2,)", "(1, 2)"),
    ("((1))", "1"),
    ("[]", "[]"),
    ("[1, 2,]", "[1, 2]"),
    ("{}", "{}"),
    ("{'a': 1, 'b': [2],}", "{'a': 1, 'b': [2]}"),
    ("[i * 2 for i in range(3)]", "[(i * 2) for i in range(3)]"),
    ("[a + b for a, b in x if a if b]", "[(a + b) for (a, b) in x if a if b]"),
    ("a + b * c", "(a + (b * c))"),
    ("a - b - c", "((a - b) - c)"),
    ("a @ b + c", "((a @ b) + c)"),
    ("-x ** 2", "(-(x ** 2))"),
    ("x ** -2", "(x ** (-2))"),
    ("2 ** 3 ** 4", "(2 ** (3 ** 4))"),
    ("-a * b", "((-a) * b)"),
    ("~a & b | c ^ d", "(((~a) & b) | (c ^ d))"),
    ("a << 1 + b >> c", "((a << (1 + b)) >> c)"),
    ("a // b % c / d", "(((a // b) % c) / d)"),
    ("not a == b", "(not (a == b))"),
    ("a and b or not c and d", "((a and b) or ((not c) and d))"),
    ("a or b or c", "(a or b or c)"),
    ("(a or b) or c", "((a or b) or c)"),
    ("a < b <= c != d", "(a < b <= c != d)"),
    ("(a < b) < c", "((a < b) < c)"),
    ("a in b", "(a in b)"),
    ("a not in b is not c is d", "(a not in b is not c is d)"),
    ("a if b else c if d else e", "(a if b else (c if d else e))"),
    ("lambda: x", "(lambda: x)"),
    ("lambda a, b=2: a + b", "(lambda a, b = 2: (a + b))"),
    ("f()", "f()"),
    ("f(1, x, k=2, m=a if b else c,)", "f(1, x, k=2, m=(a if b else c))"),
    ("k[groups](x, out)", "k[groups](x, out)"),
    ("a.b.c(1)[2].T", "a.b.c(1)[2].T"),
    ("x[::2, None, -1]", "x[::2, None, (-1)]"),
    ("x[:, 1:, :2, 1:2:3, ::]", "x[:, 1:, :2, 1:2:3, :]"),
    ("x[i]", "x[i]"),
    ("x[(1, 2)]", "x[(1, 2)]"),
    ("tshared.alloc", "tshared.alloc"),
    # Soft keywords are names.
    ("mut + const + where + tile + shared + grid + kernel", None),
    ("where[1](tile=2, where=3)", "where[1](tile=2, where=3)"),
    ("tile.mma_sync(a)", "tile.mma_sync(a)"),
    ("(a\n + # why\n b)", "(a + b)"),
]


@pytest.mark.parametrize(("text", "expected"), EXPRESSIONS, ids=[e[0] for e in EXPRESSIONS])
def test_expression(text: str, expected: str | None) -> None:
    value, diagnostics = parse_expression(text)
    assert diagnostics == ()
    assert value is not None
    if expected is not None:
        assert source_text(value) == expected


def show(text: str) -> str:
    parsed = parse_module(SourceFile("m", textwrap.dedent(text)))
    assert parsed.diagnostics == ()
    lines = dump(parsed.module).splitlines()[1:]
    return "\n".join(line.split("  [")[0].rstrip() for line in lines)


def shown(text: str) -> str:
    return textwrap.indent(textwrap.dedent(text).strip(), "  ")


ELIF = """\
if a:
    x = 1
elif b:
    x = 2
elif c:
    x = 3
else:
    x = 4
"""
ELIF_TREE = """\
if a
  assign x = 1
else
  if b
    assign x = 2
  else
    if c
      assign x = 3
    else
      assign x = 4
"""
STATEMENTS = [
    ("x = 1", "assign x = 1"),
    ("a, b = b, a", "assign (a, b) = (b, a)"),
    ("(a, b), c = v", "assign ((a, b), c) = v"),
    ("x[i, :] = 0", "assign x[i, :] = 0"),
    ("acc: f32 = 0.0", "declare acc: f32 = 0.0"),
    ("acc: f32[n, 2 * k]", "declare acc: f32[n, (2 * k)]"),
    ("s //= 2", "update s //= 2"),
    ("s **= 2", "update s **= 2"),
    ("x[i] @= y", "update x[i] @= y"),
    ("s <<= 1; s |= 4;", "update s <<= 1\nupdate s |= 4"),
    ("pass", "pass"),
    ("f(x)", "expression f(x)"),
    ("assert x > 0", "assert (x > 0)"),
    ("assert x > 0, 'no'", "assert (x > 0), 'no'"),
    ("import std.reduce as r, other", "import std.reduce as r, other"),
    ("from tessera import op, dist as d", "from tessera import op, dist as d"),
    ("from a.b import (\n    c,\n    d,\n)", "from a.b import c, d"),
    ("if a: x = 1; y = 2", "if a\n  assign x = 1\n  assign y = 2"),
    ("x = 1 + \\\n    2", "assign x = (1 + 2)"),
    ("x = [\n1,\n2\n]", "assign x = [1, 2]"),
    ("mut = 1; where = 2; tile = 3", "assign mut = 1\nassign where = 2\nassign tile = 3"),
    ("where, kernel = 1, 2", "assign (where, kernel) = (1, 2)"),
    ("with a as b:\n    pass", "with a as b\n  pass"),
    (
        "with schedule.pipeline(double_buffer=True):\n    x = 1",
        "with schedule.pipeline(double_buffer=True)\n  assign x = 1",
    ),
    (
        "for i, j in x:\n    if i: continue\n    break",
        "for (i, j) in x\n  if i\n    continue\n  break",
    ),
    ("while True:\n    s = 1", "while True\n  assign s = 1"),
    (ELIF, ELIF_TREE),
    ("def f(): return", "def f()\n  return"),
    ("def f(x, y=2,):\n    return x, y", "def f(x, y = 2)\n  return (x, y)"),
    (
        "def f[N: int = 8](x: mut f32[m], c: const f32[4]) -> f32[m] where n > 4, m: pass",
        "def f[N: int = 8](x: mut f32[m], c: const f32[4]) -> f32[m] where (n > 4), m\n  pass",
    ),
    ("def f(x: f32) where x > 0:\n    pass", "def f(x: f32) where (x > 0)\n  pass"),
    ("def f(x) -> f32 where x > 0:\n    pass", "def f(x) -> f32 where (x > 0)\n  pass"),
    ("def f(where: int, mut: mut f32[n]): pass", "def f(where: int, mut: mut f32[n])\n  pass"),
    ("def f(x: op.dtype = f32) -> None: pass", "def f(x: op.dtype = f32) -> None\n  pass"),
    (
        "@kernel tile[(128,)] shared(16_KiB) grid[(ceil_div(n, 128),)]\ndef k(x): pass",
        "@kernel tile[(128,)] shared(16_KiB) grid[(ceil_div(n, 128),)]\ndef k(x)\n  pass",
    ),
    ("@kernel tile[8, 16]\ndef k(): pass", "@kernel tile[8, 16]\ndef k()\n  pass"),
    (
        "@op.autotunable(params={'tile': [16, 32]})\n\n# why\n@op.kernel\ndef k(): pass",
        "@op.autotunable(params={'tile': [16, 32]})\n@op.kernel\ndef k()\n  pass",
    ),
    (
        "@bench(\n    m=[1],\n)\ndef f():\n    def g():\n        pass\n    return g",
        "@bench(m=[1])\ndef f()\n  def g()\n    pass\n  return g",
    ),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=[s[0] for s in STATEMENTS])
def test_statement(text: str, expected: str) -> None:
    inside = textwrap.indent(text, "    ")
    assert show(text) == shown(expected)
    assert (
        show(f"def outer():\n{inside}").splitlines()[1:]
        == textwrap.indent(shown(expected), "  ").splitlines()
    )


def test_docstrings() -> None:
    parsed = parse_module(SourceFile("m", '"""Top."""\ndef f():\n    """Inner\n    two."""\n'))
    assert parsed.module.docstring == "Top."
    assert parsed.module.functions[0].docstring == "Inner\n    two."
    assert len(parsed.module.functions[0].body) == 1


def test_a_unit_is_kept_beside_the_bytes() -> None:
    value, _ = parse_expression("16_KiB")
    assert isinstance(value, ast.IntLit)
    assert (value.value, value.unit) == (16384, "KiB")


def test_strings_hold_what_looks_like_declarations() -> None:
    text = 'x = """\ndef f(:\n@ ]\n"""\ny = (\n1\n)\n'
    assert show(text) == shown(
        f"assign x = {chr(10) + 'def f(:' + chr(10) + '@ ]' + chr(10)!r}\nassign y = 1"
    )


def test_comments_hold_brackets_and_quotes() -> None:
    assert show('x = 1  # ( it\'s [\ndef f():  # {\n    # ( """\n    pass\n') == shown(
        "assign x = 1\ndef f()\n  pass"
    )
