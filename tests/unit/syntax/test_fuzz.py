"""Whatever the text, a parse ends: with a tree, located faults, and in little time."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera_lang.source import SourceFile
from tessera_lang.syntax import ParseCache, parse_expression, parse_module
from tessera_lang.syntax.dump import dump

SUM_REDUCE = """\
@kernel tile[(128,)] shared(16_KiB)
def sum_reduce(x: f32[n], out: mut f32[grid_groups]):
    smem = tshared.alloc
    i = tile_linear_id()
    acc = 0.0
    for k in range(i, n, group_tile_count()):
        acc += x[k]
    smem[i] = acc
    tbarrier()
    s = 64
    while s > 0:
        if i < s: smem[i] += smem[i + s]
        tbarrier()
        s //= 2
    if i == 0:
        atomic_add(out[group_linear_id()], smem[0])
"""
HOST = '''\
"""A program."""
from tessera import op, dist as d

@op.autotunable(params={"tile": [16, 32], "unroll": [1]})
def f[BM: int = 128](x: mut f32[m, k], *, y=1) -> f32[m] where m % 4 == 0:
    with schedule.pipeline(double_buffer=True) as p:
        a, b = x[::2, None, -1], [v * 2 for v in y if v]
    return lambda q: f"{q:3} of {{n}}" if a else not b

x = {"a": (1, 2), "b": 0x1f}
assert x, "text"
print(f'{x["a"][0] + 1}')
'''
SAMPLES = [SUM_REDUCE, HOST]
PIECES = [
    *"()[]{}:=,.'\"\\\n\t @#+-*\r\0é$",
    "def ", "if ", "else:", "    ", "\n\n", '"""', "lambda ", "for ", "f'{", "@kernel\n",
    "class ", "try:\n", "in ", "not ", "1_KiB", "0x", "\ufeff", "😋", "where ",
]  # fmt: skip

SHARED = Path(__file__).resolve().parents[3].parent / "shared"


def check(text: str, cache: ParseCache | None = None) -> None:
    parsed = parse_module(SourceFile("m", text), cache)
    dump(parsed.module)
    for fault in parsed.diagnostics:
        assert re.fullmatch(r"T00\d\d", fault.code)
        assert fault.span is not None
        assert 0 <= fault.span.lo <= fault.span.hi <= len(text)
        for label in fault.labels:
            assert 0 <= label.span.lo <= label.span.hi <= len(text)


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_prefix(sample: str) -> None:
    cache = ParseCache()
    for end in range(len(sample) + 1):
        check(sample[:end], cache)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.sample(1)
def test_every_single_deletion(sample: str) -> None:
    for at in range(len(sample)):
        check(sample[:at] + sample[at + 1 :])


def test_random_damage(whole: bool) -> None:
    source = random.Random(11)
    for _ in range(3000 if whole else 800):
        text = source.choice(SAMPLES)
        for _ in range(source.randint(1, 5)):
            at = source.randrange(len(text) + 1)
            if source.random() < 0.4:
                text = text[:at] + text[at + source.randint(1, 8) :]
            else:
                text = text[:at] + source.choice(PIECES) + text[at:]
        start = time.perf_counter()
        check(text)
        assert time.perf_counter() - start < 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_pieces_in_any_order(text: str) -> None:
    check(text)
    parse_expression(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    check(text)
    parse_expression(text)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of shared cases is not beside this")
def test_shared_programs_have_no_syntax_faults() -> None:
    texts = [p.read_text(encoding="utf-8") for p in SHARED.glob("conformance/*/block.tessera")]
    samples = (SHARED / "design" / "samples.md").read_text(encoding="utf-8")
    texts += re.findall(r"```tessera\n(.*?)```", samples, re.DOTALL)
    assert len(texts) > 20
    for text in texts:
        assert parse_module(SourceFile("m", text)).diagnostics == ()
