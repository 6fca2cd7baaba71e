"""Printed Tile IR of whole kernels, behind the Tile passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera_lang.ir.core import Program
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.lower import finish_plan
from tests.unit.lowering import lower_source, optimized
from tests.unit.same_program import same_program

KERNELS = {
    "sum_reduce": (
        "@kernel tile[(128,)] shared(16_KiB)\n"
        "def sum_reduce(x: f32[n], out: mut f32[grid_groups]):\n"
        "    smem = tshared.alloc\n"
        "    i = tile_linear_id()\n"
        "    acc = 0.0\n"
        "    for k in range(i, n, group_tile_count()):\n"
        "        acc += x[k]\n"
        "    smem[i] = acc\n"
        "    tbarrier()\n"
        "    s = 64\n"
        "    while s > 0:\n"
        "        if i < s: smem[i] += smem[i + s]\n"
        "        tbarrier()\n"
        "        s //= 2\n"
        "    if i == 0:\n"
        "        atomic_add(out[group_linear_id()], smem[0])\n"
    ),
    "add": (
        "@kernel tile[(256,)] grid[(ceil_div(n, 256),)]\n"
        "def add(x: f32[n], y: f32[n], out: mut f32[n]):\n"
        "    i = grid_tile_linear_id()\n"
        "    if i < n: out[i] = x[i] + y[i]\n"
    ),
    "histogram": (
        "@kernel tile[(256,)] shared(4_KiB) grid[(min(ceil_div(n, 4096), 1056),)]\n"
        "def histogram[BINS: int = 256](x: u8[n], counts: mut i32[BINS]):\n"
        "    local = tshared.alloc((BINS,), i32)\n"
        "    for b in range(tile_linear_id(), BINS, group_tile_count()):\n"
        "        local[b] = 0\n"
        "    tbarrier()\n"
        "    for i in range(grid_tile_linear_id(), n, grid_tile_count()):\n"
        '        atomic_add(local[x[i]], 1, scope="group")\n'
        "    tbarrier()\n"
        "    for b in range(tile_linear_id(), BINS, group_tile_count()):\n"
        "        atomic_add(counts[b], local[b])\n"
    ),
    "transpose": (
        "@kernel tile[(8, 8)] shared(1_KiB)\n"
        "def transpose(x: f32[m, n], out: mut f32[n, m]):\n"
        "    t = tshared.alloc((8, 9), f32)\n"
        "    a = tile_id(0)\n"
        "    b = tile_id(1)\n"
        "    i = group_id(0) * 8 + a\n"
        "    j = group_id(1) * 8 + b\n"
        "    t[a, b] = x[i, j] if i < m and j < n else 0.0\n"
        "    tbarrier()\n"
        "    if group_id(1) * 8 + a < n and group_id(0) * 8 + b < m:\n"
        "        out[group_id(1) * 8 + a, group_id(0) * 8 + b] = t[b, a]\n"
    ),
    "first_negative": (
        "@kernel tile[(32,)]\n"
        "def first_negative(x: f32[m, n], out: mut i64[m]):\n"
        "    r = grid_tile_linear_id()\n"
        "    if r >= m: return\n"
        "    found = i64(-1)\n"
        "    for j in range(n):\n"
        "        if x[r, j] < 0.0:\n"
        "            found = i64(j)\n"
        "            break\n"
        "    out[r] = found\n"
    ),
    "helpers": (
        "def clamp(v, low, high):\n"
        "    return min(max(v, low), high)\n\n"
        "def find(x: f32[n], k: index) -> index:\n"
        "    for i in range(n):\n"
        "        if i == k: return i\n"
        "        if x[i] < 0.0: return i + 1\n"
        "    return n\n\n"
        "@kernel tile[(64,)]\n"
        "def helpers(x: f32[n], out: mut f32[n], place: mut i64[n], k: index):\n"
        "    i = grid_tile_linear_id()\n"
        "    if i < n:\n"
        "        out[i] = clamp(x[i], -1.0, 1.0)\n"
        "        place[i] = i64(find(x, k))\n"
    ),
    "search": (
        "@kernel tile[(64,)]\n"
        "def search(b: f32[m], x: f32[n], out: mut i64[n]):\n"
        "    i = grid_tile_linear_id()\n"
        "    if i >= n: return\n"
        "    low = 0\n"
        "    high = m\n"
        "    while low < high:\n"
        "        middle = (low + high) // 2\n"
        "        if b[middle] < x[i]:\n"
        "            low = middle + 1\n"
        "        else:\n"
        "            high = middle\n"
        "    out[i] = i64(low)\n"
    ),
    "loops": (
        "@kernel tile[(32,)]\n"
        "def loops(x: f32[n], out: mut f32[n], step: index):\n"
        "    total = 0.0\n"
        "    k = 0\n"
        "    while True:\n"
        "        last = total\n"
        "        if k >= n: break\n"
        "        for j in range(0, k, step):\n"
        "            if j == 3: continue\n"
        "            if x[j] < 0.0: break\n"
        "            total += x[j]\n"
        "        k += 1\n"
        "    out[tile_linear_id()] = total + last\n"
    ),
    "mixed": (
        "@kernel tile[(64,)]\n"
        "def mixed(x: i32[n], y: u64[n], z: u8[n], out: mut i32[n], s: i32):\n"
        "    i = grid_tile_linear_id()\n"
        "    if i < n and x[i] > y[i]:\n"
        "        out[i] = x[i] // s + x[-1]\n"
        "    elif 0 <= i < n:\n"
        "        out[i] += (x[i] << 2) + i32(z[i])\n"
    ),
    "atomics": (
        "@kernel tile[(64,)]\n"
        "def atomics(lock: mut i32[1], best: mut f32[1], x: f32[n]):\n"
        "    i = grid_tile_linear_id()\n"
        "    if i < n:\n"
        "        atomic_max(best[0], x[i])\n"
        '        old = atomic_cas(lock[0], 0, 1, scope="device", order="acquire")\n'
        "        if old == 0:\n"
        '            tfence("device")\n'
        '            atomic_store(lock[0], 0, order="release")\n'
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_printed(name: str, golden: Callable[[str, str], None]) -> None:
    program = optimized(KERNELS[name])
    text = print_program(program)
    golden(f"tile/{name}.tile", text)
    parsed: Program = parse_program(text)
    assert same_program(parsed, program)


def test_the_plan_of_the_reduction() -> None:
    _, plan, _ = lower_source(KERNELS["sum_reduce"])
    assert [(s.kind, s.parameter, s.symbol) for s in plan.slots] == [
        ("data", 0, ""), ("data", 1, ""), ("symbol", -1, "n"),
    ]  # fmt: skip
    assert plan.group == (128,) and plan.shared_bytes == 16384
    assert finish_plan(optimized(KERNELS["sum_reduce"]), plan).shared_bytes == 512
    assert [(s.kind, s.what, s.line) for s in plan.sites][:2] == [
        ("read", "x[k]", 7), ("write", "smem[i]", 8),
    ]  # fmt: skip
