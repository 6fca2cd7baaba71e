"""Lowered kernels, run by an interpreter of Tile IR, do what the source means in Python.

Each is run before and after the Tile passes; both must agree with Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.lowering import lower_source, optimized
from tests.unit.tile_interpreter import launch


def run(text: str, *arguments: Any, groups: int = 1, copies: bool = True) -> list[Any]:
    """Arguments after the kernel ran; scalars and sizes are given in slot order."""
    results: list[list[Any]] = []
    for program in (lower_source(text)[0], optimized(text)):
        given = [a.copy() if isinstance(a, np.ndarray) else np.int64(a) for a in arguments]
        launch(program.operations[0], given, groups)
        results.append(given)
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(before, after)
    return results[0]


ONE_LANE = "@kernel tile[(1,)]\n"


def test_break_finds_the_first() -> None:
    text = ONE_LANE + (
        "def k(x: f32[n], out: mut i64[1]):\n"
        "    found = i64(-1)\n"
        "    for j in range(n):\n"
        "        if x[j] < 0.0:\n"
        "            found = i64(j)\n"
        "            break\n"
        "    out[0] = found\n"
    )
    for at in (None, 0, 3, 7):
        x = np.ones(8, np.float32)
        if at is not None:
            x[at] = -1
        assert run(text, x, np.zeros(1, np.int64), 8)[1][0] == (-1 if at is None else at)


def test_nested_loops_with_break_and_continue() -> None:
    text = ONE_LANE + (
        "def k(out: mut i64[1], n: index):\n"
        "    total = i64(0)\n"
        "    i = 0\n"
        "    while True:\n"
        "        if i >= n: break\n"
        "        for j in range(i, 20, 3):\n"
        "            if j % 4 == 1: continue\n"
        "            if j > 13: break\n"
        "            total += i64(i * j)\n"
        "        i += 1\n"
        "    out[0] = total\n"
    )
    expected = 0
    for i in range(9):
        for j in range(i, 20, 3):
            if j % 4 == 1:
                continue
            if j > 13:
                break
            expected += i * j
    assert run(text, np.zeros(1, np.int64), 9)[0][0] == expected


def test_return_inside_a_loop_of_a_helper() -> None:
    text = (
        "def find(x: f32[n], k: index) -> index:\n"
        "    for i in range(n):\n"
        "        if i == k:\n"
        "            return i\n"
        "        if x[i] < 0.0:\n"
        "            return 100 + i\n"
        "    return n\n\n" + ONE_LANE + "def kernel_(x: f32[n], out: mut i64[1], k: index):\n"
        "    out[0] = i64(find(x, k))\n"
    )
    x = np.array([1, 1, -1, 1], np.float32)
    for k, expected in ((0, 0), (1, 1), (2, 2), (3, 102)):
        assert run(text, x, np.zeros(1, np.int64), k, 4)[1][0] == expected
    ones = np.ones(4, np.float32)
    assert run(text, ones, np.zeros(1, np.int64), 9, 4)[1][0] == 4


def test_rebinding_the_loop_variable_leaves_the_iteration() -> None:
    text = ONE_LANE + (
        "def k(out: mut i64[1], end: index):\n"
        "    acc = i64(0)\n"
        "    for idx in range(0, end, 2):\n"
        "        idx = idx + 5\n"
        "        acc += i64(idx)\n"
        "    out[0] = acc\n"
    )
    assert run(text, np.zeros(1, np.int64), 9)[0][0] == sum(i + 5 for i in range(0, 9, 2))


def test_a_range_whose_last_step_would_overflow_ends() -> None:
    text = ONE_LANE + (
        "def k(out: mut i64[1]):\n"
        "    count = i64(0)\n"
        "    for i in range(2147483640, 2147483647, 4):\n"
        "        count += 1\n"
        "    out[0] = count\n"
    )
    assert run(text, np.zeros(1, np.int64))[0][0] == 2


def test_floor_division_and_modulo() -> None:
    text = ONE_LANE + (
        "def k(x: i64[n], q: mut i64[n], r: mut i64[n], d: i64):\n"
        "    for i in range(n):\n"
        "        q[i] = x[i] // d\n"
        "        r[i] = x[i] % d\n"
    )
    x = np.array([0, 1, 7, 15, -7, -1, -(2**63)], np.int64)
    for d in (-2, 2, 3, -1):
        _, q, r, *_ = run(text, x, np.zeros_like(x), np.zeros_like(x), d, len(x))
        wrap = lambda v: (v + 2**63) % 2**64 - 2**63  # noqa: E731
        assert q.tolist() == [wrap(int(v) // d) for v in x]
        assert r.tolist() == [int(v) % d for v in x]


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    ("a", "b"), [("u64", "i8"), ("i64", "u64"), ("u32", "i32"), ("i32", "u64")]
)
@pytest.mark.sample(1)
def test_comparisons_of_mixed_signs_are_exact(operator: str, a: str, b: str) -> None:
    text = ONE_LANE + (
        f"def k(x: {a}[1], y: {b}[1], out: mut i32[1]):\n"
        f"    if x[0] {operator} y[0]:\n"
        "        out[0] = 1\n"
    )
    spelled = {"i": "int", "u": "uint"}
    kinds = {t: np.dtype(spelled[t[0]] + t[1:]) for t in (a, b)}
    limits = [np.iinfo(kinds[t]) for t in (a, b)]
    interesting = (0, 1, -1, 127, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
    sides = [[v for v in interesting if i.min <= v <= i.max] for i in limits]
    for x in sides[0]:
        for y in sides[1]:
            out = np.zeros(1, np.int32)
            got = run(text, np.array([x], kinds[a]), np.array([y], kinds[b]), out)[2][0]
            assert bool(got) == eval(f"{x} {operator} {y}")


def test_short_circuit_does_not_touch_the_right_side() -> None:
    text = ONE_LANE + (
        "def k(x: f32[n], out: mut i32[n], m: index):\n"
        "    for i in range(m):\n"
        "        if i < n and x[i] > 0.0:\n"
        "            out[i] = 1\n"
        "        if i >= n or x[i] < 0.0:\n"
        "            if i < n: out[i] = 2\n"
    )
    program = lower_source(text)[0]
    x = np.array([1, -1, 0], np.float32)
    out = np.zeros(3, np.int32)
    assert launch(program.operations[0], [x, out, np.int64(6), np.int64(3)], 1) == []
    assert out.tolist() == [1, 2, 0]


def test_chained_comparison_and_conditional_expression() -> None:
    text = ONE_LANE + (
        "def k(x: i32[n], out: mut i32[n]):\n"
        "    for i in range(n):\n"
        "        out[i] = x[i] if 0 < x[i] <= 5 else -x[i]\n"
    )
    x = np.arange(-4, 9, dtype=np.int32)
    got = run(text, x, np.zeros_like(x), len(x))[1]
    assert got.tolist() == [v if 0 < v <= 5 else -v for v in x.tolist()]


def test_augmented_element_evaluates_its_index_once() -> None:
    text = ONE_LANE + ("def k(x: mut i32[n], at: mut i32[1]):\n    x[atomic_add(at[0], 1)] += 10\n")
    x, at, _ = run(text, np.zeros(4, np.int32), np.zeros(1, np.int32), 4)
    assert x.tolist() == [10, 0, 0, 0] and at.tolist() == [1]


def test_tuples_and_helpers_with_two_results() -> None:
    text = (
        "def order(a: i32, b: i32):\n"
        "    if a <= b:\n"
        "        return a, b\n"
        "    return b, a\n\n" + ONE_LANE + "def k(x: mut i32[2]):\n"
        "    low, high = order(x[0], x[1])\n"
        "    x[0] = low\n"
        "    x[1] = high\n"
    )
    assert run(text, np.array([5, 3], np.int32))[0].tolist() == [3, 5]
    assert run(text, np.array([2, 3], np.int32))[0].tolist() == [2, 3]


def test_a_guarded_read_gives_zero_and_reports() -> None:
    text = ONE_LANE + "def k(x: f32[n], out: mut f32[1], i: index):\n    out[0] = x[i]\n"
    program, plan, _ = lower_source(text)
    for i in (-1, 3):
        out = np.ones(1, np.float32)
        x = np.ones(3, np.float32)
        (site,) = launch(program.operations[0], [x, out, np.int64(i), np.int64(3)], 1)
        assert out[0] == 0
        assert (plan.sites[site].kind, plan.sites[site].what, plan.sites[site].line) == (
            "read", "x[i]", 3,
        )  # fmt: skip


def test_the_reduction_of_the_documents() -> None:
    text = (
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
    )
    for n in (0, 1, 127, 500):
        x = np.arange(n, dtype=np.float32)
        _, out, _ = run(text, x, np.ones(2, np.float32), n, groups=2)
        assert out.tolist() == [x.sum() + 1] * 2
