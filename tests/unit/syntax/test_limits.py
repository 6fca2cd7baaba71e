"""Input that is too large or nests too deep ends in one diagnostic, soon."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, decode_source, parse_expression, parse_module
from tessera_lang.syntax.dump import dump
from tessera_lang.syntax.limits import MAX_BYTES


@pytest.fixture(autouse=True)
def _within_seconds() -> Iterator[None]:
    """Far more than the work takes, so that a busy machine does not matter."""
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 10


TOO_MUCH = [
    ("parentheses", "x = " + "(" * 100_000, "T0004"),
    ("balanced parentheses", "x = " + "(" * 90_000 + "1" + ")" * 90_000, "T0004"),
    ("brackets", "def f():\n    x = " + "[" * 100_000 + "\n", "T0004"),
    ("unary minus", "x = " + "-" * 100_000 + "1", "T0004"),
    ("not", "x = " + "not " * 40_000 + "1", "T0004"),
    ("powers", "x = a" + " ** b" * 5000, "T0004"),
    ("conditionals", "x = a" + " if b else c" * 5000, "T0004"),
    ("lambdas", "x = " + "lambda: " * 5000 + "1", "T0004"),
    ("attributes", "x = a" + ".b" * 50_000, "T0004"),
    ("calls", "x = a" + "()" * 50_000, "T0004"),
    ("in an f-string", "x = f'{" + "(" * 50_000 + "1" + ")" * 50_000 + "}'", "T0004"),
    ("blocks", "".join(" " * i + "if x:\n" for i in range(3500)), "T0004"),
    ("elif", "if x:\n    y = 1\n" + "elif z:\n    y = 2\n" * 5000, "T0004"),
    ("one line", "x = " + "1+" * 2_500_000, "T0003"),
    ("one word", "x" * 5_000_000, "T0003"),
    ("bytes", "x = 1\n" * 20 + "# " + "\n# a comment" * 800_000, "T0002"),
    ("lines", "x = 1\n" * 1_000_000, "T0002"),
    ("NUL", "x = 1\0\n", "T0001"),
    ("digits", "x = " + "1" * 100_000, "T0012"),
]


@pytest.mark.parametrize(("text", "code"), [t[1:] for t in TOO_MUCH], ids=[t[0] for t in TOO_MUCH])
@pytest.mark.sample(4)
def test_one_diagnostic(text: str, code: str) -> None:
    parsed = parse_module(SourceFile("m", text))
    assert [d.code for d in parsed.diagnostics] == [code]
    dump(parsed.module)


def test_many_branches_are_not_called_nested() -> None:
    parsed = parse_module(SourceFile("m", "if x:\n    y = 1\n" + "elif z:\n    y = 2\n" * 300))
    assert "more than 200 branches" in parsed.diagnostics[0].message


def test_the_rest_of_the_file_is_kept() -> None:
    text = "def f():\n    x = " + "(" * 1000 + "\n\ndef g():\n    return 1\n"
    assert [f.name for f in parse_module(SourceFile("m", text)).module.functions][-1] == "g"


def test_chains_of_operators_do_not_nest() -> None:
    parsed = parse_module(SourceFile("m", "x = a" + " + b * a" * 5000 + "\n"))
    assert parsed.diagnostics == ()
    assert dump(parsed.module).count("+") == 5000
    values = parse_module(SourceFile("m", "x = a" + " or a" * 5000 + "\n")).module.body[0]
    assert isinstance(values, ast.Assign) and isinstance(values.value, ast.BoolOp)
    assert len(values.value.values) == 5001


def test_two_hundred_levels_are_read() -> None:
    text = "x = " + "(" * 200 + "1" + ")" * 200 + "\n"
    assert parse_module(SourceFile("m", text)).diagnostics == ()
    blocks = "".join(" " * i + "if x:\n" for i in range(200)) + " " * 200 + "y = 1\n"
    assert parse_module(SourceFile("m", blocks)).diagnostics == ()


def test_the_number_of_diagnostics_is_capped() -> None:
    found = parse_module(SourceFile("m", "x = \n" * 10_000)).diagnostics
    assert len(found) == 101
    assert found[-1].code == "T0005" and found[-1].severity == "note"


@pytest.mark.slow
def test_long_runs_of_the_same_damage() -> None:
    for text in (
        "def f():\n" + "    x = (\n" * 10_000,
        "x = (\n" * 10_000,
        "def f():\n" + "    x = (\n    y = 2\n" * 5000 + "    return 1\n",
        "x = '\n" * 10_000,
        'x = """\n' * 10_001,
        'x = """' + '\\"""' * 20_000 + "\n",
        "x = 1 \\\n" * 10_000,
        "@kernel\n" * 10_000,
        "x = (\n" + "# c\n" * 50_000,
        "x = f'" + "{a" * 20_000 + "'\n",
        "x = [\n" + "1 1,\n" * 50_000 + "]\n",
        "\\" * 100_000,
        "\ufeff" * 1000,
    ):
        assert 1 <= len(parse_module(SourceFile("m", text)).diagnostics) <= 101


def test_too_many_bytes_are_not_even_decoded() -> None:
    file, found = decode_source(b"\xff" * (MAX_BYTES + 1), "m")
    assert file is None and [d.code for d in found] == ["T0002"]


def test_expressions_have_the_same_limits() -> None:
    for text in ("(" * 100_000, "-" * 100_000 + "1", "a" + "[0]" * 10_000):
        value, found = parse_expression(text)
        assert value is None and [d.code for d in found] == ["T0004"]
