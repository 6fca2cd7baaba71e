"""The formatter on programs that were mistreated: the tree stays, and twice is once."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import pytest

from tessera_lang.source import SourceFile
from tessera_lang.syntax import parse_module
from tessera_lang.syntax.format import format_source
from tessera_lang.syntax.lexer import CLOSERS, NEWLINE, OPENERS, tokens
from tests.sampling import few

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, PARTS = 4, 6
BLOCK = re.compile(r"^```tessera[^\n]*\n(.*?)^```", re.S | re.M)
HARD = '''\
x = [a for a, b in pairs if a < b and not b == 3]
y = lambda a, b=2: a if a else b
z = -x ** -y + ~(a - -b) // c[1:2, a + 1:, :n - 1, ::2, None]
d = {"one": 1, "two": f(*1) if False else (2,), (1, 2): ()}
if a: b = 1; c = 2
elif not (a): pass
else:
    for i, j in range(2): print (f"{i:04} {j}", 'a' "b") ; continue
    while True: break
def f[N: int = 3, T: dtype](x: mut T[n, N], y: f32 = 1.0, z=None) -> f32 where (N > 1), n % 2 == 0:
    """doc
      string"""
    w: f32 = 2.0
    s = """a
  b""" + g(1, """c
""", 2)
    return x[0].T @ y, z
import std.reduce as r, other
from std.reduce import (sum, max as most,)
a, b = b, a
a += 1 if b else 1 .real
assert a is not None and b not in (1,), "why"
long = first + \\
    second
'''.replace("f(*1)", "f(1)")


@cache
def corpus() -> list[str]:
    texts: list[str] = []
    for folder in ("stdlib", "examples", "tests"):
        files = sorted((ROOT / folder).rglob("*.tessera"))
        texts += [p.read_bytes().decode("utf-8", "replace") for p in files]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        texts += BLOCK.findall(page.read_text(encoding="utf-8"))
    return [HARD, *(t for t in texts if is_clean(t))]


def is_clean(text: str) -> bool:
    return not parse_module(SourceFile("a", text)).diagnostics


def formatted(text: str) -> str:
    after = format_source(SourceFile("a", text))
    assert after is not None
    assert format_source(SourceFile("a", after)) == after, text
    assert not re.search(r"[ \t]+\n", re.sub(r'"{3}[\s\S]*?"{3}', "S", after))
    return after


def mistreated(text: str, rng: random.Random) -> str:
    """The program with other blanks, breaks and comments, and longer names."""
    out: list[str] = []
    at = depth = 0
    long = rng.random() < 0.6
    for token in tokens(text, 0, len(text)):
        gap = text[at : token.start]
        if gap.strip(" ") == "" and out and not out[-1].endswith("\n"):
            gap = rng.choice(("", gap, gap, "  ")) if gap == "" else rng.choice((gap, "   "))
            if token.kind in OPENERS or token.kind in CLOSERS or token.kind == ",":
                gap = rng.choice(("", " ", gap))
            if depth and rng.random() < 0.06:
                remark = rng.choice(("", "", "  # why"))
                comma = "," if token.kind in CLOSERS and rng.random() < 0.5 else ""
                gap = f"{comma}{remark}\n{' ' * rng.randint(16, 30)}"
        out.append(gap)
        word = token.text
        if token.kind in OPENERS:
            depth += 1
        elif token.kind in CLOSERS:
            depth -= 1
        elif token.kind == "NAME" and long and len(word) > 2 and not word[0].isupper():
            word += "_" * (len(word) * 3 % 17) + "x" if word in ("combined", "each", "x") else ""
        elif token.kind == NEWLINE and not depth and rng.random() < 0.08:
            blank = " " * rng.choice((0, 4, 8))
            word = rng.choice((f"  # end{word}", f"{word}{blank}# own{word}", word * 4))
        out.append(word)
        at = token.end
    return "".join(out) + text[at:]


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sample(1)
def test_mistreated_programs(part: int, seed: int) -> None:
    rng = random.Random(seed)
    tried = 0
    for text in corpus()[part::PARTS]:
        worse = mistreated(text, rng)
        if is_clean(worse):
            formatted(worse)
            tried += 1
            formatted(worse.replace("\n", "\r\n"))
    assert tried > 25


def test_blanks_do_not_matter(whole: bool) -> None:
    """What differs in blanks only is formatted alike."""
    for text in few(corpus(), 60, whole):
        wide = re.sub(r"(?<=[\w)\]]) (?=[-+*/=<>]+ )", "    ", text)
        if '"""' not in text and "'" not in text and '"' not in text and "#" not in text:
            assert formatted(wide) == formatted(text)
