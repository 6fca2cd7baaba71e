"""``@test`` functions and ``tesserac test``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tessera_lang.driver.session import Session

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]
MIXED = """\
N = 3


@kernel tile[(32,)] grid[(1,)]
def twice(x: f32[n], out: mut f32[n]):
    for k in range(tile_linear_id(), n, group_tile_count()):
        out[k] = x[k] * 2.0


def doubled(x):
    out = op.zeros(x.shape, dtype=f32)
    twice(x, out)
    return out


@test
def doubles():
    assert op.all(doubled(op.ones((N,), dtype=f32)) == 2.0)


@test
def halves():
    print("what it says")
    n = N
    assert op.sum(doubled(op.ones((n,), dtype=f32))) == n // 2, f"n is {n}"


@test
def triples():
    assert op.all(doubled(op.arange(N, dtype=f32)) == op.arange(N, dtype=f32) * 3)


print("the program")
assert False
"""


def codes(text: str, **others: str) -> list[str]:
    session = Session(overlay={"a.tessera": text, **{f"{k}.tessera": v for k, v in others.items()}})
    return [d.code for d in session.check("a.tessera")]


def test_a_test_is_checked_as_host_code() -> None:
    text = "@test\ndef t():\n    x = op.zeros((3,), dtype=f32)\n    x.foo\n    y = 1 + 'a'\n"
    assert codes(text) == ["T0817", "T0803"]
    assert codes("@test\ndef t():\n    assert 1 == 2\n") == []
    kernel = MIXED.split("def doubled")[0]
    assert codes(kernel + "@test\ndef t():\n    twice(1.0, 2)\n") == ["T0831", "T0831"]


@pytest.mark.parametrize(
    "text",
    [
        "@test\ndef t(n): pass\n",
        "@test\ndef t[N: int](): pass\n",
        "@test\n@test\ndef t(): pass\n",
        "@test\n@kernel tile[(1,)]\ndef t(): pass\n",
        "@test tile[(1,)]\ndef t(): pass\n",
        "@test\ndef t() where 1 > 0: pass\n",
        "def f():\n    @test\n    def t(): pass\n    t()\nf()\n",
    ],
)
def test_what_cannot_be_a_test(text: str) -> None:
    assert codes(text) == ["T0123"]


def test_a_variable_of_the_program_is_not_there() -> None:
    session = Session(overlay={"a": "x = op.zeros((3,))\n@test\ndef t(): assert op.all(x == 0)\n"})
    (found,) = session.check("a")
    assert found.code == "T0101" and "do not run before a test" in found.notes[0]
    assert codes("X = 3\n@test\ndef t(): assert X == 3\n") == []


def test_each_test_runs_in_a_world_of_its_own(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": MIXED})
    done = tesserac("test", "a.tessera", "--target=cpu")
    assert done.returncode == 3
    words = [line.split(" (")[0] for line in done.stdout.splitlines()]
    assert words[:2] == ["ok   a.tessera::doubles", "FAIL a.tessera::halves"]
    assert "what it says" in done.stdout and "the program" not in done.stdout
    assert "FAIL a.tessera::triples" in words
    assert done.stdout.splitlines()[-1].startswith("1 passed, 2 failed in ")
    assert "error[T0805]: the assertion is false: n is 3" in done.stderr
    assert 'assert op.sum(doubled(op.ones((n,), dtype=f32))) == n // 2, f"n is {n}"' in done.stderr
    assert "note: it reads 6.0 == 1" in done.stderr
    assert "note: it reads [0., 2., 4.] == [0., 3., 6.]" in done.stderr


def test_long_sides_stand_apart(tesserac: Tesserac, folder: Folder) -> None:
    compared = "op.arange(40) == op.zeros((40,), dtype=i64)"
    folder({"a.tessera": f"@test\ndef t():\n    assert op.all({compared})\n"})
    text = tesserac("test", "a.tessera").stderr
    assert "note: the left side is [ 0,  1," in text and "note: the right side is [0, 0," in text


def test_selection(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": MIXED, "lib/b.tessera": MIXED, "lib/.c/d.tessera": MIXED,
            "lib/plain.tessera": "x = undefined\n"})  # fmt: skip
    assert tesserac("test", "a.tessera", "-k", "doubles").returncode == 0
    done = tesserac("test", ".", "-k", "doubles", "--target=cpu")
    assert done.returncode == 0 and done.stdout.count("ok ") == 2
    first = tesserac("test", ".", "-x", "--target=cpu")
    assert first.returncode == 3 and "1 passed, 1 failed" in first.stdout


def test_tests_of_an_import_are_not_run(tesserac: Tesserac, folder: Folder) -> None:
    text = (
        "from a import doubled, triples\n\n@test\n"
        "def own(): assert doubled(op.ones((1,), dtype=f32))[0] == 2\n"
    )
    folder({"a.tessera": MIXED, "b.tessera": text})
    done = tesserac("test", "b.tessera")
    assert done.returncode == 0 and "1 passed, 0 failed" in done.stdout


def test_exit_codes(tesserac: Tesserac, folder: Folder) -> None:
    bad = "@test\ndef t(): undefined()\n"
    folder({"a.tessera": MIXED, "bad.tessera": bad, "none.tessera": "x = 1\n"})
    none = tesserac("test", "none.tessera")
    assert none.returncode == 2 and "there is no test in none.tessera" in none.stderr
    assert "`zzz` in its name" in tesserac("test", "a.tessera", "-k", "zzz").stderr
    faulty = tesserac("test", "bad.tessera", "a.tessera", "-k", "d", "--target=cpu")
    assert faulty.returncode == 1
    assert "error[T0101]" in faulty.stderr and "ok   a.tessera::doubles" in faulty.stdout
    assert tesserac("test", "gone.tessera").returncode == 1
    assert tesserac("test", "a.tessera", "--target=tpu").returncode == 1


def test_formats(tesserac: Tesserac, folder: Folder) -> None:
    folder({"a.tessera": MIXED})
    short = tesserac("test", "a.tessera", "--format=short", "--target=cpu")
    first = "a.tessera:25:12: error[T0805]: the assertion is false: n is 3\n"
    assert short.stdout.startswith(first)
    lines = tesserac("test", "a.tessera", "--format=json", "--target=cpu").stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["outcome"] for r in records] == ["passed", "failed", "failed"]
    assert records[1]["output"] == "what it says\n" and records[1]["target"] == "cpu"
    assert records[1]["diagnostics"][0]["notes"] == ["it reads 6.0 == 1"]
    github = tesserac("test", "a.tessera", "--format=github", "--target=cpu").stdout
    assert github.startswith("::error file=a.tessera,line=25,endLine=25,col=12,")
    document = json.loads(tesserac("test", "a.tessera", "--format=sarif", "--target=cpu").stdout)
    assert len(document["runs"][0]["results"]) == 2


def test_junit(tesserac: Tesserac, folder: Folder) -> None:
    text = MIXED.replace("what it says", "\\x01 ]]> <&\\n")
    at = folder({"a.tessera": text, "bad.tessera": "@test\ndef t(): undefined()\n"})
    done = tesserac("test", "a.tessera", "bad.tessera", "--junit", "out.xml", "--target=cpu")
    assert done.returncode == 1
    root = ElementTree.parse(at / "out.xml").getroot()
    suites = {s.get("name"): s for s in root}
    of_a = suites["a.tessera [cpu]"]
    assert (of_a.get("tests"), of_a.get("failures")) == ("3", "2")
    names = [(c.get("name"), c.find("failure") is not None) for c in of_a]
    assert names == [("doubles", False), ("halves", True), ("triples", True)]
    error = suites["bad.tessera"].find("testcase/error")
    assert error is not None and error.get("type") == "T0101"
