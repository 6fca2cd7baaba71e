"""An edit reparses the chunk it falls in and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tessera_lang.source import SourceFile
from tessera_lang.syntax import ParseCache, ParsedModule, ast, parse_module
from tessera_lang.syntax.dump import dump

KERNEL = """\
@kernel tile[(128,)]
def k{0}(x: f32[n]):
    y = (
1)
    return y + {0}

"""
FILE = "import std\n" + "".join(KERNEL.format(i) for i in range(20)) + "print(1)\n"


def parse(text: str, cache: ParseCache) -> ParsedModule:
    return parse_module(SourceFile("m", text), cache)


def test_one_function_is_parsed_again() -> None:
    cache = ParseCache()
    first = parse(FILE, cache)
    assert len(first.chunks) == 22 and first.reused == 0
    second = parse(FILE.replace("y + 7", "y + 70"), cache)
    assert second.reused == 21
    changed = [a is not b for a, b in zip(first.chunks, second.chunks, strict=True)]
    assert changed.index(True) == 8 and sum(changed) == 1


def test_what_moves_keeps_its_nodes_and_gets_new_places() -> None:
    cache = ParseCache()
    first = parse(FILE, cache)
    text = "# a new line\n\n" + FILE
    second = parse(text, cache)
    assert second.reused == 22
    assert all(a is b for a, b in zip(first.module.body, second.module.body, strict=True))
    assert dump(second.module) == dump(parse_module(SourceFile("m", text)).module)
    for function in second.module.functions:
        assert text[function.name_span.lo : function.name_span.hi] == function.name


def test_the_same_text_twice_has_separate_nodes() -> None:
    cache = ParseCache()
    text = "x = 1\nx = 1\nx = 1\n"
    for _ in range(3):
        parsed = parse(text, cache)
        assert len({id(s) for s in parsed.module.body}) == 3
        assert [s.span.lo for s in parsed.module.body] == [0, 6, 12]
    parsed = parse("x = 1\n", cache)
    assert parsed.reused == 1
    parsed = parse(text, cache)
    assert parsed.reused == 1


def test_faults_move_with_their_chunk() -> None:
    cache = ParseCache()
    parse("x = 1\ny = \n", cache)
    parsed = parse("x = 100\ny = \n", cache)
    assert parsed.reused == 1
    span = parsed.diagnostics[0].span
    assert span is not None and span.lo == 11


def test_a_cache_is_not_taken_over_for_another_file() -> None:
    cache = ParseCache()
    parse("x = 1\n", cache)
    parsed = parse_module(SourceFile("other", "x = 1\n"), cache)
    assert parsed.reused == 0
    assert parsed.module.body[0].span.file == "other"


def test_edits_give_what_a_fresh_parse_gives() -> None:
    cache = ParseCache()
    text = FILE
    edits = [
        (40, 0, '"""'),
        (40, 3, ""),
        (200, 5, ""),
        (300, 0, "(\n"),
        (10, 0, "\nif a:\n    b\nelse:\n    c\n"),
        (300, 0, ")"),
        (0, 0, "def f(\n"),
        (0, 7, ""),
        (500, 200, "\t"),
    ]
    for at, length, new in edits:
        text = text[:at] + new + text[at + length :]
        cached = parse(text, cache)
        fresh = parse_module(SourceFile("m", text))
        assert dump(cached.module) == dump(fresh.module)
        assert [_key(d) for d in cached.diagnostics] == [_key(d) for d in fresh.diagnostics]


@pytest.mark.parametrize("quotes", ['"""', "'''"])
@pytest.mark.parametrize("at", [0, 40, 200])
def test_a_text_that_is_open_for_a_while_leaves_nothing_behind(quotes: str, at: int) -> None:
    """Key by key, with states in which the rest of the file is text; then all of it taken back,
    and the file opened again with the same cache."""
    cache, at = ParseCache(), FILE.index("\n", at) + 1
    typed = f"{quotes}of two\n  lines{quotes}\n"
    states = [FILE[:at] + typed[:k] + FILE[at:] for k in range(len(typed) + 1)]
    for text in (FILE, *states, *reversed(states), "", FILE):
        cached, fresh = parse(text, cache), parse_module(SourceFile("m", text))
        assert dump(cached.module) == dump(fresh.module)
        assert [_key(d) for d in cached.diagnostics] == [_key(d) for d in fresh.diagnostics]


def _key(d: object) -> object:
    span = d.span
    return (d.code, d.message, span.lo, span.hi)


def test_lark_takes_no_part_at_run_time() -> None:
    code = (
        "import sys; from tessera_lang.source import SourceFile;"
        "from tessera_lang.syntax import parse_module;"
        "parse_module(SourceFile('m', 'x = 1'));"
        "sys.exit('lark' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_chunks_begin_in_column_0() -> None:
    text = "x = [\n1,\n]\ny = '''\ndef f():\n'''\nif a:\n    b = 1\nelse:\n    b = 2\n"
    text += "@a(\n)\n@b\ndef g(): pass\n"
    parsed = parse(text, ParseCache())
    assert parsed.diagnostics == ()
    assert [type(s) for s in parsed.module.body] == [
        ast.Assign,
        ast.Assign,
        ast.If,
        ast.FunctionDef,
    ]
    assert len(parsed.chunks) == 4
