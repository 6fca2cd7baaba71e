"""What ``check`` says when asked for more than errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tessera_lang.driver.advice import Questions, advice
from tessera_lang.driver.session import Session

Tesserac = Callable[..., Any]
Folder = Callable[[Mapping[str, str]], Path]

SLOW = """\
@kernel tile[(32, 32)] shared(8_KiB) grid[(1,)]
def turned(x: f32[m, n], out: mut f32[n, m]):
    buf = tshared.alloc((32, 32), f32)
    r = tile_id(0)
    c = tile_id(1)
    buf[r, c] = x[r, c]
    tbarrier()
    out[r, c] = buf[c, r]
"""
UNSURE = """\
@kernel tile[(64,)] shared(1_KiB) grid[(1,)]
def scatter(at: i32[n], out: mut f32[n]) where n >= 64:
    buf = tshared.alloc((64,), f32)
    t = tile_linear_id()
    buf[t] = 0.0
    tbarrier()
    buf[at[t]] = f32(t)
    tbarrier()
    out[t] = buf[t]
"""


def codes(source: str, questions: Questions) -> list[str]:
    session = Session()
    session.set_text("k.tessera", source, 1)
    assert session.check("k.tessera") == ()
    return sorted(d.code for d in advice(session, "k.tessera", questions))


def test_nothing_is_said_unasked() -> None:
    assert codes(SLOW, Questions()) == []
    assert codes(UNSURE, Questions()) == []


def test_each_question() -> None:
    assert codes(SLOW, Questions(lints=True)) == ["P1001"]
    assert codes(SLOW, Questions(occupancy=True)) == ["P1003"]
    assert codes(SLOW, Questions(guards=True)) == ["P1004", "P1004"]
    assert codes(SLOW, Questions(strict=True)) == ["T0402", "T0402"]  # where a size is below 32
    assert codes(UNSURE, Questions(strict=True)) == ["T0412"]


def test_kernels_of_several_signatures_are_said_once() -> None:
    session = Session()
    session.set_text("k.tessera", SLOW.replace("f32[m, n], out", "T[m, n], out"), 1)
    twice = SLOW.replace("def turned(", "def turned[T: dtype](").replace("f32", "T")
    session.set_text("k.tessera", twice, 2)
    found = session.check("k.tessera", ("T=f32", "T=i32"))
    assert found == ()
    assert len(session.lowered("k.tessera")) == 2
    assert len(advice(session, "k.tessera", Questions(lints=True))) == 1


@pytest.mark.parametrize(
    ("option", "code"),
    [("--strict", "T0412"), ("--lints", "P1003"), ("--explain-guards", "P1004")],
)
def test_options(tesserac: Tesserac, folder: Folder, option: str, code: str) -> None:
    root = folder({"k.tessera": SLOW if code == "P1004" else UNSURE})
    path = str(root / "k.tessera")
    plain = tesserac("check", path, "--format=json")
    assert plain.returncode == 0 and code not in plain.stdout
    asked = tesserac("check", path, "--format=json", option)
    assert asked.returncode == 0, asked.stderr
    assert code in asked.stdout
    json.loads(asked.stdout.splitlines()[0])
