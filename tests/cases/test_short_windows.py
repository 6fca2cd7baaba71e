"""Windows of a few elements, cut off at the edges of an array or away from it: reductions of them,
element by element, against NumPy, on the CPU and as the code of a GPU, whose lanes have the turns
of such loops written out."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.tile_compilation import ForMachine
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded
from tests.unit.opt.schedule.decided import from_source

Array = np.ndarray[Any, np.dtype[Any]]

POOL = """
@op.kernel
def kernel[K: int, S: int, P: int, D: int](x: f32[SIZES], y: mut f32[OUT]):
    for AXES in op.tile_range(OUT, step=1):
        y[AXES] = op.KIND(x[WINDOW])
"""
LOOPS = """
@op.kernel
def kernel(x: f32[n, m], y: mut f32[n, m], r: i32):
    for i, j in op.tile_range(n, m, step=1):
        acc = 1.0
        for a in range(min(r, 3)):
            for c in range(min(m - j, 2)):
                acc = acc * 2.0 + x[i, j + c]
        y[i, j] = acc
"""


def pool(rank: int, kind: str) -> str:
    names = "abcd"[:rank]
    window = ", ".join(
        f"max({n}*S - P, 0):max(min(max({n}*S - P, 0) + D*(K-1) + 1, {n}*S - P + D*(K-1) + 1), 0):D"
        for n in names
    )
    text = POOL.replace("SIZES", ", ".join(f"s{n}" for n in names))
    text = text.replace("OUT", ", ".join(f"o{n}" for n in names))
    return text.replace("AXES", ", ".join(names)).replace("KIND", kind).replace("WINDOW", window)


def pooled(x: Array, out: tuple[int, ...], kind: str, k: int, s: int, p: int, d: int) -> Array:
    reduce = getattr(np, kind)
    found = np.zeros(out, np.float32)
    for at in itertools.product(*map(range, out)):
        part = x[
            tuple(slice(max(o * s - p, 0), max(0, o * s - p + d * (k - 1) + 1), d) for o in at)
        ]
        empty = {"max": -np.inf, "min": np.inf, "sum": 0.0}[kind]
        found[at] = reduce(part) if part.size else empty
    return found


def by_lanes(text: str, shapes: str) -> ForMachine:
    """The kernel as it is made for arrays so large that a lane takes each element."""
    made = from_source(text, shapes)
    assert made.schedule.operations[0].attributes.get("iterations") == "lanes"
    return made


def run(made: ForMachine, *arrays: Any) -> None:
    """The schedule for a GPU, on arrays that are small enough to be computed one by one."""
    assert made.lowered is not None
    reference.launch(made.schedule, made.lowered[1], *arrays)


HOW = [(3, 1, 1, 1), (2, 2, 1, 1), (3, 2, 1, 3), (3, 1, 2, 1), (2, 1, 4, 1), (2, 3, 0, 5)]


@pytest.mark.parametrize("kind", ["max", "min", "sum"])
@pytest.mark.parametrize("size", [(25,), (9, 12), (5, 4, 6), (3, 2, 2, 5)])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.sample(1)
def test_pooling(kind: str, size: tuple[int, ...], how: tuple[int, int, int, int]) -> None:
    k, s, p, d = how
    rng = np.random.default_rng(sum(size))
    x = rng.integers(-9, 10, size).astype(np.float32)
    if kind != "sum":
        x[rng.random(size) < 0.02] = np.nan
    out = tuple(min(-(-(n + 2 * p) // s) + 1, 20 // len(size)) for n in size)
    ours, theirs = np.zeros(out, np.float32), np.zeros(out, np.float32)
    text, numbers = pool(len(size), kind), {"K": k, "S": s, "P": p, "D": d}
    large = ",".join(("1000001", "1001", "101", "33")[len(size) - 1] for _ in size)
    said = ", ".join(f"{n}={v}" for n, v in numbers.items())
    run(by_lanes(text, f"x: f32[{large}], y: mut f32[{large}], {said}"), x, ours)
    tessera.compile(text, target="cpu").kernel(x, theirs, **numbers)
    right = pooled(x, out, kind, k, s, p, d)
    np.testing.assert_array_equal(theirs, right)
    np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize("turns", [-1, 0, 1, 2, 3, 9])
def test_turns_in_order(turns: int) -> None:
    """What a turn makes of the one before is made as often as the loop runs."""
    x = np.random.default_rng(1).integers(-3, 4, (5, 7)).astype(np.float32)
    ours, theirs = np.zeros_like(x), np.zeros_like(x)
    run(by_lanes(LOOPS, "x: f32[1001,1001], y: mut f32[1001,1001], r: i32"), x, ours, turns)
    tessera.compile(LOOPS, target="cpu").kernel(x, theirs, turns)
    right = np.ones_like(x)
    for _ in range(max(0, min(turns, 3))):
        for c in range(2):
            there = right[:, : 7 - c]
            there[:] = there * 2 + x[:, c:]
    np.testing.assert_array_equal(theirs, right)
    np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize(("rank", "size"), [(1, "1048576"), (2, "1024,1024"), (3, "128,128,128")])
@pytest.mark.sample(1)
def test_loads_stand_side_by_side(rank: int, size: str) -> None:
    made = by_lanes(pool(rank, "max"), f"x: f32[{size}], y: mut f32[{size}], K=3, S=1, P=1, D=1")
    (chosen,) = (o for o in made.schedule.operations[0].walk() if o.name == "tile.if")
    straight = chosen.regions[0]
    assert not [o for o in straight.walk() if o.name.endswith("schedule.for")]
    assert len([o for o in straight.walk() if o.name.endswith("schedule.load")]) == 3**rank


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
@pytest.mark.parametrize("size", [(40000,), (300, 400), (40, 50, 60)])
@pytest.mark.parametrize("how", HOW)
def test_pooling_on_a_gpu(kind: str, size: tuple[int, ...], how: tuple[int, int, int, int]) -> None:
    k, s, p, d = how
    x = np.random.default_rng(sum(size)).integers(-9, 10, size).astype(np.float32)
    out = tuple(-(-(n + 2 * p) // s) + 1 for n in size)
    ours, theirs = np.zeros(out, np.float32), np.zeros(out, np.float32)
    for target, y in (("cuda", ours), ("cpu", theirs)):
        loaded(pool(len(size), kind), target).kernel(x, y, K=k, S=s, P=p, D=d)
    np.testing.assert_array_equal(ours, theirs)
