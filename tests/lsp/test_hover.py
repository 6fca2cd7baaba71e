"""Hover and definition: what is said of every kind of name, and of exactly which text."""

from __future__ import annotations

from pathlib import Path

import pytest
from tessera_lsp.ide.definition import definition
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.hover import hover

from tessera_lang.driver.session import Session
from tests.lsp.marked import PATH, marked

TEXT = '''\
import std.reduce as r
from std.elementwise import add
LANES = 128

def half(v, by: f32 = 0.5):
    """Half of v."""
    return v * by

@kernel tile[(LANES,)] shared(16_KiB) grid[(ceil_div(n, 128),)]
def f(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    smem = tshared.alloc((LANES,), f32)
    for k in range(0, n):
        smem[0] += half(x[k], by=2.0)
    if i < n: out[i] = smem[0] + 1.5

y = op.zeros((3,), dtype=f32)
print(f"{y.shape[0]} and {LANES}", r.sum(y))
'''

HOVERS = [
    ("¦r\nfrom", "import std.reduce", "std.reduce as r"),
    ("std.elem¦entwise", "import std.elementwise", "std.elementwise"),
    ("import a¦dd", "def add", "add"),
    ("LAN¦ES = 128", "LANES = 128", "LANES"),
    ("def ha¦lf", "Half of v.", "half"),
    ("def half(¦v", "parameter", "v"),
    ("def half(v, b¦y", "by: f32", "by"),
    ("ti¦le[(", "lanes of a group", "tile"),
    ("tile[(LA¦NES", "compile-time constant", "LANES"),
    ("sha¦red(", "budget of shared memory", "shared"),
    ("16_K¦iB", "16384 bytes", "16_KiB"),
    ("gri¦d[(", "number of groups", "grid"),
    ("ceil_d¦iv(n", "ceil_div(a, b)", "ceil_div"),
    ("@ker¦nel", "lane kernel", "kernel"),
    ("def f¦(x", "@kernel tile[(LANES,)]", "f"),
    ("def f(¦x", "x: f32[n]", "x"),
    ("x: f3¦2[n]", "float of 32 bits", "f32"),
    ("x: f32[¦n]", "size", "n"),
    ("out: mu¦t", "the argument is written", "mut"),
    ("¦i = grid", "i: index", "i"),
    ("grid_tile_li¦near_id()", "lane in the whole grid", "grid_tile_linear_id"),
    ("sm¦em = ", "512 bytes", "smem"),
    ("tsha¦red.alloc", "Shared memory of the group", "tshared"),
    ("tshared.al¦loc", "tshared.alloc(shape, dtype)", "alloc"),
    ("for ¦k in", "loop variable", "k"),
    ("f¦or k in", "Runs a block for each value", "for"),
    ("for k ¦in", "Stands between", "in"),
    ("rang¦e(0", "range(start, stop", "range"),
    ("smem[0] += ha¦lf", "def half(v, by: f32 = 0.5)", "half"),
    ("half(¦x[k]", "global memory, read only", "x"),
    ("x[k], ¦by=", "by: f32 = 0.5", "by"),
    ("by=2¦.0", "2.0: f32", "2.0"),
    ("o¦ut[i] =", "may be written", "out"),
    ("+ 1¦.5", "1.5: f32", "1.5"),
    ("¦y = op", "host program", "y"),
    ("o¦p.zeros", "Operations", "op"),
    ("op.zer¦os", "op.zeros(shape, dtype=)", "zeros"),
    ("dty¦pe=f32", "op.zeros(shape, dtype=)", "dtype"),
    ("{y.sha¦pe", "The sizes", "shape"),
    ("{LA¦NES}", "LANES = 128", "LANES"),
    ("r.su¦m(y)", "The sum of all elements", "sum"),
    ("¦r.sum", "import std.reduce", "r"),
]


@pytest.mark.sample(21)
@pytest.mark.parametrize(("place", "said", "of"), HOVERS, ids=[h[0] for h in HOVERS])
def test_hover(place: str, said: str, of: str) -> None:
    document, offset = marked(TEXT.replace(place.replace("¦", ""), place, 1))
    found = hover(document, offset)
    assert found is not None
    assert said in found.markdown
    assert document.file.text[found.span.lo : found.span.hi] == of


@pytest.mark.parametrize("place", ['"""Half ¦of v', "LANES = 128¦", "\n¦\n", "= ¦smem[0"])
def test_little_or_nothing_to_say(place: str) -> None:
    hover(*marked(TEXT.replace(place.replace("¦", ""), place, 1)))


DEFINITIONS = [
    ("tile[(LA¦NES", "LANES = 128"),
    ("smem[0] += ha¦lf", "half(v, by"),
    ("smem[0] += half(¦x", "x: f32[n]"),
    ("x[k], ¦by=", "by: f32 = 0.5"),
    ("ceil_div(¦n", "n], out"),
    ("half(x[¦k]", "k in range"),
    ("= sm¦em[0]", "smem = tshared"),
    ("return v * b¦y", "by: f32 = 0.5"),
    ("{¦y.shape", "y = op"),
    ("def ha¦lf", "half(v, by"),
]


@pytest.mark.parametrize(("place", "at"), DEFINITIONS, ids=[d[0] for d in DEFINITIONS])
def test_definition(place: str, at: str) -> None:
    document, offset = marked(TEXT.replace(place.replace("¦", ""), place, 1))
    found = definition(document, offset)
    assert found is not None and found.path == PATH and found.span is not None
    assert document.file.text[found.span.lo :].startswith(at)


@pytest.mark.parametrize(
    ("place", "file", "at"),
    [
        ("r.su¦m(y)", "reduce.tessera", "sum(x"),
        ("import a¦dd", "elementwise.tessera", "add["),
        ("std.elem¦entwise", "elementwise.tessera", None),
        ("import std.re¦duce", "reduce.tessera", None),
        ("¦r.sum", "reduce.tessera", None),
    ],
)
def test_definition_in_another_file(place: str, file: str, at: str | None) -> None:
    document, offset = marked(TEXT.replace(place.replace("¦", ""), place, 1))
    found = definition(document, offset)
    assert found is not None and Path(found.path).name == file
    if at is None:
        assert found.span is None
    else:
        assert found.span is not None
        assert Path(found.path).read_text()[found.span.lo :].startswith(at)


def test_a_local_file_and_a_dotted_import(tmp_path: Path) -> None:
    (tmp_path / "used.tessera").write_text("\ndef third(v): return v / 3\n")
    text = "import used\nimport std.reduce\n\ndef g(v): return used.third(v)\nz = std.reduce.sum\n"
    session, path = Session(), str(tmp_path / "user.tessera")
    session.set_text(path, text)
    document = Document(session, path)
    found = definition(document, text.index("third"))
    assert found is not None and found.path == str(tmp_path / "used.tessera") and found.span
    assert found.span.lo == 5
    found = definition(document, text.index("sum"))
    assert found is not None and Path(found.path).name == "reduce.tessera"


def test_a_function_that_does_not_check_has_its_annotations() -> None:
    text = "def g[N: int](a: mut f32[m, N], b):\n    q = a[¦0, 0]\n    return q + \n"
    said = {}
    for name in ("N", "a", "m", "b", "q"):
        document, _ = marked(text)
        found = hover(
            document, document.file.text.index(name, text.index("[" if name == "N" else "("))
        )
        said[name] = found.markdown if found else ""
    assert "N: int" in said["N"] and "compile-time parameter" in said["N"]
    assert "a: mut f32[m, N]" in said["a"] and "parameter" in said["b"]
