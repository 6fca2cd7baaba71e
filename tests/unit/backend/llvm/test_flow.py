"""Loops at the ends of their types, and what exits carry (random kernels test the rest)."""

from __future__ import annotations

import numpy as np
import pytest

from tessera_lang.ir.core import Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import BOOL, I8, I32, I64, INDEX, U8, U32, DType, integer_range
from tests.unit.backend.tile_kernels import NUMPY, Kernel, Runner, map_kernel

pytestmark = pytest.mark.optimized


@pytest.mark.parametrize("dtype", [I8, U8, I32, U32, I64, INDEX], ids=str)
def test_range_counts_as_python(dtype: DType) -> None:
    """The number of steps and the last variable, with bounds where a sum would overflow."""
    low, high = integer_range(dtype)
    ends = [v for v in (low, low + 1, low + 7, 0, 1, 100, high - 7, high - 1, high) if v >= low]
    big = max(1, (high - low) // 9)
    steps = [1, 3, 4, big, high] + ([-1, -4, -big, low] if dtype.is_signed else [])
    rows = [(a, b, s) for a in ends for b in ends for s in steps if (b - a) // s <= 300]

    def body(b: Builder, values: list[Value]) -> Value:
        lower, upper, step = values
        with b.region(("i", dtype), ("n", dtype), ("last", dtype)) as region:
            i, n, _ = region.arguments
            b.yield_(b.binary("add", n, b.constant(1, dtype)), i)
        zero = b.constant(0, dtype)
        n, last = b.for_(lower, upper, step, [zero, zero], region.region)
        return b.binary("xor", n, last)

    kind = NUMPY[dtype.name]
    columns = [np.array(c, kind) for c in zip(*rows, strict=True)]
    got = map_kernel([dtype] * 3, dtype, body)(*columns)
    for row, found in zip(rows, got, strict=True):
        steps_made = range(*row)
        last = steps_made[-1] if len(steps_made) else 0
        mask = (1 << dtype.bits) - 1
        assert int(found) & mask == (len(steps_made) ^ last) & mask, row


def test_the_range_of_a_public_report() -> None:
    """range(2147483640, 2147483647, 4) on i32 has two steps."""
    values = [np.array([v], np.int32) for v in (2147483640, 2147483647, 4)]

    def body(b: Builder, operands: list[Value]) -> Value:
        with b.region(("i", I32), ("n", I32)) as region:
            b.yield_(b.binary("add", region.arguments[1], b.constant(1, I32)))
        return b.for_(*operands, [b.constant(0, I32)], region.region)[0]

    assert map_kernel([I32] * 3, I32, body)(*values)[0] == 2


def test_step_zero_runs_nothing_and_reports() -> None:
    def body(b: Builder, operands: list[Value]) -> Value:
        with b.region(("i", INDEX), ("n", INDEX)) as region:
            b.yield_(b.index(99))
        zero = b.index(0)
        return b.for_(zero, operands[0], operands[1], [b.index(5)], region.region, site=3)[0]

    run = map_kernel([INDEX, INDEX], INDEX, body)
    got = run(np.array([4, 4, -4]), np.array([1, 0, -1]))
    assert list(got) == [99, 5, 99]
    assert run.fault[0] == 4 and run.fault[5] == 1  # type: ignore[attr-defined]


def test_leave_from_nested_loops() -> None:
    """``for i: for j: if i * j == x: return (i, j)`` as an inlined function."""

    def body(b: Builder, operands: list[Value]) -> Value:
        (x,) = operands
        zero, one, ten = b.index(0), b.index(1), b.index(10)
        with b.region() as scope:
            with b.region(("i", INDEX)) as outer:
                (i,) = outer.arguments
                with b.region(("j", INDEX)) as inner:
                    (j,) = inner.arguments
                    with b.region() as found:
                        b.leave(b.binary("add", b.binary("mul", i, b.index(100)), j))
                    with b.region() as go_on:
                        b.yield_()
                    here = b.cmp("eq", b.binary("mul", i, j), x)
                    b.if_(here, found.region, go_on.region)
                    b.yield_()
                b.for_(zero, ten, one, [], inner.region)
                b.yield_()
            b.for_(zero, ten, one, [], outer.region)
            b.leave(b.index(-1))
        return b.scope(scope.region, [INDEX])[0]

    x = np.arange(-1, 90)
    wanted = [
        next((i * 100 + j for i in range(10) for j in range(10) if i * j == v), -1) for v in x
    ]
    np.testing.assert_array_equal(map_kernel([INDEX], INDEX, body)(x), wanted)


def test_break_and_continue_carry_their_own_values() -> None:
    """Sums odd numbers below x, and stops at 21."""

    def body(b: Builder, operands: list[Value]) -> Value:
        (x,) = operands
        with b.region(("i", INDEX), ("s", INDEX)) as loop:
            i, s = loop.arguments
            with b.region() as even:
                b.continue_(s)
            with b.region() as odd:
                b.yield_()
            two = b.index(2)
            b.if_(b.cmp("eq", b.binary("mod", i, two), b.index(0)), even.region, odd.region)
            with b.region() as far:
                b.break_(b.binary("add", s, b.index(1000)))
            with b.region() as near:
                b.yield_(b.binary("add", s, i))
            (total,) = b.if_(b.cmp("ge", i, b.index(21)), far.region, near.region)
            b.yield_(total)
        return b.for_(b.index(0), x, b.index(1), [b.index(0)], loop.region)[0]

    def python(x: int) -> int:
        total = 0
        for i in range(x):
            if i % 2 == 0:
                continue
            if i >= 21:
                return total + 1000
            total += i
        return total

    x = np.arange(40)
    got = map_kernel([INDEX], INDEX, body)(x)
    np.testing.assert_array_equal(got, [python(int(v)) for v in x])


def test_continue_before_the_tail_of_a_uniform_loop() -> None:
    """A tree sum whose idle lanes ``continue`` behind the barrier at the head of the loop."""

    def make(b: Builder, views: list[Value]) -> None:
        x, out = views
        t = b.lane_linear("t")
        smem = b.shared_alloc(I32, [64], "smem")
        b.store(b.load(x, [t], "proved"), smem, [t], "proved")
        with b.region(("s", INDEX)) as head:
            (s,) = head.arguments
            b.condition(b.cmp("le", s, b.index(32)), s)
        with b.region(("s", INDEX)) as body:
            (s,) = body.arguments
            b.barrier()
            twice = b.binary("mul", s, b.index(2))
            rest = b.binary("mod", t, twice)
            with b.region() as idle:
                b.continue_(twice)
            with b.region() as busy:
                b.yield_()
            b.if_(b.cmp("ne", rest, b.index(0)), idle.region, busy.region)
            other = b.load(smem, [b.binary("add", t, s)], "proved")
            b.store(b.binary("add", b.load(smem, [t], "proved"), other), smem, [t], "proved")
            b.yield_(twice)
        b.while_([b.index(1)], head.region, body.region)
        b.barrier()
        b.store(b.load(smem, [b.index(0)], "proved"), out, [t], "proved")

    run = Runner(Kernel((64,)).build([I32, I32], make))
    x, out = np.arange(64, dtype=np.int32) ** 2, np.zeros(64, np.int32)
    run(x, out)
    np.testing.assert_array_equal(out, x.sum())


def test_conditions_of_bools() -> None:
    def body(b: Builder, operands: list[Value]) -> Value:
        p, q = operands
        with b.region() as then:
            b.yield_(q)
        with b.region() as otherwise:
            b.yield_(b.constant(False, BOOL))
        return b.if_(p, then.region, otherwise.region)[0]

    p, q = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    np.testing.assert_array_equal(map_kernel([BOOL, BOOL], BOOL, body)(p, q), p & q)
