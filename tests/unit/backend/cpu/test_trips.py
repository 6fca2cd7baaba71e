"""Loops of the group whose lanes make different numbers of steps, against Python's range."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

LANES = 16

SOURCE = """
@kernel tile[{group}] grid[(1,)]
def steps(x: i64[n], trips: mut i64[n], last: mut i64[n], a: i64, b: i64, c: i64, d: i64, s: i64):
    i = tile_linear_id()
    count = i64(0)
    seen = i64(-1)
    for k in range(index(a) * i + index(b), index(c) * i + index(d), {step}):
        count += x[i]
        seen = i64(k)
    trips[i] = count
    last[i] = seen
"""

NESTED = """
@kernel tile[(16,)] grid[(1,)]
def steps(x: i64[n], trips: mut i64[n], last: mut i64[n], a: i64, b: i64, c: i64, d: i64, s: i64):
    i = tile_linear_id()
    count = i64(0)
    seen = i64(-1)
    for j in range(i, 20, 7):
        for k in range(index(a) * i + index(b), index(c) * i + index(d), index(s)):
            count += x[i]
            seen = i64(k)
    trips[i] = count
    last[i] = seen
"""


@lru_cache
def kernel(source: str, step: str, group: str) -> Any:
    text = source.format(step=step, group=group) if source is SOURCE else source
    return tessera.compile(text, target="cpu").steps


def wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def outer_steps(lane: int) -> range:
    return range(lane, 20, 7)


def check(
    run: Any, numbers: tuple[int, int, int, int, int], repeat: Callable[[int], range] | None = None
) -> None:
    a, b, c, d, s = numbers
    x = np.ones(LANES, np.int64)
    trips, last = np.full(LANES, -9), np.full(LANES, -9)
    run(x, trips, last, a, b, c, d, s)
    for i in range(LANES):
        steps = range(wrapped(a * i + b), wrapped(c * i + d), s)
        times = len(repeat(i)) if repeat else 1
        assert trips[i] == len(steps) * times, (numbers, i)
        assert last[i] == (steps[-1] if steps and times else -1), (numbers, i)


EDGE = (1 << 63) - 1
CASES = (
    (1, 0, 0, 100, 16), (1, 0, 0, 96, 16), (1, 0, 0, 97, 16), (1, 0, 0, 5, 16), (1, 0, 0, 0, 16),
    (4, 0, 4, 100, 7), (4, 0, 4, 0, 7), (0, 3, 1, 3, 1), (0, 3, -1, 3, 2), (3, 0, 0, 20, 1),
    (1, 100, 0, 0, -16), (-1, 96, 0, 0, -16), (1, 5, 2, 0, -3), (1, 0, 0, EDGE, EDGE // 3),
    (1, EDGE - 15, 0, EDGE, 4), (1, -EDGE, 0, EDGE, EDGE), (1, 0, 0, 40, 1 << 62),
    (-1, -EDGE + 20, 0, -EDGE, -5), (1 << 60, 0, 0, EDGE, 1 << 60), (1 << 61, 0, 0, 3, 1 << 60),
    (0, EDGE, 1, EDGE - 5, 2), (1, EDGE - 3, 1, EDGE, 2),
)  # fmt: skip


@pytest.mark.parametrize("group", ["(16,)", "(4, 4)", "(2, 8)"])
@pytest.mark.parametrize("numbers", CASES, ids=str)
def test_trips(numbers: tuple[int, int, int, int, int], group: str) -> None:
    check(kernel(SOURCE, "index(s)", group), numbers)


@pytest.mark.parametrize("numbers", CASES, ids=str)
def test_trips_nested(numbers: tuple[int, int, int, int, int]) -> None:
    if abs(numbers[4]) > 1:
        check(kernel(NESTED, "", ""), numbers, outer_steps)


@pytest.mark.parametrize("step", [1, 3, 16, -1, -16])
def test_constant_step(step: int) -> None:
    generator = np.random.default_rng(step + 50)
    run = kernel(SOURCE, str(step), "(16,)")
    for _ in range(60):
        a, c = generator.integers(-4, 5, 2)
        b, d = generator.integers(-40, 60, 2)
        check(run, (int(a), int(b), int(c), int(d), step))


def test_random_steps() -> None:
    generator = np.random.default_rng(7)
    for run, repeat in ((kernel(SOURCE, "index(s)", "(16,)"), None),
                        (kernel(NESTED, "", ""), outer_steps)):  # fmt: skip
        for _ in range(150):
            a, c = generator.integers(-4, 5, 2)
            b, d, s = generator.integers(-40, 60, 3)
            check(run, (int(a), int(b), int(c), int(d), int(s) or 1), repeat)


def test_runs_side_by_side() -> None:
    """Lanes that do four neighbours each, with what is left over, in every remainder."""
    module = tessera.compile(
        """
@kernel tile[(32,)] grid[(2,)]
def sums(x: f32[n], out: mut f32[m]):
    lane = grid_tile_linear_id()
    w = grid_tile_count() * 4
    head = n - n % w
    a = 0.0
    b = 0.0
    for k in range(lane * 4, n - w + lane * 4 + 1, w):
        a += x[k] + x[k + 2]
        b += x[k + 1] + x[k + 3]
    for k in range(head + lane, n, grid_tile_count()): a += x[k]
    out[lane] = a + b

@kernel tile[(32,)] grid[(ceil_div(n, 128),)]
def doubled(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id() * 4
    if i + 3 < n:
        out[i] = x[i] + x[i]
        out[i + 1] = x[i + 1] + x[i + 1]
        out[i + 2] = x[i + 2] + x[i + 2]
        out[i + 3] = x[i + 3] + x[i + 3]
    else:
        for k in range(i, n): out[k] = x[k] + x[k]
""",
        target="cpu",
    )
    for n in (0, 1, 3, 4, 100, 127, 128, 255, 256, 257, 511, 513, 2051):
        x = np.arange(n, dtype=np.float32)
        out = np.full(64, np.nan, np.float32)
        module.sums(x, out)
        assert out.sum() == x.sum()
        out = np.full(n, np.nan, np.float32)
        module.doubled(x, out)
        np.testing.assert_array_equal(out, x + x)
