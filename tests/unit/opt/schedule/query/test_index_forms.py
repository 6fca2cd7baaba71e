"""Proofs that iterations touch other elements, with starts made of sizes, quotients, products,
minima and choices: what is proved holds for every size that was tried."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, PointerType, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.verify import verify
from tessera_lang.opt.schedule.parallel.independence import verdicts
from tessera_lang.opt.schedule.query.array_dependence import FOR
from tessera_lang.opt.schedule.query.def_use import arrays_of, definitions_of
from tessera_lang.types.dtype import F32, INDEX

SIZES = ("n", "m")
AXES = ("i", "j")
Numbers = Mapping[str, int]
Compute = Callable[[Numbers], int]


class Expression:
    """An index value of a kernel, and what it is for numbers."""

    def __init__(self, value: Value, compute: Compute) -> None:
        self.value, self.compute = value, compute


class Made:
    """A kernel of two loops that stores ``width`` elements at a random place of each iteration."""

    def __init__(self, seed: int) -> None:
        self.r, self.b = random.Random(seed), ScheduleBuilder()
        b, names = self.b, ("p", *SIZES)
        types = (PointerType(F32, "global"), INDEX, INDEX)
        with b.region(*zip(names, types, strict=True)) as body:
            pointer, *sizes = body.arguments
            self.leaves = [
                Expression(v, lambda at, k=k: at[k]) for k, v in zip(SIZES, sizes, strict=True)
            ]
            views = [b.view(pointer, [v], mut=True) for v in sizes]
            self.uppers = [self.expression(1) for _ in AXES]
            with b.region(*((a, INDEX) for a in AXES)) as region:
                self.leaves += [
                    Expression(v, lambda at, k=k: at[k])
                    for k, v in zip(AXES, region.arguments, strict=True)
                ]
                self.start, self.extent = self.expression(3), self.expression(1)
                self.capacity = self.r.choice((1, 4, 16))
                width = b.binary("min", b.index(self.capacity), self.extent.value)
                width = b.binary("max", b.index(0), width)
                self.guard = self.condition() if self.r.random() < 0.4 else None
                start = self.start.value
                if self.guard is not None:
                    start = b.select(self.guard.value, start, b.index(0))
                    width = b.select(self.guard.value, width, b.index(0))
                tile = b.full(b.constant(1, F32), (self.capacity,))
                b.store_tile(tile, views[0], [start], [width])
                b.yield_()
            zero, self.steps = b.index(0), [self.r.choice((1, 1, 2, 4)) for _ in AXES]
            uppers, steps = [e.value for e in self.uppers], [b.index(s) for s in self.steps]
            b.loops([zero, zero], uppers, steps, (), region.region, AXES)
            b.return_()
        b.schedule_kernel("k", body.region, names)
        (self.kernel,) = verify(b.program()).operations

    def expression(self, depth: int) -> Expression:
        b, r = self.b, self.r
        kind = r.random()
        if depth == 0 or kind < 0.25:
            if r.random() < 0.3:
                number = r.choice((0, 1, 2, 3, 4, 8))
                return Expression(b.index(number), lambda at: number)
            return r.choice(self.leaves)
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        op = r.choice(("add", "add", "mul", "mul", "sub", "floordiv", "mod", "min", "max"))
        if op in ("floordiv", "mod") and r.random() < 0.6:
            number = r.choice((2, 3, 8))
            y = Expression(b.index(number), lambda at: number)
        compute = ARITHMETIC[op]
        value = b.binary(op, x.value, y.value)
        return Expression(value, lambda at: compute(x.compute(at), y.compute(at)))

    def condition(self) -> Expression:
        x, y = self.expression(1), self.expression(1)
        word = self.r.choice(("lt", "le", "ge", "eq"))
        test = COMPARISONS[word]
        value = self.b.cmp(word, x.value, y.value)
        return Expression(value, lambda at: test(x.compute(at), y.compute(at)))

    def verdicts(self) -> list[bool]:
        loop = next(o for o in self.kernel.walk() if o.name == FOR)
        found = verdicts(loop, definitions_of(self.kernel), arrays_of(self.kernel))
        return [v.grid for v in found]

    def touched(self, at: Numbers) -> range:
        if self.guard is not None and not self.guard.compute(at):
            return range(0)
        width = max(0, min(self.capacity, self.extent.compute(at)))
        start = self.start.compute(at)
        return range(start, start + width)

    def meets(self, axis: int, sizes: Numbers) -> bool:
        """Whether two iterations that differ along an axis touch one element."""
        ends = [e.compute(sizes) for e in self.uppers]
        seen: dict[int, set[int]] = {}
        steps = (range(0, end, step) for end, step in zip(ends, self.steps, strict=True))
        for place in itertools.product(*steps):
            at = {**sizes, **dict(zip(AXES, place, strict=True))}
            for element in self.touched(at):
                seen.setdefault(element, set()).add(place[axis])
        return any(len(places) > 1 for places in seen.values())


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "min": min, "max": max, "floordiv": _floordiv, "mod": lambda a, b: a % b if b else 0,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
}  # fmt: skip


def proofs(seeds: range) -> int:
    """How many axes were proved, each of which held."""
    found = 0
    for seed in seeds:
        made = Made(seed)
        for axis, grid in enumerate(made.verdicts()):
            if not grid:
                continue
            found += 1
            for n, m in itertools.product((0, 1, 2, 5, 9), (0, 1, 3, 8)):
                assert not made.meets(axis, {"n": n, "m": m}), (seed, axis, n, m)
    return found


def test_what_is_proved_holds() -> None:
    """At least so many of random places are proved, or the test says nothing."""
    assert proofs(range(120)) > 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_what_is_proved_holds_more(part: int) -> None:
    assert proofs(range(120 + 500 * part, 620 + 500 * part)) > 60


# --- programs ---------------------------------------------------------------------------------

SPREAD = {
    "a smaller size": (
        "x: f32[n]", "(n - 2,)", "i in op.tile_range(n - 2, step=1)", "s[i] = x[i] + x[i+2]", "i"),
    "a quotient": (
        "x: f32[n]", "(n // 8,)", "i in op.tile_range(n // 8, step=1)", "s[i] = x[8*i]", "i"),
    "a multiple": (
        "x: f32[n]", "(2*n,)", "i in op.tile_range(2*n, step=1)", "s[i] = x[i // 2]", "i"),
    "a larger size": (
        "x: f32[n]", "(n + 2,)", "i in op.tile_range(n, step=1)", "s[i+2] = x[i]", "i"),
    "rounded up": (
        "x: f32[n]", "((n + 7) // 8,)", "i in op.tile_range((n + 7) // 8, step=1)",
        "s[i] = x[8*i]", "i"),
    "parts of a row": (
        "x: f32[b, n]", "(b, n)", "i, g in op.tile_range(b, 4, step=(1, 1))",
        "s[i, g*(n//4):g*(n//4)+n//4] = x[i, g*(n//4):g*(n//4)+n//4]", "ig"),
    "another axis beside": (
        "x: f32[b, n]", "(b, n // 8)", "i, j in op.tile_range(b, n // 8, step=(1, 1))",
        "s[i, j] = x[i, 8*j]", "ij"),
    "every second one": (
        "x: f32[n]", "(2*n,)", "i in op.tile_range(n, step=1)", "s[2*i+1] = x[i]", "i"),
    "by rows of a matrix": (
        "x: f32[m, n]", "(m*n,)", "i, j in op.tile_range(m, n, step=(1, 1))",
        "s[i*n+j] = x[i, j]", "i"),
}  # fmt: skip


def loops_of(parameters: str, size: str, loop: str, body: str) -> list[Operation]:
    text = f"@op.kernel\ndef k({parameters}):\n    s = op.zeros({size}, f32)\n    for {loop}:\n"
    session = Session(overlay={"k.tessera": f"{text}        {body}\n    return s\n"})
    wanted = session.signature("k.tessera", "k")
    programs = session.scheduled("k.tessera", "k", wanted)
    return [o for p in programs for o in p.operations[0].walk() if o.name == FOR]


@pytest.mark.parametrize("name", SPREAD)
def test_these_are_spread(name: str) -> None:
    """Sizes that are computed, with and without a guard that stays."""
    *given, axes = SPREAD[name]
    mapped = [
        axis for o in loops_of(*given)
        for axis, how in zip(o.strings("axes"), o.strings("mapping"), strict=True) if how == "grid"
    ]  # fmt: skip
    assert set(axes) <= set(mapped)


@pytest.mark.parametrize(
    "body",
    ["s[i // 2] = x[i]", "s[i % 4] = x[i]", "s[n - i // 3 - 1] = x[i]", "s[min(i, 3)] = x[i]"],
)
def test_these_are_not(body: str) -> None:
    loops = loops_of("x: f32[n]", "(n,)", "i in op.tile_range(n, step=1)", body)
    assert not any("grid" in o.strings("mapping") and "i" in o.strings("axes") for o in loops)
