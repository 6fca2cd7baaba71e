"""Completion, in whole and in damaged text."""

from __future__ import annotations

from pathlib import Path

import pytest
from tessera_lsp.ide.completion import LIMIT, completions
from tessera_lsp.ide.document import Document

from tessera_lang.driver.session import Session
from tests.lsp.marked import marked

HEAD = """\
import std.reduce as r
from std.elementwise import add
LANES = 128

def half(v): return v * 0.5

@kernel tile[(LANES,)] shared(16_KiB)
def f[N: int](x: f32[n], out: mut f32[grid_groups]):
    smem = tshared.alloc
    acc = 0.0
    for k in range(n):
        acc += x[k]
"""
TAIL = "\n\ndef later(v): return v\n"

DAMAGED = [
    ("    smem.¦", {"shape", "dtype"}, {"smem", "while"}),
    ("    smem.sh¦", {"shape"}, {"smem"}),
    ("    t = tshared.¦", {"alloc"}, {"x"}),
    ("    y = op.ze¦", {"zeros", "zeros_like", "sum", "matmul"}, {"acc"}),
    ("    y = math.¦", {"sqrt", "fma"}, {"x"}),
    ("    y = r.¦", {"sum", "mean"}, {"reduced"}),
    ("    y = half(ac¦", {"acc", "x", "smem", "k", "half"}, set()),
    ("    out[0 = ac¦", {"acc", "out"}, set()),
    ("    if ¦", {"acc", "not", "tile_linear_id"}, set()),
    ("    if acc > ¦:", {"acc", "n", "N"}, set()),
    ("    while x[¦", {"k", "n", "LANES"}, set()),
    ("    acc +=¦", {"x", "tbarrier", "add"}, set()),
    ("    x[0].¦", {"shape"}, {"acc"}),
    ("    half(acc).¦", {"shape"}, {"acc"}),
    ("    b = 16_¦", {"KiB", "MiB"}, {"acc"}),
    ("    b = 1.¦", set(), {"shape", "acc"}),
    ("    acc = ) + ¦", {"acc", "x"}, set()),
    ("    for ¦", set(), {"acc"}),
    ("    def ¦", set(), {"acc"}),
    ("    # note ¦", set(), {"acc"}),
    ("    print(\"a \\\" b ¦", set(), {"acc"}),
    ("    \"\"\"text\n    ac¦\n    \"\"\"", set(), {"acc"}),
    ("import ¦", {"std", "std.reduce"}, {"acc"}),
    ("import std.¦", {"reduce", "scan"}, {"std.reduce"}),
    ("import std.reduce as q, std.¦", {"scan"}, set()),
    ("from std.scan import ¦", {"inclusive", "running_max"}, {"acc", "while"}),
    ("from std.reduce import sum, m¦", {"mean", "max"}, {"reduced"}),
    ("from nowhere import ¦", set(), {"acc"}),
    ("@¦", {"kernel", "test"}, {"acc"}),
    ("@kernel ¦", {"tile", "shared", "grid"}, {"acc"}),
    ("@kernel tile[(128,)] ¦", {"shared", "grid"}, {"tile"}),
    ("@kernel tile[(12¦", set(), {"acc"}),
    ("@kernel tile[(LA¦", {"LANES"}, {"acc"}),
    ("def g(a: ¦", {"f32", "mut", "const", "i64"}, set()),
    ("def g(a: f32[n], b: mut ¦", {"f32"}, set()),
    ("LANES¦", {"LANES", "half", "f", "later", "f32", "def"}, {"acc", "smem"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "there", "absent"), DAMAGED, ids=[d[0] for d in DAMAGED])
def test_damaged_lines(line: str, there: set[str], absent: set[str]) -> None:
    found = completions(*marked(HEAD + line + TAIL))
    labels = [c.label for c in found]
    assert there <= set(labels)
    assert not absent & set(labels)
    assert len(set(labels)) == len(labels) <= LIMIT


def test_types_come_first_in_an_annotation() -> None:
    found = completions(*marked(HEAD + "def g(a: ¦"))
    kinds = [c.kind for c in found]
    assert [c.label for c in found[:2]] == ["mut", "const"]
    assert kinds[2:].index("function") > kinds[2:].index("type") == 0


def test_details_and_documentation() -> None:
    found = {c.label: c for c in completions(*marked(HEAD + "    ¦"))}
    assert found["x"].detail == "f32[n]" and found["out"].detail == "mut f32[grid_groups]"
    assert found["k"].detail == "loop variable" and found["n"].detail == "size"
    assert found["LANES"].detail == "= 128" and found["LANES"].kind == "constant"
    assert found["half"].detail == "(v)"
    assert found["atomic_add"].detail == "(place, value, scope=, order=)"
    assert found["tbarrier"].documentation and found["while"].documentation


def test_files_beside_this_one(tmp_path: Path) -> None:
    (tmp_path / "used.tessera").write_text("def third(v): return v / 3\n")
    (tmp_path / "no name.tessera").write_text("")
    session, path = Session(), str(tmp_path / "user.tessera")
    session.set_text(path, "import ")
    labels = {c.label for c in completions(Document(session, path), 7)}
    assert "used" in labels and not {"user", "no name"} & labels
    text = "from used import "
    session.set_text(path, text)
    assert [c.label for c in completions(Document(session, path), len(text))] == ["third"]


def test_many_names_are_cut_by_the_first_letter() -> None:
    names = "".join(f"name{i} = {i}\n" for i in range(300)) + "zebra = 1\n"
    found = completions(*marked(names + "y = ze¦\n"))
    assert "zebra" in {c.label for c in found} and len(found) <= LIMIT
