"""Kinds uniform and barrier: what decides over a barrier is read from shared memory.

A flag that lies between two barriers is one value for all lanes (WGSL has `workgroupUniformLoad`
for it), and so is the result of a reduction over the group; one that a lane may write in the
meantime is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HEAD = """\
@kernel tile[({lanes},)] shared(8_KiB)
def f(x: f32[n], out: mut f32[grid_groups]):
    s = tshared.alloc((256,), f32)
    t = tile_linear_id()
    s[t] = 0.0
    s[t + {lanes}] = 0.0
    tbarrier()
"""


def program(body: str, lanes: int = 128) -> str:
    return HEAD.format(lanes=lanes) + "".join(f"    {line}\n" for line in body.splitlines())


def codes(source: str) -> set[str]:
    session = Session()
    session.set_text("p.tessera", source, 1)
    return {d.code for d in session.check("p.tessera")}


ONE_FOR_ALL = {
    "a cell": "if s[0] > 0.0: tbarrier()",
    "a cell of a uniform place": "if s[n % 128] > 0.0: tbarrier()",
    "another buffer is written": "q = tshared.alloc((128,), f32)\nv = s[0]\nq[t] = 1.0\n"
    "if v > 0.0: tbarrier()",
    "a loop until the flag falls": "go = 1.0\nwhile go > 0.0:\n    tbarrier()\n"
    "    if t == 0: s[0] = x[n - 1]\n    tbarrier()\n    go = s[0]\n    tbarrier()",
    "the head of a loop": "while s[0] > 0.0:\n    tbarrier()\n    if t == 0: s[0] = s[0] - 1.0\n"
    "    tbarrier()",
    "an exit before the barrier": "for k in range(4):\n    if s[0] > 0.0: break\n    tbarrier()\n"
    "    if t == 0: s[0] = 1.0\n    tbarrier()",
    "a reduction of the group": "if group_max(x[t]) > 0.0: tbarrier()",
    "two of them": "if group_sum(x[t]) > group_min(x[t]): tbarrier()",
    "one in a loop": "for k in range(4):\n    if group_max(x[t]) > 3.0: continue\n    tbarrier()",
    "a loop by one": "go = True\nwhile go:\n    go = group_max(x[t]) > 3.0",
    "a warp operation below": "v = 0.0\nif s[0] > 0.0: v = warp_sum(x[t])",
}
ANY = {
    "a cell for each lane": "if s[t] > 0.0: tbarrier()",
    "a write before": "if t == 0: s[0] = 1.0\nif s[0] > 0.0: tbarrier()",
    "a write behind": "v = s[0]\nif t == 3: s[0] = 2.0\nif v > 0.0: tbarrier()",
    "a write in the other branch": "if t == 0: s[0] = 1.0\nelse:\n    v = s[0]\n"
    "    if v > 0.0: tbarrier()",
    "an atomic": "v = s[0]\natomic_add(s[3], 1.0)\nif v > 0.0: tbarrier()",
    "a write of the next turn": "for k in range(4):\n    v = s[0]\n    if v > 0.0: tbarrier()\n"
    "    if t == 0: s[0] = 1.0",
    "a write behind the loop": "for k in range(4):\n    v = s[0]\n    if v > 0.0: break\n"
    "    tbarrier()\nif t == 0: s[0] = 1.0",
    "a write behind an exit of a while": "while s[0] > 0.0:\n    tbarrier()\nif t == 0: s[0] = 1.0",
    "no barrier between the turns": "while s[0] > 0.0:\n    tbarrier()\n"
    "    if t == 0: s[0] = s[0] - 1.0",
    "a vote of a warp": "if warp_any(x[t] > 0.0): tbarrier()",
    "a shuffle": "if warp_shuffle(x[t], 0) > 0.0: tbarrier()",
}


@pytest.mark.parametrize("case", ONE_FOR_ALL)
def test_one_value_for_all_lanes(case: str) -> None:
    tail = "\ntbarrier()\nif t == 0: out[group_linear_id()] = s[1]"
    assert codes(program(ONE_FOR_ALL[case] + tail)) == set()


@pytest.mark.parametrize("case", ANY)
def test_a_value_that_may_differ(case: str) -> None:
    assert codes(program(ANY[case])) == {"T0401"}


@pytest.mark.parametrize("body", [
    "if warp_any(x[t] > 0.0): tbarrier()", "if warp_sum(x[t]) > 0.0: tbarrier()",
])  # fmt: skip
def test_one_warp_has_one_value(body: str) -> None:
    assert codes(program(body, lanes=32)) == set()
    assert codes(program(body, lanes=33)) == {"T0401"}


FLAGS = """
@kernel tile[(96,)] shared(4_KiB) grid[(g,)]
def halved(x: i32[g, 96], out: mut i32[g, 96], turns: mut i32[g]):
    s = tshared.alloc((1,), i32)
    t = tile_linear_id()
    v = x[group_linear_id(), t]
    if t == 0: s[0] = 0
    tbarrier()
    count = i32(0)
    more = True
    while more:
        if v > 1:
            v = v // 2
            atomic_add(s[0], 1)
        tbarrier()
        more = s[0] > 0
        tbarrier()
        if t == 0: s[0] = 0
        tbarrier()
        count += 1
    out[group_linear_id(), t] = v
    if t == 0: turns[group_linear_id()] = count

@kernel tile[(96,)] grid[(g,)]
def until(x: i32[g, 96], out: mut i32[g]):
    v = x[group_linear_id(), tile_linear_id()]
    total = i32(0)
    while group_max(v) > 1:
        total += group_sum(v)
        v = v // 2
    if tile_linear_id() == 0: out[group_linear_id()] = total
"""


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_loops_until_a_flag_falls(
    target: str, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if checked and target == "cpu":
        monkeypatch.setenv("TESSERA_CHECKED", "1")
    m: Any = tessera.compile(FLAGS, target=target)
    x = np.random.default_rng(0).integers(0, 500, (5, 96)).astype(np.int32)
    x[2], x[3] = 0, 1
    out, turns, totals = np.zeros_like(x), np.zeros(5, np.int32), np.zeros(5, np.int32)
    m.halved(x, out, turns)
    m.until(x, totals)
    for g in range(len(x)):
        v, count, total = x[g].copy(), 1, 0
        while v.max() > 1:
            v[v > 1] //= 2
            count += 1
        w = x[g].copy()
        while w.max() > 1:
            total += int(w.sum())
            w //= 2
        assert np.array_equal(out[g], v) and turns[g] == count and totals[g] == total
