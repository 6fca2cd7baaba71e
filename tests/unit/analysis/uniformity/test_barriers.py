"""Barriers: what is accepted, what is refused, and what the refusal points at."""

from __future__ import annotations

import pytest

from tessera_lang.analysis import Level, check_barriers, uniformity
from tests.unit.lowering import lower_source

HEAD = "@kernel tile[(128,)] shared(1_KiB)\n"

ACCEPTED = {
    "a loop over sizes": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    smem = tshared.alloc((128,), f32)\n"
        "    t = tile_linear_id()\n"
        "    for base in range(0, n, 128):\n"
        "        if base + t < n: smem[t] = x[base + t]\n"
        "        tbarrier()\n"
        "        if base + t < n: out[base + t] = smem[127 - t]\n"
        "        tbarrier()\n"
    ),
    "continue behind a barrier at the head (B93)": (
        "def k(x: f32[128], out: mut f32[1], n2: index):\n"
        "    smem = tshared.alloc((128,), f32)\n"
        "    t = tile_linear_id()\n"
        "    smem[t] = x[t]\n"
        "    s = 1\n"
        "    while s <= n2:\n"
        "        tbarrier()\n"
        "        s2 = s\n"
        "        s *= 2\n"
        "        if t % (2 * s2) != 0: continue\n"
        "        smem[t] += smem[t + s2]\n"
    ),
    "a uniform return": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    if n < 128: return\n"
        "    tbarrier()\n"
        "    out[0] = x[0]\n"
    ),
    "a condition on what no lane writes": (
        "def k(x: i32[n], out: mut i32[n]):\n"
        "    if x[group_linear_id()] > 0:\n"
        "        tbarrier()\n"
        "    out[0] = 1\n"
    ),
    "a break on a uniform condition": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    i = 0\n"
        "    while True:\n"
        "        tbarrier()\n"
        "        i += 1\n"
        "        if i >= n: break\n"
        "    tbarrier()\n"
    ),
    "lanes that part and meet again": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    t = tile_linear_id()\n"
        "    for i in range(t, n, 128):\n"
        "        if x[i] < 0.0: break\n"
        "    tbarrier()\n"
    ),
    "a helper that returns early, left by all": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    t = tile_linear_id()\n"
        "    if first(t) == 0: out[t] = 1.0\n"
        "    tbarrier()\n"
    ),
}
HELPER = "def first(t: index) -> index:\n    if t > 3:\n        return 1\n    return 0\n\n"

REFUSED = {
    "excess lanes return (B73)": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    smem = tshared.alloc((128,), f32)\n"
        "    i = grid_tile_linear_id()\n"
        "    if i >= n: return\n"
        "    smem[tile_linear_id()] = x[i]\n"
        "    tbarrier()\n",
        ["i >= n", "return", "grid_tile_linear_id()"],
    ),
    "continue before the barrier (B81)": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    t = tile_linear_id()\n"
        "    for i in range(n):\n"
        "        if t % 2 == 0: continue\n"
        "        tbarrier()\n",
        ["t % 2 == 0", "continue", "tile_linear_id()"],
    ),
    "a break that some lanes take (B95)": (
        "def k(x: f32[n], out: mut f32[n], c: index):\n"
        "    t = tile_linear_id()\n"
        "    while True:\n"
        "        tbarrier()\n"
        "        if t < c: break\n",
        ["t < c", "break", "tile_linear_id()"],
    ),
    "a loop whose length differs": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    for i in range(tile_linear_id(), n, 128):\n"
        "        tbarrier()\n",
        ["range(tile_linear_id(), n, 128)", "tile_linear_id()"],
    ),
    "a condition on shared memory": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    smem = tshared.alloc((128,), f32)\n"
        "    smem[tile_linear_id()] = 1.0\n"
        "    if smem[0] > 0.0:\n"
        "        tbarrier()\n",
        ["smem[0] > 0.0", "smem[0]"],
    ),
    "a condition on an array the kernel writes": (
        "def k(out: mut f32[n]):\n    if out[0] > 0.0:\n        tbarrier()\n    out[0] = 1.0\n",
        ["out[0] > 0.0", "out[0]"],
    ),
    "short circuit (B97)": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    t = tile_linear_id()\n"
        "    if t > 5 or waits(t):\n"
        "        out[t] = 1.0\n",
        ["t > 5 or waits(t)", "tile_linear_id()", "waits(t)"],
    ),
    "a value that differs because its loop did": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    count = 0\n"
        "    for i in range(tile_linear_id(), n, 128):\n"
        "        count += 1\n"
        "    if count > 3:\n"
        "        tbarrier()\n",
        ["count > 3", "tile_linear_id()"],
    ),
    "a value chosen by a varying condition": (
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    s = 1\n"
        "    if tile_linear_id() < 3:\n"
        "        s = 2\n"
        "    if s == 2:\n"
        "        tbarrier()\n",
        ["s == 2", "tile_linear_id()"],
    ),
}
WAITS = "def waits(t: index) -> bool:\n    tbarrier()\n    return t > 2\n\n"


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    _, _, diagnostics = lower_source(HELPER + HEAD + ACCEPTED[name])
    assert diagnostics == ()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, places = REFUSED[name]
    text = WAITS + HEAD + body
    _, _, diagnostics = lower_source(text)
    assert [d.code for d in diagnostics] == ["T0401"]
    (found,) = diagnostics
    assert found.span is not None
    assert text[found.span.lo : found.span.hi] == "tbarrier()"
    assert [text[label.span.lo : label.span.hi] for label in found.labels] == places


def test_levels() -> None:
    program, _, _ = lower_source(
        "@kernel tile[(32,)]\n"
        "def k(x: i32[n], out: mut i32[n], a: index):\n"
        "    c = 3 * 4\n"
        "    u = a + c\n"
        "    g = group_linear_id() + u\n"
        "    v = tile_linear_id() + g\n"
        "    r = x[g]\n"
        "    w = x[v]\n"
        "    out[v] = r + w\n"
    )
    (kernel,) = program.operations
    found = uniformity(kernel)
    levels = {v.name: found.level(v) for o in kernel.walk() for v in o.results if v.name}
    assert levels["u"] == levels["g"] == levels["r"] == Level.UNIFORM
    assert levels["v"] == levels["w"] == Level.VARYING
    assert levels["c"] == Level.CONSTANT
    assert not found.divergent
    assert check_barriers(kernel, found) == ()


def test_a_group_of_one_lane_is_uniform() -> None:
    _, _, diagnostics = lower_source(
        "@kernel tile[(1,)]\ndef k(x: f32[n]):\n    if tile_linear_id() < n:\n        tbarrier()\n"
    )
    assert diagnostics == ()
