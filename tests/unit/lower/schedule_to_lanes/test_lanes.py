"""Schedule IR as loops of lanes, against the evaluator: every operation, both targets' forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.ir.core import TileType, Value
from tessera_lang.types.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, INDEX, DType
from tests.unit.lower.schedule_to_lanes.lanes import (
    CPU,
    GPU,
    ArrayBuilder,
    Built,
    build,
    check,
    check_made,
    clip,
    compiled,
)

B = ArrayBuilder
NUMPY: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def random(shape: tuple[int, ...], dtype: DType = F32, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed + sum(shape))
    if dtype.is_integer:
        return rng.integers(-20, 20, shape).astype(NUMPY[dtype.name])
    return rng.uniform(-2, 2, shape).astype(NUMPY[dtype.name])


def grid(
    b: B,
    uppers: Sequence[Value],
    steps: Sequence[int],
    body: Callable[..., None],
    how: str = "grid",
) -> None:
    """``body(variables)`` for all tiles."""
    names = [f"i{n}" for n in range(len(uppers))]
    with b.region(*((n, INDEX) for n in names)) as region:
        body(*region.arguments)
        b.yield_()
    zeros, widths = [b.index(0) for _ in uppers], [b.index(n) for n in steps]
    b.loops(zeros, uppers, widths, [], region.region, names, mapping=[how] * len(names))


def line(b: B, upper: Value, step: int, body: Callable[[Value], None]) -> None:
    """A grid of one axis."""
    grid(b, [upper], [step], body)


def loop(
    b: B, upper: Value, step: int, carried: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> tuple[Value, ...]:
    types = [(f"c{n}", v.type) for n, v in enumerate(carried)]
    with b.region(("p", INDEX), *types) as region:
        b.yield_(*body(*region.arguments))
    return b.loops([b.index(0)], [upper], [b.index(step)], carried, region.region, ["p"],
                   mapping=["loop"])  # fmt: skip


def load(b: B, view: Value, starts: Sequence[Value], shape: Sequence[int]) -> Value:
    extents = [clip(b, view, n, s, c) for n, (s, c) in enumerate(zip(starts, shape, strict=True))]
    return b.load_tile(view, starts, extents, shape)


def store(b: B, tile: Value, view: Value, starts: Sequence[Value]) -> None:
    assert isinstance(tile.type, TileType)
    shape = tile.type.sizes
    extents = [clip(b, view, n, s, c) for n, (s, c) in enumerate(zip(starts, shape, strict=True))]
    b.store_tile(tile, view, starts, extents)


# --- element-wise -----------------------------------------------------------------------------

SIZES = (0, 1, 2, 3, 15, 16, 17, 35, 97)


def test_element_wise() -> None:
    def body(b: B, v: list[Value]) -> None:
        def tile(i: Value) -> None:
            x, y = (load(b, view, [i], [16]) for view in v[:2])
            big = b.cmp("gt", x, y)
            chosen = b.select(big, b.binary("mul", x, y), b.unary("abs", x))
            store(b, b.binary("add", chosen, chosen), v[2], [i])

        grid(b, [b.sizes[v[2]][0]], [16], tile)

    built = build([(F32, 1)] * 3, body)
    for n in SIZES:
        check(built, [random((n,), seed=s) for s in range(3)])


def test_arrays_of_other_sizes_give_zeros() -> None:
    """The lengths differ, so the loads are guarded: beyond them is 0."""

    def body(b: B, v: list[Value]) -> None:
        line(b, b.sizes[v[1]][0], 16, lambda i: store(b, load(b, v[0], [i], [16]), v[1], [i]))

    built = build([(F32, 1)] * 2, body)
    made = compiled(built)
    for n, m in [(5, 20), (20, 5), (17, 33), (0, 9)]:
        x, out = random((n,)), np.full(m, np.nan, np.float32)
        check_made(built, made, [x, out])


@pytest.mark.parametrize("strided", [False, True])
def test_two_axes_and_broadcasts(strided: bool) -> None:
    def body(b: B, v: list[Value]) -> None:
        rows, columns = b.sizes[v[2]]

        def tile(i: Value, j: Value) -> None:
            x = load(b, v[0], [i, j], [8, 12])
            line = load(b, v[1], [j], [12])
            wide = b.broadcast(b.expand(b.binary("div", line, line), 0), [8, 12])
            first = b.cast(b.iota([8, 12], 0), F32)
            store(b, b.binary("add", b.binary("mul", x, wide), first), v[2], [i, j])

        grid(b, [rows, columns], [8, 12], tile)

    built = build([(F32, 2), (F32, 1), (F32, 2)], body, strided)
    for m, n in [(1, 1), (8, 12), (9, 13), (19, 27), (7, 0)]:
        arrays = [random((m, n)), random((n,)) + 3, random((m, n))]
        check(built, arrays)
        if strided:
            turned = [random((n, m)).T, (random((2 * n,)) + 3)[::2], random((m, 2 * n))[:, ::2]]
            check(built, turned)


@pytest.mark.parametrize(("source", "to"), [(F16, F32), (F32, BF16), (F64, F32), (I8, I32)])
def test_casts(source: DType, to: DType) -> None:
    def body(b: B, v: list[Value]) -> None:
        def tile(i: Value) -> None:
            store(b, b.cast(load(b, v[0], [i], [64]), to), v[1], [i])

        line(b, b.sizes[v[1]][0], 64, tile)

    check(build([(source, 1), (to, 1)], body), [random((99,), source), random((99,), to)], 0, 0)


def test_a_shift_in_place_reads_before_it_writes() -> None:
    def body(b: B, v: list[Value]) -> None:
        n = b.sizes[v[0]][0]
        one, last = b.index(1), b.binary("sub", n, b.index(1))
        extent = b.binary("max", b.binary("min", b.index(32), last), b.index(0))
        moved = b.load_tile(v[0], [one], [extent], [32])
        b.store_tile(moved, v[0], [b.index(0)], [extent])
        again = b.load_tile(v[0], [b.index(0)], [extent], [32])
        b.store_tile(again, v[0], [one], [extent])

    built = build([(I32, 1)], body)
    for n in (1, 2, 20, 32, 33, 50):
        check(built, [np.arange(n, dtype=np.int32)])


def test_parts_of_tiles() -> None:
    def body(b: B, v: list[Value]) -> None:
        zero, four = b.index(0), b.index(4)
        base = b.full(b.constant(7, F32), [8, 6])
        part = b.load_tile(v[0], [zero, zero], [four, b.index(3)], [4, 3])
        whole = b.insert(base, part, [b.index(2), b.index(1)], [four, b.index(3)])
        again = b.insert(whole, b.extract(whole, [zero, zero], [2, 6]), [b.index(6), zero],
                         [b.index(2), b.index(6)])  # fmt: skip
        turned = b.transpose(again, [1, 0])
        b.store_tile(turned, v[1], [zero, zero], [b.index(6), b.index(8)])

    check(build([(F32, 2), (F32, 2)], body), [random((4, 3)), random((6, 8))])


def test_gather() -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)

        def tile(i: Value) -> None:
            rows = b.cast(load(b, v[1], [i], [8]), INDEX)
            taken = b.gather(v[0], [rows, zero], [clip(b, v[1], 0, i, 8), b.index(5)], [8, 5])
            store(b, taken, v[2], [i, zero])

        grid(b, [b.sizes[v[1]][0]], [8], tile)

    built = build([(F32, 2), (I32, 1), (F32, 2)], body)
    rows = np.array([3, 0, 8, 8, 1, 2, 5, 7, 4, 4, 6], np.int32)
    check(built, [random((9, 5)), rows, random((11, 5))])


# --- reductions and scans -----------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [F32, F64, I32, F16])
@pytest.mark.sample
def test_reductions(dtype: DType, kind: str, axis: int) -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)
        x = load(b, v[0], [zero, zero], [20, 40])
        extent = clip(b, v[0], axis, zero, (20, 40)[axis])
        store(b, b.reduce(kind, x, extent, axis), v[1], [zero])

    built = build([(dtype, 2), (dtype, 1)], body)
    for m, n in [(20, 40), (1, 1), (7, 33), (3, 0), (0, 3), (20, 17)]:
        arrays = [random((m, n), dtype), random(((n, m)[axis],), dtype)]
        check(built, arrays, 2e-3 if dtype == F16 else 1e-5, 1e-2 if dtype == F16 else 1e-5)


@pytest.mark.parametrize("kind", ["argmax", "argmin", "any", "all"])
def test_where_and_whether(kind: str) -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)
        x = load(b, v[0], [zero, zero], [8, 50])
        if kind in ("any", "all"):
            x = b.cmp("gt" if kind == "any" else "lt", x, b.full(b.constant(1.9, F32), [8, 50]))
        found = b.reduce(kind, x, clip(b, v[0], 1, zero, 50), 1)
        store(b, b.cast(found, I64), v[1], [zero])

    built = build([(F32, 2), (I64, 1)], body)
    for m, n in [(8, 50), (3, 7), (2, 1)]:
        x = random((m, n))
        x[0, n // 2 :] = np.nan
        x[-1, :] = x[-1, 0]
        check(built, [x, np.zeros(m, np.int64)])


def test_a_whole_reduction_over_tiles() -> None:
    """A carried scalar; NaN goes through a maximum."""

    def body(b: B, v: list[Value]) -> None:
        n = b.sizes[v[0]][0]

        def tile(i: Value, total: Value, most: Value) -> list[Value]:
            x = load(b, v[0], [i], [256])
            extent = clip(b, v[0], 0, i, 256)
            return [b.binary("add", total, b.reduce("add", x, extent, 0)),
                    b.binary("max", most, b.reduce("max", x, extent, 0))]  # fmt: skip

        start = [b.constant(0, F32), b.constant(float("-inf"), F32)]
        total, most = loop(b, n, 256, start, tile)
        one = [b.index(1)]
        b.store_tile(b.full(total, [1]), v[1], [b.index(0)], one)
        b.store_tile(b.full(most, [1]), v[1], one, one)

    built = build([(F32, 1), (F32, 1)], body)
    for n in (0, 1, 255, 256, 1000):
        check(built, [random((n,)), np.zeros(2, np.float32)], atol=1e-4)
    with_nan = random((300,))
    with_nan[77] = np.nan
    check(built, [with_nan, np.zeros(2, np.float32)])


def test_a_long_sum_is_not_a_chain() -> None:
    def body(b: B, v: list[Value]) -> None:
        def tile(i: Value, total: Value) -> list[Value]:
            x = load(b, v[0], [i], [8192])
            return [b.binary("add", total, b.reduce("add", x, clip(b, v[0], 0, i, 8192), 0))]

        (total,) = loop(b, b.sizes[v[0]][0], 8192, [b.constant(0, F32)], tile)
        b.store_tile(b.full(total, [1]), v[1], [b.index(0)], [b.index(1)])

    from tests.unit.lower.schedule_to_lanes.lanes import run

    x, out = np.full(1 << 20, 0.1, np.float32), np.zeros(1, np.float32)
    for machine in (CPU, GPU):
        run(compiled(build([(F32, 1)] * 2, body), machine), [x, out])
        assert abs(out[0] - float(x[0]) * len(x)) < 1e-5 * len(x) * 0.1


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("inclusive", [True, False])
def test_scans(axis: int, inclusive: bool) -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)
        x = load(b, v[0], [zero, zero], [8, 12])
        store(b, b.scan("add", x, axis, inclusive), v[1], [zero, zero])

    built = build([(F32, 2), (F32, 2)], body)
    for m, n in [(8, 12), (3, 5), (1, 1)]:
        check(built, [random((m, n)), random((m, n))])


def test_softmax_of_rows() -> None:
    def body(b: B, v: list[Value]) -> None:
        def tile(i: Value) -> None:
            zero = b.index(0)
            x = load(b, v[0], [i, zero], [4, 64])
            extent = clip(b, v[0], 1, zero, 64)
            most = b.reduce("max", x, extent, 1)
            less = b.binary("sub", x, b.broadcast(b.expand(most, 1), [4, 64]))
            e = b.binary("div", b.full(b.constant(1, F32), [4, 64]),
                         b.binary("add", b.binary("mul", less, less),
                                  b.full(b.constant(1, F32), [4, 64])))  # fmt: skip
            total = b.reduce("add", e, extent, 1)
            store(b, b.binary("div", e, b.broadcast(b.expand(total, 1), [4, 64])), v[1], [i, zero])

        grid(b, [b.sizes[v[0]][0]], [4], tile)

    built = build([(F32, 2), (F32, 2)], body)
    for m, n in [(4, 64), (9, 33), (1, 1), (3, 2)]:
        check(built, [random((m, n)), random((m, n))])


# --- products ---------------------------------------------------------------------------------


def product(
    dtype: DType, to: DType, turn: tuple[bool, bool], sizes: tuple[int, int, int] = (16, 24, 8),
    wide: DType | None = None, batch: bool = False,
) -> Built:  # fmt: skip
    """c += a @ b, tile by tile; a and b may be given transposed."""
    tm, tn, tk = sizes
    lead = [1] if batch else []

    def factor(b: B, view: Value, turned: bool, at: list[Value], shape: list[int]) -> Value:
        if not turned:
            return load(b, view, at, shape)
        n = len(at)
        order = [*range(n - 2), n - 1, n - 2]
        return b.transpose(load(b, view, [at[i] for i in order], [shape[i] for i in order]), order)

    def body(b: B, v: list[Value]) -> None:
        *_, m, n = b.sizes[v[2]]
        k = b.sizes[v[0]][-2 if turn[0] else -1]

        def tile(*at: Value) -> None:
            *z, i, j = at
            acc = b.cast(load(b, v[2], [*z, i, j], [*lead, tm, tn]), wide or to)

            def step(p: Value, acc: Value) -> list[Value]:
                x = factor(b, v[0], turn[0], [*z, i, p], [*lead, tm, tk])
                y = factor(b, v[1], turn[1], [*z, p, j], [*lead, tk, tn])
                return [b.dot(x, y, acc)]

            (acc,) = loop(b, k, tk, [acc], step)
            store(b, b.cast(acc, to), v[2], [*z, i, j])

        uppers = [*b.sizes[v[2]][:-2], m, n]
        grid(b, uppers, [*lead, tm, tn], tile)

    rank = 2 + batch
    return build([(dtype, rank), (dtype, rank), (to, rank)], body)


SHAPES = [(16, 24, 8), (5, 7, 3), (33, 65, 31), (1, 1, 1), (3, 3, 0), (0, 4, 4), (41, 50, 17)]


@pytest.mark.parametrize("turn", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.sample(2)
def test_products(turn: tuple[bool, bool]) -> None:
    built = product(F32, F32, turn)
    mades = [compiled(built, machine) for machine in (CPU, GPU)]
    for m, n, k in SHAPES:
        a, b = random((m, k)), random((k, n))
        given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turn, strict=True)]
        for made in mades:
            check_made(built, made, [*given, random((m, n))])


@pytest.mark.parametrize(
    ("dtype", "to", "wide"),
    [(F64, F64, F64), (F16, F16, F32), (BF16, F32, F32), (I8, I32, I32), (BF16, BF16, F32)],
)
@pytest.mark.sample(3)
def test_products_of_dtypes(dtype: DType, to: DType, wide: DType) -> None:
    built = product(dtype, to, (False, False), wide=wide)
    rtol = 1e-2 if to.bits < 32 else 1e-5
    for m, n, k in [(17, 30, 19), (1, 2, 3)]:
        check(built, [random((m, k), dtype), random((k, n), dtype), random((m, n), to)], rtol, rtol)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (48, 100, 17), (7, 3, 130), (1, 160, 5)])
@pytest.mark.parametrize("turn", [(False, False), (True, True)])
@pytest.mark.sample(1)
def test_products_of_tile_sizes(sizes: tuple[int, int, int], turn: tuple[bool, bool]) -> None:
    built = product(F32, F32, turn, sizes)
    made = compiled(built)
    for m, n, k in [(61, 163, 131), (3, 2, 1)]:
        a, b = random((m, k)), random((k, n))
        given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turn, strict=True)]
        check_made(built, made, [*given, random((m, n))], 1e-4, 1e-4)


def test_products_with_a_batch() -> None:
    built = product(F32, F32, (False, True), batch=True)
    a, b = random((3, 20, 9)), random((3, 30, 9))
    check(built, [a, b, random((3, 20, 30))])


def test_attention_with_a_running_maximum() -> None:
    """Carried tiles that are scaled, transposed factors, masks along the contraction."""

    def body(b: B, v: list[Value]) -> None:
        q, k, values, out = v
        zero = b.index(0)

        def rows(i: Value) -> None:
            tq = load(b, q, [i, zero], [16, 8])

            def step(p: Value, acc: Value, most: Value, total: Value) -> list[Value]:
                here = clip(b, k, 0, p, 12)
                scores = b.dot(tq, b.transpose(load(b, k, [p, zero], [12, 8]), [1, 0]),
                               b.full(b.constant(0, F32), [16, 12]))  # fmt: skip
                after = b.binary("max", most, b.reduce("max", scores, here, 1))
                weights = b.binary("sub", scores, b.broadcast(b.expand(after, 1), [16, 12]))
                weights = b.binary("add", weights, b.full(b.constant(9, F32), [16, 12]))
                extents = [clip(b, q, 0, i, 16), here]
                weights = b.mask(weights, b.constant(0, F32), extents)
                scale = b.binary("add", b.binary("sub", most, after),
                                 b.full(b.constant(1, F32), [16]))  # fmt: skip
                total = b.binary("add", b.binary("mul", total, scale),
                                 b.reduce("add", weights, here, 1))  # fmt: skip
                acc = b.binary("mul", acc, b.broadcast(b.expand(scale, 1), [16, 8]))
                return [b.dot(weights, load(b, values, [p, zero], [12, 8]), acc), after, total]

            start = [b.full(b.constant(0, F32), [16, 8]), b.full(b.constant(-3, F32), [16]),
                     b.full(b.constant(0, F32), [16])]  # fmt: skip
            acc, _, total = loop(b, b.sizes[k][0], 12, start, step)
            store(b, b.binary("div", acc, b.broadcast(b.expand(total, 1), [16, 8])), out, [i, zero])

        grid(b, [b.sizes[q][0]], [16], rows)

    built = build([(F32, 2)] * 4, body)
    for n, m in [(16, 12), (33, 29), (5, 40)]:
        arrays = [random((n, 8)), random((m, 8)), random((m, 8), seed=5), random((n, 8))]
        check(built, arrays, 1e-4, 1e-4)


# --- control ----------------------------------------------------------------------------------


def test_tiles_that_change_places() -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)
        x, y = (load(b, view, [zero], [16]) for view in v[:2])

        def step(p: Value, x: Value, y: Value) -> list[Value]:
            return [y, b.binary("add", x, y)]

        x, y = loop(b, b.sizes[v[0]][0], 4, [x, y], step)
        store(b, b.binary("sub", x, y), v[2], [zero])

    built = build([(I32, 1)] * 3, body)
    for n in (1, 4, 9, 16):
        check(built, [random((n,), I32, s) for s in range(3)])


def test_branches_give_tiles() -> None:
    def body(b: B, v: list[Value]) -> None:
        def tile(i: Value) -> None:
            x = load(b, v[0], [i], [8])
            total = b.reduce("add", x, clip(b, v[0], 0, i, 8), 0)
            with b.region() as then:
                b.yield_(b.binary("mul", x, x), b.binary("add", total, total))
            with b.region() as otherwise:
                b.yield_(x, total)
            chosen, twice = b.if_(b.cmp("gt", total, b.constant(0, F32)), then.region,
                                  otherwise.region)  # fmt: skip
            store(b, b.binary("add", chosen, b.full(twice, [8])), v[1], [i])

        grid(b, [b.sizes[v[0]][0]], [8], tile)

    check(build([(F32, 1)] * 2, body), [random((45,)), random((45,))])


def test_an_accumulation_under_a_condition() -> None:
    """The branch works in the loop's own buffer."""

    check(build([(F32, 2), (F32, 1)], _under_a_condition), [random((9, 7)), random((7,))])


def _under_a_condition(b: B, v: list[Value]) -> None:
    zero = b.index(0)

    def step(p: Value, acc: Value) -> list[Value]:
        line = b.load_tile(v[0], [p, zero], [clip(b, v[0], 1, zero, 8)], [8], dims=[1])
        with b.region() as then:
            b.yield_(b.binary("add", acc, line))
        with b.region() as otherwise:
            b.yield_(acc)
        odd = b.cmp("eq", b.binary("mod", p, b.index(2)), b.index(1))
        return list(b.if_(odd, then.region, otherwise.region))

    (acc,) = loop(b, b.sizes[v[0]][0], 1, [b.full(b.constant(0, F32), [8])], step)
    store(b, acc, v[1], [zero])


def test_a_while_loop_carries_tiles() -> None:
    def body(b: B, v: list[Value]) -> None:
        zero, n = b.index(0), b.sizes[v[0]][0]
        x = load(b, v[0], [zero], [8])
        with b.region(("n", INDEX), ("t", x.type)) as before:
            count, tile = before.arguments
            b.condition(b.cmp("gt", count, zero), count, b.binary("mul", tile, tile))
        with b.region(("n", INDEX), ("t", x.type)) as after:
            count, tile = after.arguments
            b.yield_(b.binary("sub", count, b.index(1)), b.binary("add", tile, x))
        _, x2 = b.while_([n, x], before.region, after.region)
        store(b, b.binary("add", x2, x), v[1], [zero])

    built = build([(I32, 1)] * 2, body)
    for n in (0, 1, 3, 8):
        check(built, [random((n,), I32), random((n,), I32)])


def test_a_break_leaves_all_axes() -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)
        m, n = b.sizes[v[0]]
        start = b.full(b.constant(0, I32), [1])
        with b.region(("i", INDEX), ("j", INDEX), ("t", start.type)) as region:
            i, j, total = region.arguments
            one = b.load_tile(v[0], [i, j], [b.index(1)], [1], dims=[1])
            value = b.reduce("add", one, b.index(1), 0)
            with b.region() as then:
                b.break_(total)
            with b.region() as otherwise:
                b.yield_()
            b.if_(b.cmp("gt", value, b.constant(15, I32)), then.region, otherwise.region)
            b.yield_(b.binary("add", total, one))
        (total,) = b.loops([zero, zero], [m, n], [b.index(1), b.index(1)], [start],
                           region.region, ["i", "j"], mapping=["loop"] * 2)  # fmt: skip
        b.store_tile(total, v[1], [zero], [b.index(1)])

    built = build([(I32, 2), (I32, 1)], body)
    for m, n in [(5, 7), (1, 1), (2, 3), (0, 4)]:
        check(built, [random((m, n), I32), np.zeros(1, np.int32)])


def test_more_than_three_axes_of_the_grid() -> None:
    def body(b: B, v: list[Value]) -> None:
        sizes = b.sizes[v[0]]

        def tile(*at: Value) -> None:
            store(b, b.binary("add", load(b, v[0], at, [1, 2, 2, 2]),
                              b.full(b.constant(1, F32), [1, 2, 2, 2])), v[1], at)  # fmt: skip

        grid(b, sizes, [1, 2, 2, 2], tile)

    built = build([(F32, 4)] * 2, body)
    assert len(compiled(built)[1].grid) == 1
    check(built, [random((2, 3, 4, 5)), random((2, 3, 4, 5))])


def test_bounds_that_no_launch_knows_stay_a_loop() -> None:
    def body(b: B, v: list[Value]) -> None:
        first = b.cast(b.load(v[1], [b.index(0)], "proved"), INDEX)
        line(b, first, 8, lambda i: store(b, load(b, v[0], [i], [8]), v[2], [i]))

    built = build([(F32, 1), (I32, 1), (F32, 1)], body)
    assert compiled(built)[1].grid == (1,)
    check(built, [random((40,)), np.array([24], np.int32), random((40,))])


def test_bools_and_scans_of_masks() -> None:
    def body(b: B, v: list[Value]) -> None:
        zero = b.index(0)
        x = load(b, v[0], [zero], [32])
        big = b.cmp("gt", x, b.full(b.constant(0, F32), [32]))
        places = b.scan("add", b.cast(big, I32), 0, False)
        some = b.reduce("any", big, clip(b, v[0], 0, zero, 32), 0)
        shown = b.select(some, places, b.full(b.constant(-1, I32), [32]))
        store(b, shown, v[1], [zero])

    assert BOOL.bits == 1
    built = build([(F32, 1), (I32, 1)], body)
    for n in (1, 13, 32):
        check(built, [random((n,)), random((n,), I32)])


def test_a_gpu_that_has_too_little_shared_memory_reads_factors_again() -> None:
    from tessera_lang.opt.tile.shared_allocation import shared_bytes

    built = product(F32, F32, (False, True), (128, 128, 128))
    program = compiled(built, GPU)[0]
    assert shared_bytes(program.operations[0]) <= GPU.shared_limit
    check(built, [random((30, 20)), random((40, 20)), random((30, 40))])
