"""Sums into arrays of 16 bits are rounded once, however the loops around them stand.

Random nests of loops are run by NumPy in f64 and rounded at the end; the numbers are whole, so that
sums in f32 are exact and one rounding too many shows.
"""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.tile_compilation import launches
from tests.unit.lower.ast_to_schedule.lowering import lower_source
from tests.unit.lower.ast_to_schedule.reference import Run, evaluate
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

BF16 = np.dtype(ml_dtypes.bfloat16)
SIZES = {"i": (5, 2), "j": (24, 8), "k": (9, 4)}
"""Of each axis the size and the step; ``x[i, j, k]``."""
PLACES = ("i", "j", "k", "ij", "jk", "ik", "ji")


class _Body:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.targets: list[str] = []

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def slice(self, axis: str, around: str) -> str:
        return f"{axis}:{axis}+{SIZES[axis][1]}" if axis in around else ":"

    def sum(self, depth: int, around: str) -> None:
        """One of the arrays takes in what is left of a part of ``x``."""
        place = self.r.choice([p for p in PLACES if set(p) <= set(around)] or ["i"])
        name = f"t{place}"
        if not set(place) <= set(around) or name in self.targets:
            return
        self.targets.append(name)
        part = "x[" + ", ".join(self.slice(a, around) for a in "ijk") + "]"
        for axis in (2, 1, 0):
            if "ijk"[axis] not in place:
                part = f"op.sum({part}, axis={axis})"
        if "".join(sorted(place)) != place:
            part = f"{part}.T"
        at = ", ".join(self.slice(a, around) for a in place)
        again = set(place) < set(around) and self.r.random() < 0.2  # one sum of two terms
        for _ in range(1 + again):
            self.line(depth, f"{name}[{at}] += {part}")

    def block(self, depth: int, around: str) -> None:
        left = [a for a in SIZES if a not in around]
        for _ in range(self.r.randint(1, 3)):
            kind = self.r.random()
            if left and kind < 0.6:
                axes = self.r.sample(left, self.r.choice((1, 1, min(2, len(left)))))
                counts = ", ".join(str(SIZES[a][0]) for a in axes)
                steps = ", ".join(str(SIZES[a][1]) for a in axes)
                self.line(depth, f"for {', '.join(axes)} in op.tile_range({counts},"
                                 f" step=({steps},)):")  # fmt: skip
                self.block(depth + 1, around + "".join(axes))
            elif around and kind < 0.7:
                self.line(depth, f"if w[{around[-1]}] > 1.0:")
                self.sum(depth + 1, around)
                self.line(depth + 1, "pass")
            elif around:
                self.sum(depth, around)
        self.line(depth, "pass")


def body_of(seed: int) -> _Body:
    made = _Body(seed)
    axis = made.r.choice(list(SIZES))
    made.line(0, f"for {axis} in op.tile_range({SIZES[axis][0]}, step={SIZES[axis][1]}):")
    made.block(1, axis)
    return made


def text_of(made: _Body) -> str:
    given = "".join(f", t{p}: mut bf16[{', '.join(str(SIZES[a][0]) for a in p)}]" for p in PLACES)
    shape = ", ".join(str(n) for n, _ in SIZES.values())
    head = f"@op.kernel\ndef f(x: bf16[{shape}], w: f32[24]{given}):\n"
    return head + "".join(f"    {line}\n" for line in made.lines)


class _Op:
    sum = staticmethod(np.sum)

    @staticmethod
    def tile_range(*counts: int, step: Any) -> Any:
        steps = step if isinstance(step, tuple) else (step,)
        ranges = [range(0, n, s) for n, s in zip(counts, steps, strict=True)]
        return ranges[0] if len(ranges) == 1 else [(a, b) for a in ranges[0] for b in ranges[1]]


def arrays(seed: int) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    made = {
        "x": r.integers(0, 9, [n for n, _ in SIZES.values()]).astype(BF16),
        "w": r.integers(0, 4, 24).astype(np.float32),
    }
    for p in PLACES:
        made[f"t{p}"] = r.integers(240, 256, [SIZES[a][0] for a in p]).astype(BF16)
    return made


def expected(made: _Body, given: dict[str, Any]) -> dict[str, Any]:
    after = {k: v.astype(np.float64) for k, v in given.items()}
    lines = "".join(f"    {line}\n" for line in made.lines)
    names: dict[str, Any] = {"op": _Op}
    exec(compile(f"def f({', '.join(after)}):\n{lines}", "<nest>", "exec"), names)
    names["f"](*after.values())
    return {k: v.astype(given[k].dtype) for k, v in after.items()}


def shown(found: dict[str, Any], want: dict[str, Any], text: str) -> None:
    for name, value in want.items():
        assert np.array_equal(found[name], value), (name, found[name], value, text)


def checked(seed: int) -> None:
    """The nest is taken, and what it leaves is compared."""
    made = body_of(seed)
    text, given = text_of(made), arrays(seed)
    program, plan, _ = lower_source(text, *given.values())
    found = {k: v.copy() for k, v in given.items()}
    parts, remarks = launches(program, plan, PassRunner())
    assert not any(d.severity == "error" for d in remarks), (remarks, text)
    if len(parts) == 1:
        ((part, _),) = parts
        evaluate(part, list(found.values()), Run(shuffle=np.random.default_rng(seed)))
    else:
        loaded(text).f(*found.values())
    shown(found, expected(made, given), text)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 6, 8])
@pytest.mark.sample(1)
def test_sums_are_rounded_once(seed: int) -> None:
    checked(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_more_sums_are_rounded_once(part: int) -> None:
    for seed in range(9 + 12 * part, 21 + 12 * part):
        checked(seed)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", GPU])
def test_on_a_gpu(target: str) -> None:
    for seed in range(8):
        made = body_of(seed)
        text, given = text_of(made), arrays(seed)
        want = expected(made, given)
        loaded(text, target).f(*given.values())
        shown(given, want, text)


SUMS = """
@op.kernel
def rows(x: bf16[m, n], a: mut bf16[n], b: mut bf16[n]):
    for r in op.tile_range(m):
        if x[r, 0] > 6.0: continue
        a[:] += x[r, :]
        b[:] += x[r, :] + 1.0

@op.kernel
def both(x: bf16[m, n], a: mut bf16[n], b: mut bf16[m]):
    s: f32 = 0.0
    for r in op.tile_range(m):
        a[:] += x[r, :]
        b[r] += op.sum(x[r, :])
        s = s * 0.5 + x[r, 0].to(f32)
    return s
"""


@pytest.mark.parametrize("target", ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU])
@pytest.mark.parametrize("shape", [(0, 9000), (1, 1), (3, 8200), (70, 129)])
@pytest.mark.sample(2)
def test_two_sums_in_one_loop(shape: tuple[int, int], target: str) -> None:
    """Of rows that have no capacity, and of those that have one."""
    m, n = shape
    r = np.random.default_rng(m)
    x, a, b = (r.integers(0, 9, s).astype(BF16) for s in ((m, n), n, n))
    module, wide = loaded(SUMS, target), x.astype(np.float64)
    kept = wide[wide[:, 0] <= 6] if n else wide
    want = [(a + kept.sum(0)).astype(BF16), (b + (kept + 1).sum(0)).astype(BF16)]
    c, d = a.copy(), b.copy()
    module.rows(x, c, d)
    assert np.array_equal(c, want[0])
    assert np.array_equal(d, want[1])
    e = r.integers(0, 9, m).astype(BF16)
    sums, s = (e + wide.sum(1)).astype(BF16), 0.0
    for row in range(m):
        s = s * 0.5 + float(wide[row, 0])
    c = a.copy()
    assert np.float32(s) == module.both(x, c, e)
    assert np.array_equal(c, (a + wide.sum(0)).astype(BF16))
    assert np.array_equal(e, sums)


def test_places_apart_are_sums_of_their_own() -> None:
    text = """
@op.kernel
def f(x: bf16[m, 16], a: mut bf16[16]):
    for r in op.tile_range(m, step=4):
        a[0:8] += op.sum(x[r:r+4, 0:8], axis=0)
        a[8:16] += op.sum(x[r:r+4, 8:16], axis=0)
"""
    x = np.random.default_rng(0).integers(0, 9, (300, 16)).astype(BF16)
    a = np.full(16, 255, BF16)
    loaded(text).f(x, a)
    assert np.array_equal(a, (255 + x.astype(np.float64).sum(0)).astype(BF16))
