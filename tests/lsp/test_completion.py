"""Completion, in whole and in damaged text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tessera_lsp.ide.completion import LIMIT, completions, without_places
from tessera_lsp.ide.document import Document

from tessera_lang.driver.session import Session
from tests.lsp.marked import marked
from tests.lsp.raw import Raw
from tests.lsp.test_edits import applied

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


TILE_HEAD = """\
import std.reduce as r

def half(v): return v * 0.5

@op.kernel
def f[how: str](x: f32[m, n], w: bf16[n, k]):
    schedule.pipeline_stages(x, 3)
    s = op.sum(x, axis=1)
    for t in op.tile_range(m):
        part = x[t]
"""

TILE = [
    ("    y = op.¦", {"sum", "matmul", "softmax", "relu", "tile_range"}, {"x", "acc"}),
    ("    y = op.re¦", {"relu", "reshape"}, {"x"}),
    ("    y = op.sum(x, ax¦", {"axis=", "keepdims="}, {"x="}),
    ("    y = op.sum(¦", {"x=", "s", "part"}, set()),
    ("    y = op.sum(¦)", {"x=", "s", "part"}, set()),
    ("    schedule.¦", {"pipeline_stages"}, {"x", "sum"}),
    ("    schedule.pi¦", {"pipeline_stages"}, {"sum"}),
    ("    schedule.pipeline_stages(¦", {"x", "w"}, set()),
    ("    y = x @ ¦", {"w", "x", "s"}, set()),
    ("    y = x @ w¦", {"w"}, set()),
    ("    y = x.¦", {"shape", "dtype", "T"}, {"x"}),
    ("    y = s[¦", {"m", "n", "t"}, set()),
    ("    y = x[:, ¦", {"k", "m"}, set()),
    ("    for u in op.¦", {"tile_range"}, {"x"}),
    ("    for u in op.tile_range(¦", {"m", "n", "step="}, set()),
    ("    if s > ¦:", {"part", "x"}, set()),
    ("    return ¦", {"s", "part", "half", "op"}, set()),
    ("    return half(s) + ¦", {"s", "w"}, set()),
    ("    return r.¦", {"sum", "mean"}, {"s"}),
    ("    y = tile.¦", {"mma_sync"}, {"x"}),
    ("    y = op.cast(x, ¦", {"f16", "bf16", "dtype="}, set()),
    ("@op.¦", {"kernel"}, {"x"}),
]  # fmt: skip
"""In tile kernels, whole lines and broken ones."""

WHOLE = [
    ("    acc = ¦acc", {"acc", "x"}, set()),
    ("    tbar¦", {"tbarrier"}, set()),
    ("    y = atomic_¦", {"atomic_add", "atomic_max"}, set()),
    ("    return\n\nz = op.¦", {"zeros", "load", "save"}, {"acc"}),
    ("    return\n\nz = f¦", {"f", "f32"}, {"acc"}),
]  # fmt: skip
"""Lines that parse."""


@pytest.mark.parametrize(("line", "there", "absent"), TILE, ids=[d[0] for d in TILE])
def test_tile_level(line: str, there: set[str], absent: set[str]) -> None:
    found = completions(*marked(TILE_HEAD + line + TAIL))
    labels = [c.label for c in found]
    assert there <= set(labels)
    assert not absent & set(labels)


@pytest.mark.parametrize(("line", "there", "absent"), WHOLE, ids=[d[0] for d in WHOLE])
def test_whole_lines(line: str, there: set[str], absent: set[str]) -> None:
    labels = {c.label for c in completions(*marked(HEAD + line + TAIL))}
    assert there <= labels and not absent & labels


def test_there_are_sixty_cases() -> None:
    """20 on lines that do not parse, 20 at the tile level."""
    damaged = [d for d in (*DAMAGED, *TILE) if is_damaged(d[0])]
    assert len(DAMAGED) + len(TILE) + len(WHOLE) >= 60
    assert len(damaged) >= 20 and len(TILE) >= 20


def is_damaged(line: str) -> bool:
    session = Session()
    session.set_text("<d>", (HEAD + line + TAIL).replace("¦", ""))
    return any(d.code.startswith("T00") for d in session.parsed("<d>").diagnostics)


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


# --- imports, snippets, what is looked up late: by the protocol -----------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Raw]:
    item = {"snippetSupport": True, "resolveSupport": {"properties": ["documentation"]}}
    with Raw(textDocument={"completion": {"completionItem": item}}) as raw:
        yield raw


def offered(server: Raw, uri: str, text: str) -> dict[str, dict[str, Any]]:
    """What is offered at ``¦``, by label."""
    at = text.index("¦")
    line = text.count("\n", 0, at)
    server.open(uri, text.replace("¦", ""))
    column = at - text.rfind("\n", 0, at) - 1
    items = server.at("completion", uri, line, column)["items"]
    return {item["label"]: item for item in items}


@pytest.mark.parametrize(
    ("text", "after"),
    [("y = invert¦\n", "from maths import inverted\ny = invert\n"),
     ('"""Says what."""\n\ny = invert¦\n',
      '"""Says what."""\n\nfrom maths import inverted\n\ny = invert\n'),
     ("# licence\ny = invert¦\n", "# licence\nfrom maths import inverted\ny = invert\n"),
     ("import std.scan as s\ny = invert¦\n",
      "import std.scan as s\nfrom maths import inverted\ny = invert\n"),
     ("from maths import HALF\ny = invert¦\n", "from maths import HALF, inverted\ny = invert\n"),
     ("from maths import HALF as h\n\n\ndef f(x):\n    return x[invert¦\n",
      "from maths import HALF as h, inverted\n\n\ndef f(x):\n    return x[invert\n"),
     ("from maths import (\n    HALF,\n)\ny = inv¦\n", None)],
)  # fmt: skip
def test_names_are_imported(server: Raw, tmp_path: Path, text: str, after: str | None) -> None:
    """Also on lines that do not parse; the program then has the name."""
    (tmp_path / "maths.tessera").write_text(
        "HALF = 0.5\n_inverted = 1\n\n\ndef inverted(v):\n    return 1.0 / v\n"
    )
    uri = (tmp_path / "user.tessera").as_uri()
    item = offered(server, uri, text)["inverted"]
    assert item["labelDetails"]["description"] == "maths"
    made = applied(text.replace("¦", ""), item["additionalTextEdits"])
    assert after is None or made == after
    session, path = Session(), str(tmp_path / "user.tessera")
    session.set_text(path, made)
    assert "inverted" in session.scope(path).names


def test_names_of_the_library_are_imported(server: Raw, tmp_path: Path) -> None:
    uri = (tmp_path / "library.tessera").as_uri()
    found = offered(server, uri, "y = running¦\n")
    assert found["running_max"]["labelDetails"]["description"] == "std.scan"
    assert (
        "additionalTextEdits"
        not in offered(server, uri, "from std.scan import running_max\ny = running¦\n")[
            "running_max"
        ]
    )


def test_snippets(server: Raw, tmp_path: Path) -> None:
    """What they write is a program."""
    uri = (tmp_path / "snippets.tessera").as_uri()
    found = offered(server, uri, "¦\n")
    kinds = [i for i in found.values() if i["kind"] == 15]
    assert {i["label"] for i in kinds} == {"lane kernel", "tile kernel", "test function"}
    assert all(i["insertTextFormat"] == 2 and "$" in i["insertText"] for i in kinds)
    for item in kinds:
        session = Session()
        session.set_text("<s>", without_places(item["insertText"]))
        said = session.check("<s>")
        assert not [d for d in said if d.severity == "error" and d.code != "T0101"], said
    assert "for range" in offered(server, uri, "def f(n):\n    ¦\n")
    assert "lane kernel" not in offered(server, uri, "def f(n):\n    ¦\n")
    clauses = offered(server, uri, "@kernel ¦\n")
    assert clauses["tile"]["insertText"].startswith("tile[(${1:")


def test_a_client_without_snippets_gets_none_of_their_marks(tmp_path: Path) -> None:
    with Raw() as raw:
        found = offered(raw, (tmp_path / "plain.tessera").as_uri(), "¦\n")
        assert all("$" not in i.get("insertText", "") for i in found.values())
        assert found["while"]["documentation"]["value"]


def test_the_text_about_a_name_is_looked_up_late(server: Raw, tmp_path: Path) -> None:
    uri = (tmp_path / "late.tessera").as_uri()
    item = offered(server, uri, "y = op.ze¦\n")["zeros"]
    assert "documentation" not in item
    resolved = server.ask("completionItem/resolve", **item)
    assert resolved["documentation"]["value"] and resolved["label"] == "zeros"
    offered(server, uri, "y = op.su¦\n")
    assert "documentation" not in server.ask("completionItem/resolve", **item)
