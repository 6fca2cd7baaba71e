"""Signature help, references, renaming, highlights, hints, folding, selection: by the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tessera_lsp.ide.calls import called

from tessera_lang.driver.session import Session
from tessera_lang.ir.printer import print_program
from tessera_lang.target.backend import TargetOptions
from tests.lsp.marked import marked
from tests.lsp.raw import Raw
from tests.lsp.test_edits import applied

ROOT = Path(__file__).resolve().parents[2]
TEXT = """\
import std.reduce as r
from helper import half, LIMIT as most

WIDTH = 128


def clamp(v, low, high=1.0):
    return min(max(v, low), high)


@kernel tile[(WIDTH,)] grid[(ceil_div(n, WIDTH),)]
def scale(x: f32[n], factor: f32, out: mut f32[n]):
    \"\"\"Scales `x`.\"\"\"
    i = grid_tile_linear_id()
    if i < n:
        acc = clamp(x[i] * factor, 0.0, high=most)
        acc += half(acc)
        out[i] = acc


scale(op.zeros((9,)), 2.0, op.zeros((9,)))
"""
HELPER = "LIMIT = 4.0\n\n\ndef half(v):\n    return v * 0.5\n\n\nthird = half(1.0)\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Raw]:
    with Raw() as raw:
        yield raw


@pytest.fixture
def files(server: Raw, tmp_path: Path) -> tuple[str, str]:
    """The user and the helper, whose file is not open."""
    helper, user = tmp_path / "helper.tessera", tmp_path / "user.tessera"
    helper.write_text(HELPER)
    server.open(user.as_uri(), TEXT)
    return user.as_uri(), helper.as_uri()


def position(text: str, marked_text: str) -> dict[str, int]:
    """Where ``¦`` stands in a piece of a text."""
    at = text.index(marked_text.replace("¦", "")) + marked_text.index("¦")
    return {"line": text.count("\n", 0, at), "character": at - text.rfind("\n", 0, at) - 1}


def ask(server: Raw, method: str, uri: str, piece: str, text: str = TEXT, **more: Any) -> Any:
    where = {"textDocument": {"uri": uri}, "position": position(text, piece)}
    return server.ask(f"textDocument/{method}", **where, **more)


def refused(server: Raw, method: str, uri: str, piece: str, **more: Any) -> str:
    server.number += 1
    where = {"textDocument": {"uri": uri}, "position": position(TEXT, piece), **more}
    server.send({"id": server.number, "method": f"textDocument/{method}", "params": where})
    answer = server.until(lambda m: m.get("id") == server.number and "method" not in m)
    assert answer["error"]["code"] == -32803
    return answer["error"]["message"]


# --- calls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("piece", "label", "active"),
    [("clamp(¦x[i]", "clamp(v, low, high=1.0)", 0), ("clamp(x[i] * factor, 0¦.0", None, 1),
     ("high=mo¦st", None, 2), ("scale(op.zeros((9,)), ¦2.0",
      "scale(x: f32[n], factor: f32, out: mut f32[n])", 1),
     ("zeros((¦9,)), 2.0", "op.zeros(shape, dtype=)", 0), ("ceil_div(n, W¦IDTH)", None, 1)],
)  # fmt: skip
def test_signature_help(
    server: Raw, files: tuple[str, str], piece: str, label: str | None, active: int
) -> None:
    found = ask(server, "signatureHelp", files[0], piece)
    assert found["activeParameter"] == active
    (shown,) = found["signatures"]
    assert label is None or shown["label"] == label
    assert shown["parameters"][active]["label"] in shown["label"]


HEAD = "def f(a, b, c=1): return a\n@op.kernel\ndef k(x: f32[m, n]) -> f32[m, n]:\n    "


@pytest.mark.parametrize(
    ("line", "label", "active"),
    [("y = f(¦", "f", 0), ("y = f(1, ¦", "f", 1), ("y = f((1, 2), [3, 4], ¦", "f", 2),
     ("y = f(1, c=¦", "f", 2), ("y = f(1, 2, 3, 4¦", "f", None), ("y = f(')', ¦", "f", 1),
     ("y = f(op.sum(x, ¦", "op.sum", 1), ("y = f(op.sum(x), ¦", "f", 1),
     ("y = f(x[1, ¦", "f", 0), ("y = x[¦", None, None), ("y = (1, ¦", None, None),
     ("schedule.pipeline_stages(¦", "schedule.pipeline_stages", 0),
     ("y = f(a == ¦", "f", 0), ("y = f(  # (,\n        1, ¦", "f", 1)],
)  # fmt: skip
def test_unfinished_calls(line: str, label: str | None, active: int | None) -> None:
    found = called(*marked(HEAD + line))
    assert (None if found is None else found.label.split("(")[0]) == label
    assert found is None or found.active == active


@pytest.mark.parametrize(
    ("line", "wanted", "not_wanted"),
    [("y = f(¦", {"a=", "b=", "c="}, set[str]()), ("y = f(1, ¦", {"b=", "c="}, {"a="}),
     ("y = f(1, c=2, ¦", {"b="}, {"a=", "c="}), ("y = f(1, b=¦", set[str](), {"c="}),
     ("y = f(1 + ¦", set[str](), {"a="}), ("y = op.sum(x, a¦", {"axis="}, {"x="}),
     ("y = op.sum(x, ax¦", {"axis=", "keepdims="}, set[str]())],
)  # fmt: skip
def test_keyword_arguments(server: Raw, line: str, wanted: set[str], not_wanted: set[str]) -> None:
    text = HEAD + line.replace("¦", "")
    uri = f"untitled:keywords{len(line)}{line[-4:].encode().hex()}"
    server.open(uri, text)
    found = ask(server, "completion", uri, line, text)["items"]
    labels = [c["label"] for c in found]
    assert wanted <= set(labels) and not (not_wanted & set(labels))
    assert set(labels[: len(wanted)]) >= wanted  # before all else


def test_public_names_before_private_ones(server: Raw, tmp_path: Path) -> None:
    uri = (tmp_path / "p.tessera").as_uri()
    text = "import parted as r\nx = r."
    (tmp_path / "parted.tessera").write_text(
        "_B = 1\ndef _a(): return 1\ndef c(): return 2\nD = 1\n"
    )
    server.open(uri, text)
    labels = [c["label"] for c in ask(server, "completion", uri, "r.¦", text)["items"]]
    assert labels == ["c", "D", "_B", "_a"]


# --- names -----------------------------------------------------------------------------------


def lines(found: list[dict[str, Any]], uri: str) -> list[int]:
    return sorted(r["range"]["start"]["line"] for r in found if r.get("uri", uri) == uri)


def test_references(server: Raw, files: tuple[str, str]) -> None:
    user, helper = files
    declared: dict[str, Any] = {"context": {"includeDeclaration": True}}
    found = ask(server, "references", user, "half(¦acc", **declared)
    assert lines(found, user) == [15, 16, 16, 17]
    found = ask(server, "references", user, "+= ha¦lf", **declared)
    assert lines(found, user) == [1, 16] and lines(found, helper) == [3, 7]
    found = ask(server, "references", user, "hi¦gh=most", **declared)
    assert lines(found, user) == [6, 7, 15]
    found = ask(server, "references", user, "WI¦DTH = 128", **declared)
    assert lines(found, user) == [3, 10, 10]
    found = ask(server, "references", user, "WI¦DTH = 128", context={"includeDeclaration": False})
    assert lines(found, user) == [10, 10]
    assert ask(server, "references", user, "¦min(", **declared) == []


def test_highlights(server: Raw, files: tuple[str, str]) -> None:
    found = ask(server, "documentHighlight", files[0], "out[i] = ac¦c")
    assert [h["kind"] for h in sorted(found, key=lambda h: str(h["range"]))] == [3, 2, 3, 2]
    found = ask(server, "documentHighlight", files[0], "ou¦t[i]")
    assert sorted(h["kind"] for h in found) == [3, 3]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("piece", "new", "old"),
    [("ac¦c = clamp", "sum_so_far", "acc"), ("WID¦TH = ", "LANES", "WIDTH"),
     ("hi¦gh=1.0", "upper", "high"), ("def cla¦mp", "confine", "clamp"),
     ("x: f32[¦n]", "zize", "n")],
)  # fmt: skip
def test_a_renamed_program_is_the_same(
    server: Raw, files: tuple[str, str], piece: str, new: str, old: str
) -> None:
    user, _ = files
    at = ask(server, "prepareRename", user, piece)
    assert at["end"]["character"] - at["start"]["character"] == len(old)
    edit = ask(server, "rename", user, piece, newName=new)
    after = applied(TEXT, edit["changes"][user])
    assert after != TEXT and list(edit["changes"]) == [user]
    assert tile_ir(user, after).replace(new, old) == tile_ir(user, TEXT)
    assert ptx(user, after) == ptx(user, TEXT)


def ptx(uri: str, text: str) -> str:
    """The PTX of the kernel `scale` of a text."""
    path = uri.removeprefix("file://")
    session = Session()
    session.set_text(path, text)
    session.check(path)
    signature = next(s for f, s, _, _ in session.instances_of(path, path) if f.name == "scale")
    made = session.compile_kernel(path, "scale", signature, TargetOptions("cuda", "sm_90"))
    return made.texts["ptx"]


def tile_ir(uri: str, text: str) -> str:
    path = uri.removeprefix("file://")
    session = Session()
    session.set_text(path, text)
    assert not [d for d in session.check(path) if d.severity == "error"]
    return "\n".join(print_program(program) for program, _ in session.lowered(path))


def test_renaming_over_files(server: Raw, files: tuple[str, str]) -> None:
    user, helper = files
    changes = ask(server, "rename", user, "+= ha¦lf", newName="halved")["changes"]
    assert applied(HELPER, changes[helper]) == HELPER.replace("half", "halved")
    assert applied(TEXT, changes[user]) == TEXT.replace("half", "halved")
    changes = ask(server, "rename", helper, "LIM¦IT", HELPER, newName="MOST")
    assert changes is None  # the file is not open
    server.open(helper, HELPER)
    changes = ask(server, "rename", helper, "LIM¦IT", HELPER, newName="MOST")["changes"]
    assert applied(TEXT, changes[user]) == TEXT.replace("LIMIT as most", "MOST as most")


@pytest.mark.parametrize(
    ("piece", "new", "why"),
    [("¦min(", "x", "no name that a file"), ("ac¦c = clamp", "factor", "is used where"),
     ("WID¦TH = ", "clamp", "already"), ("ac¦c = clamp", "while", "is no name"),
     ("ac¦c = clamp", "1x", "is no name"), ("high=mo¦st", "x", "an import gives")],
)  # fmt: skip
def test_what_is_not_renamed(
    server: Raw, files: tuple[str, str], piece: str, new: str, why: str
) -> None:
    assert why in refused(server, "rename", files[0], piece, newName=new)


def test_names_of_lambdas_and_comprehensions_are_their_own(server: Raw) -> None:
    text = "a = 1\nb = [a for a in [1, 2]]\nc = a\n"
    uri = "untitled:comprehension"
    server.open(uri, text)
    found = ask(server, "references", uri, "c = ¦a", text, context={"includeDeclaration": True})
    assert lines(found, uri) == [0, 2]


# --- beside the text -------------------------------------------------------------------------


def inlay(server: Raw, uri: str) -> list[tuple[int, str]]:
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}
    found = server.ask("textDocument/inlayHint", textDocument={"uri": uri}, range=whole)
    return [(h["position"]["line"], h["label"]) for h in found]


def test_inlay_hints(server: Raw, files: tuple[str, str]) -> None:
    found = inlay(server, files[0])
    assert (13, ": index") in found and (15, ": f32") in found
    assert (15, "low=") in found and (20, "factor=") in found
    assert not [h for h in found if h[0] in (16, 17)]
    uri = "untitled:generic"
    kernel = "@op.kernel\ndef k(x):\n    y = x + x\n    return y\n"
    server.open(uri, kernel + "\n\nz = k(op.zeros((3,)))\n")
    (hint,) = [h for h in inlay(server, uri) if h[0] == 2]
    assert "f32" in hint[1] and hint[1].endswith("(of a call)")


def test_folding_and_selection(server: Raw, files: tuple[str, str]) -> None:
    user = files[0]
    found = server.ask("textDocument/foldingRange", textDocument={"uri": user})
    folds = {(f["startLine"], f["endLine"], f.get("kind")) for f in found}
    assert {(0, 1, "imports"), (6, 7, None), (11, 17, None), (14, 17, None)} <= folds
    where = {"textDocument": {"uri": user}, "positions": [position(TEXT, "x[¦i] * factor")]}
    (step,) = server.ask("textDocument/selectionRange", **where)
    widths: list[tuple[int, int]] = []
    while step:
        start, end = step["range"]["start"], step["range"]["end"]
        widths.append((end["line"] - start["line"], end["character"] - start["character"]))
        step = step.get("parent")
    assert widths[0] == (0, 1) and widths[1] == (0, 4) and len(widths) >= 7


def test_workspace_symbols(server: Raw, files: tuple[str, str]) -> None:
    found = server.ask("workspace/symbol", query="clmp")
    assert "clamp" in {s["name"] for s in found if s["location"]["uri"] == files[0]}
    assert not server.ask("workspace/symbol", query="zzzz")


def test_fix_all(server: Raw) -> None:
    text = (
        "@kernel tile[(128,)] grid[(1,)]\ndef f(a: f32[n], b: f32[n]):\n"
        "    i = grid_tile_linear_id()\n    if i < n:\n        a[i] = 1.0\n        b[i] = 2.0\n"
    )
    uri = "untitled:fixall"
    server.open(uri, text)
    whole = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
    ask_for = {"textDocument": {"uri": uri}, "range": whole}
    context = {"diagnostics": [], "only": ["source.fixAll"]}
    (action,) = server.ask("textDocument/codeAction", **ask_for, context=context)
    assert action["kind"] == "source.fixAll"
    after = applied(text, action["edit"]["changes"][uri])
    assert after == text.replace("f32[n], b", "mut f32[n], b").replace("b: f32", "b: mut f32")
    server.change(uri, 2, {"text": after})
    assert server.diagnostics(uri, 2) == []
    assert server.ask("textDocument/codeAction", **ask_for, context=context) == []


def test_a_fix_is_offered_at_what_it_changes(server: Raw) -> None:
    text = "@kernel tile[(128,)] grid[(1,)]\ndef f(a: f32[n]):\n    a[tile_id()] = 1.0\n"
    uri = "untitled:label"
    server.open(uri, text)
    at = position(text, "a: ¦f32")
    found = server.ask(
        "textDocument/codeAction", textDocument={"uri": uri}, range={"start": at, "end": at},
        context={"diagnostics": []},
    )  # fmt: skip
    assert [a["title"] for a in found] == ["add `mut`"]


def test_variables_of_the_host_program(server: Raw) -> None:
    """Of what has one value the types of arrays are shown, and of all in a hover."""
    uri = "untitled:host"
    text = (
        "a = op.zeros((4, 8))\nb, n = op.sum(a, axis=1), 3\nc = op.ones((2,))\nc = n\n"
        "for i in range(3):\n    d = a\ne = (a, b)\nf = [1.0, 2.0]\n"
    )
    server.open(uri, text)
    assert inlay(server, uri) == [(0, ": f32[4, 8]"), (1, ": f32[4]"),
                                  (6, ": (f32[4, 8], f32[4])")]  # fmt: skip
    for piece, said in (("¦a = op", "a: f32[4, 8]"), ("¦n = op", "n = 3"), ("¦c = n", "c: int")):
        assert said in ask(server, "hover", uri, piece, text)["contents"]["value"]


def test_what_an_assignment_gives_a_value(server: Raw) -> None:
    """Names in tuples of tuples, and what has elements; not the place of an element."""
    uri = "untitled:targets"
    text = (
        "a = op.zeros((4, 8))\nn = [1, 2]\n(b, (c, d)) = (a, (a, 3))\nn[0], e = 5, a\n"
        "def f(x, i):\n    x[i], y = 1, 2\n    (p, (q, r)) = (y, (y, i))\n    return r\n"
    )
    server.open(uri, text)
    shown = dict(inlay(server, uri))
    assert shown[0] == shown[2] == shown[3] == ": f32[4, 8]" and 1 not in shown
    for piece, kinds in (("¦n[0]", [3, 3]), ("x[¦i]", [3, 2, 2]), ("q, ¦r", [3, 2]), ("¦d)", [3])):
        found = ask(server, "documentHighlight", uri, piece, text)
        assert sorted((h["kind"] for h in found), reverse=True) == kinds, piece


def test_a_comment_that_ignores(server: Raw, tmp_path: Path) -> None:
    """It is offered at a warning, never at an error, and takes the warning back."""
    uri, text = (
        (tmp_path / "ignored.tessera").as_uri(),
        "def f():\n    return 1\n    x = 2\ny = z\n",
    )
    shown = server.open(uri, text)
    assert sorted(d["code"] for d in shown) == ["T0101", "T0119"]
    at = {d["code"]: d["range"] for d in shown}
    context = {"diagnostics": shown}
    where = {"textDocument": {"uri": uri}, "context": context}
    found = server.ask("textDocument/codeAction", **where, range=at["T0101"])
    assert not [a for a in found if a["title"].startswith("ignore")]
    (action,) = [
        a for a in server.ask("textDocument/codeAction", **where, range=at["T0119"])
        if a["title"] == "ignore T0119 here"
    ]  # fmt: skip
    assert not action["isPreferred"] and action["diagnostics"][0]["code"] == "T0119"
    after = applied(text, action["edit"]["changes"][uri])
    assert after == text.replace("x = 2", "x = 2  # tessera: ignore[T0119]")
    server.change(uri, 2, {"text": after})
    assert [d["code"] for d in server.diagnostics(uri, 2)] == ["T0101"]
