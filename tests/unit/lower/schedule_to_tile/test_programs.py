"""Programs without a pattern: element-wise work, reductions, parts of tiles, control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Value
from tessera_lang.ir.verify import verify
from tessera_lang.record import replace
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, BOOL, F16, F32, I8, I32, INDEX, DType
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.schedule_to_lanes.lanes import ArrayBuilder, build, clip
from tests.unit.tiled import as_tiles

RANDOM = np.random.default_rng(11)
Body = Callable[[ArrayBuilder, list[Value]], None]


def run(
    body: Body, dtypes: Sequence[tuple[DType, int]], arrays: Sequence[np.ndarray[Any, Any]],
    strided: bool = False, rtol: float = 1e-6, **attributes: Any,
) -> tuple[Any, Any, list[Diagnostic]]:  # fmt: skip
    program, plan = build(dtypes, body, strided)
    (kernel,) = program.operations
    changed = replace(kernel, attributes={**kernel.attributes, **attributes})
    program = replace(program, operations=(changed,))
    remarks: list[Diagnostic] = []
    made, launch = as_tiles(program, plan, machine_named("cuda", "sm_80"), remarks)
    verify(made)
    ours, theirs = _copies(arrays), _copies(arrays)
    machine.launch(made, launch, *ours)
    reference.launch(program, plan, *theirs)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=rtol, atol=rtol)
    return made, launch, remarks


def _copies(arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """With the same strides."""
    out: list[np.ndarray[Any, Any]] = []
    for a in arrays:
        made = np.lib.stride_tricks.as_strided(np.zeros(1 << 16, a.dtype), a.shape, a.strides)
        made[...] = a
        out.append(made)
    return out


def ints(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RANDOM.integers(-8, 9, shape).astype(dtype)


def grid(b: ArrayBuilder, view: Value, steps: Sequence[int], body: Callable[..., None]) -> None:
    """One group for each tile of ``view``; ``body(starts, extents)``."""
    sizes = b.sizes[view]
    names = [f"i{n}" for n in range(len(steps))]
    with b.region(*((n, INDEX) for n in names)) as region:
        starts = list(region.arguments)
        body(starts, [clip(b, view, axis, s, steps[axis]) for axis, s in enumerate(starts)])
        b.yield_()
    zero = b.index(0)
    b.loops([zero] * len(steps), sizes[: len(steps)], [b.index(s) for s in steps], [],
            region.region, names, mapping=["grid"] * len(steps))  # fmt: skip


@pytest.mark.parametrize("n", [0, 1, 4, 1023, 1024, 4099])
@pytest.mark.parametrize("tile", [1024, 48, 1000])
@pytest.mark.sample
def test_sum_of_vectors(n: int, tile: int) -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        def one(starts: list[Value], extents: list[Value]) -> None:
            x, y = (b.load_tile(v[i], starts, extents, (tile,)) for i in range(2))
            b.store_tile(b.binary("add", x, y), v[2], starts, extents)

        grid(b, v[0], [tile], one)

    run(body, [(F32, 1)] * 3, [ints(n), ints(n), ints(n)])


@pytest.mark.parametrize("columns", [1, 100, 1152, 8192])
@pytest.mark.parametrize("rows", [0, 1, 4])
@pytest.mark.sample
def test_softmax_of_rows(columns: int, rows: int) -> None:
    """``rows`` 0: each row is a tile of one axis."""
    capacity = -(-columns // 128) * 128

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        def one(starts: list[Value], extents: list[Value]) -> None:
            n = b.sizes[v[0]][1]
            shape = (rows, capacity) if rows else (capacity,)
            places, ends = [starts[0], b.index(0)], [*extents[:rows], n]
            axis = len(shape) - 1
            x = b.load_tile(v[0], places, ends, shape)
            top = b.reduce("max", x, n, axis)
            top = b.full(top, shape) if not rows else b.broadcast(b.expand(top, 1), shape)
            e = b.binary("sub", x, top)
            total = b.reduce("add", e, n, axis)
            wide = b.full(total, shape) if not rows else b.broadcast(b.expand(total, 1), shape)
            b.store_tile(b.binary("sub", e, wide), v[1], places, ends)

        grid(b, v[0], [max(1, rows)], one)

    run(body, [(F32, 2)] * 2, [ints(5, columns), ints(5, columns)])


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_transpose(dtype: DType) -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        def one(starts: list[Value], extents: list[Value]) -> None:
            x = b.load_tile(v[0], starts, extents, (64, 32))
            b.store_tile(b.transpose(x, (1, 0)), v[1], starts[::-1], extents[::-1])

        grid(b, v[0], [64, 32], one)

    x = ints(100, 70, dtype=reference.numpy_type(dtype))
    run(body, [(dtype, 2)] * 2, [x, np.zeros((70, 100), x.dtype)])


@pytest.mark.parametrize("kind", ["add", "max", "min", "mul", "argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.sample
def test_reductions(kind: str, axis: int) -> None:
    shape = (40, 96)

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        sizes = b.sizes[v[0]]
        x = b.load_tile(v[0], [zero, zero], sizes, shape)
        made = b.reduce(kind, x, sizes[axis], axis)
        b.store_tile(b.cast(made, F32), v[1], [zero], [sizes[1 - axis]])

    run(body, [(F32, 2), (F32, 1)], [ints(33, 77), ints((77, 33)[axis])])


@pytest.mark.parametrize("inclusive", [True, False])
def test_scan(inclusive: bool) -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        n = b.sizes[v[0]][0]
        x = b.load_tile(v[0], [b.index(0)], [n], (512,))
        b.store_tile(b.scan("add", x, 0, inclusive), v[1], [b.index(0)], [n])

    run(body, [(F32, 1)] * 2, [ints(400), ints(400)])


def test_parts() -> None:
    """A part is taken at a run-time place and put at another; the rest stays."""

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        sizes = b.sizes[v[0]]
        x = b.load_tile(v[0], [zero, zero], sizes, (40, 48))
        part = b.extract(x, [b.index(3), b.index(5)], (9, 7))
        put = b.insert(x, part, [b.index(30), b.index(40)], [b.index(9), b.index(7)])
        again = b.insert(put, part, [zero, zero], [b.index(4), b.index(2)])
        b.store_tile(again, v[1], [zero, zero], sizes)

    run(body, [(F32, 2)] * 2, [ints(40, 48), ints(40, 48)])


def test_gather() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        n = b.sizes[v[1]][0]
        rows = b.load_tile(v[1], [zero], [n], (16,))
        width = b.sizes[v[0]][1]
        x = b.gather(v[0], [b.cast(rows, INDEX), zero], [n, width], (16, 64))
        b.store_tile(x, v[2], [zero, zero], [n, width])

    rows = RANDOM.integers(0, 50, 13).astype(np.int32)
    run(body, [(F32, 2), (I32, 1), (F32, 2)], [ints(50, 60), rows, ints(13, 60)])


def test_gathered_product() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        n = b.sizes[v[1]][0]
        rows = b.load_tile(v[1], [zero], [n], (16,))
        k, m = b.sizes[v[2]]
        x = b.gather(v[0], [b.cast(rows, INDEX), zero], [n, k], (16, 64))
        w = b.load_tile(v[2], [zero, zero], [k, m], (64, 32))
        made = b.dot(x, w, b.full(b.constant(0.0, F32), (16, 32)))
        b.store_tile(made, v[3], [zero, zero], [n, m])

    rows = RANDOM.integers(0, 50, 13).astype(np.int32)
    bf16 = ml_dtypes.bfloat16
    run(body, [(BF16, 2), (I32, 1), (BF16, 2), (F32, 2)],
        [ints(50, 60, dtype=bf16), rows, ints(60, 30, dtype=bf16), ints(13, 30)])  # fmt: skip


def product_loop(
    b: ArrayBuilder, v: list[Value], make: Callable[..., tuple[Value, Value]],
    shape: tuple[int, int, int], out: int = 2,
) -> None:  # fmt: skip
    """``v[out] = sum of a @ b`` where ``make(p, extents)`` gives the two tiles."""
    bm, bn, bk = shape
    zero = b.index(0)
    start = b.full(b.constant(0.0, F32), (bm, bn))
    k = b.sizes[v[0]][1]
    with b.region(("p", INDEX), ("acc", start.type)) as inner:
        p, acc = inner.arguments
        x, y = make(p, clip(b, v[0], 1, p, bk))
        b.yield_(b.dot(x, y, acc))
    (acc,) = b.loops([zero], [k], [b.index(bk)], [start], inner.region, ["p"], mapping=["loop"])
    m, n = b.sizes[v[out]]
    b.store_tile(acc, v[out], [zero, zero], [m, n])


@pytest.mark.parametrize("side", [0, 1])
def test_dequantized_operand(side: int) -> None:
    """An operand that is computed from bytes is written to shared memory for all warps."""

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        m, n = b.sizes[v[2]]

        def make(p: Value, ek: Value) -> tuple[Value, Value]:
            x = b.load_tile(v[0], [b.index(0), p], [m, ek], (64, 32))
            y = b.load_tile(v[1], [p, b.index(0)], [ek, n], (32, 64))
            found = [x, y]
            t = (32, 64) if side else (64, 32)
            wide = b.binary("mul", b.cast(found[side], F32), b.full(b.constant(0.5, F32), t))
            ends = [ek, n] if side else [m, ek]
            found[side] = b.mask(b.cast(wide, BF16), b.constant(0.0, BF16), ends)
            return found[0], found[1]

        product_loop(b, v, make, (64, 64, 32))

    dtypes = [(I8, 2) if side == i else (BF16, 2) for i in range(2)]
    types = [np.int8 if side == i else ml_dtypes.bfloat16 for i in range(2)]
    run(body, [*dtypes, (F32, 2)],
        [ints(50, 70, dtype=types[0]), ints(70, 40, dtype=types[1]), ints(50, 40)])  # fmt: skip


def test_product_under_a_condition() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        m, n = b.sizes[v[2]]
        k = b.sizes[v[0]][1]
        start = b.full(b.constant(0.0, F32), (32, 32))
        with b.region(("p", INDEX), ("acc", start.type)) as inner:
            p, acc = inner.arguments
            ek = clip(b, v[0], 1, p, 16)
            odd = b.cmp("eq", b.binary("mod", p, b.index(32)), zero)
            with b.region() as then:
                x = b.load_tile(v[0], [zero, p], [m, ek], (32, 16))
                y = b.load_tile(v[1], [p, zero], [ek, n], (16, 32))
                b.yield_(b.dot(x, y, acc))
            with b.region() as otherwise:
                b.yield_(b.binary("add", acc, b.full(b.constant(1.0, F32), (32, 32))))
            (made,) = b.if_(odd, then.region, otherwise.region)
            b.yield_(made)
        (acc,) = b.loops([zero], [k], [b.index(16)], [start], inner.region, ["p"],
                         mapping=["loop"])  # fmt: skip
        b.store_tile(acc, v[2], [zero, zero], [m, n])

    bf16 = ml_dtypes.bfloat16
    run(body, [(BF16, 2), (BF16, 2), (F32, 2)],
        [ints(30, 100, dtype=bf16), ints(100, 20, dtype=bf16), ints(30, 20)])  # fmt: skip


def test_while_of_tiles() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        (n,) = b.sizes[v[0]]
        x = b.load_tile(v[0], [zero], [n], (64,))
        carried = [("x", x.type)]
        with b.region(*carried) as test:
            top = b.reduce("max", test.arguments[0], n, 0)
            b.condition(b.cmp("lt", top, b.constant(100.0, F32)), *test.arguments)
        with b.region(*carried) as loop:
            (y,) = loop.arguments
            b.yield_(b.binary("add", y, b.binary("add", y, b.full(b.constant(1.0, F32), (64,)))))
        (made,) = b.while_([x], test.region, loop.region)
        b.store_tile(made, v[1], [zero], [n])

    run(body, [(F32, 1)] * 2, [abs(ints(50)), ints(50)])


def test_write_then_read_again() -> None:
    """Lanes read what others wrote: a barrier stands between, and one before the next write."""

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        x = b.load_tile(v[0], [zero, zero], b.sizes[v[0]], (32, 32))
        b.store_tile(x, v[1], [zero, zero], [b.index(32), b.index(32)])
        turned = b.load_tile(v[1], [zero, zero], [b.index(32), b.index(32)], (32, 32),
                             dims=(1, 0))  # fmt: skip
        b.store_tile(turned, v[1], [zero, zero], [b.index(32), b.index(32)])

    made, _, _ = run(body, [(F32, 2)] * 2, [ints(32, 32), ints(32, 32)])
    names = [o.name for o in made.walk()]
    assert names.count("tile.barrier") == 2


def test_array_updated_over_and_over() -> None:
    """A product whose operand the same loop writes is staged, but not ahead."""

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero, full = b.index(0), b.index(32)
        with b.region(("t", INDEX)) as loop:
            x = b.load_tile(v[0], [zero, zero], [full, full], (32, 32))
            w = b.load_tile(v[1], [zero, zero], [full, full], (32, 32))
            made = b.dot(x, w, b.full(b.constant(0.0, F32), (32, 32)))
            b.store_tile(b.cast(made, F16), v[0], [zero, zero], [full, full])
            b.yield_()
        b.loops([zero], [b.index(3)], [b.index(1)], [], loop.region, ["t"], mapping=["loop"])

    w = np.eye(32, k=1, dtype=np.float16)
    run(body, [(F16, 2)] * 2, [ints(32, 32, dtype=np.float16), w])


@pytest.mark.parametrize("order", ["plain", "turned", "stepped"])
def test_strided_operands(order: str) -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        m, n = b.sizes[v[2]]

        def make(p: Value, ek: Value) -> tuple[Value, Value]:
            x = b.load_tile(v[0], [b.index(0), p], [m, ek], (64, 32))
            y = b.load_tile(v[1], [p, b.index(0)], [ek, n], (32, 64))
            return x, y

        product_loop(b, v, make, (64, 64, 32))

    bf16 = ml_dtypes.bfloat16
    x, y, z = ints(50, 70, dtype=bf16), ints(70, 40, dtype=bf16), ints(50, 40)
    if order == "turned":
        x, y = np.asfortranarray(x), np.asfortranarray(y)
    if order == "stepped":
        x, y = np.repeat(x, 2, 1)[:, ::2], np.repeat(y, 3, 1)[:, ::3]
    run(body, [(BF16, 2), (BF16, 2), (F32, 2)], [x, y, z], strided=True)


def test_every_second_element() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        (n,) = b.sizes[v[1]]
        x = b.load_tile(v[0], [b.index(1)], [n], (128,), steps=(2,))
        b.store_tile(x, v[1], [b.index(0)], [n])

    run(body, [(F32, 1)] * 2, [ints(200), ints(99)])


def test_condition_on_a_reduction_and_masks() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        zero = b.index(0)
        m, n = b.sizes[v[0]]
        x = b.load_tile(v[0], [zero, zero], [m, n], (32, 40))
        rows = b.iota((32, 40), 0, INDEX)
        columns = b.iota((32, 40), 1, INDEX)
        kept = b.select(b.cmp("le", columns, rows), x, b.full(b.constant(-9.0, F32), (32, 40)))
        large = b.cmp("gt", kept, b.full(b.constant(0.0, F32), (32, 40)))
        some = b.reduce("any", large, n, 1)
        assert some.type.dtype == BOOL  # type: ignore[union-attr]
        wide = b.broadcast(b.expand(some, 1), (32, 40))
        made = b.select(wide, kept, b.binary("mul", kept, kept))
        b.store_tile(made, v[1], [zero, zero], [m, n])

    run(body, [(F32, 2)] * 2, [ints(30, 37), ints(30, 37)])


def test_staged_tile_used_element_wise_too() -> None:
    def body(b: ArrayBuilder, v: list[Value]) -> None:
        m, n = b.sizes[v[2]]
        zero = b.index(0)
        x = b.prefetch(b.load_tile(v[0], [zero, zero], [m, m], (32, 32)))
        y = b.load_tile(v[1], [zero, zero], [m, n], (32, 32))
        made = b.dot(x, y, b.cast(x, F32))
        b.store_tile(made, v[2], [zero, zero], [m, n])

    bf16 = ml_dtypes.bfloat16
    run(body, [(BF16, 2), (BF16, 2), (F32, 2)],
        [ints(30, 30, dtype=bf16), ints(30, 30, dtype=bf16), ints(30, 30)])  # fmt: skip


@pytest.mark.parametrize("stretched", [False, True])
def test_product_of_stacks(stretched: bool) -> None:
    """A batch that the grid walks over is no axis of the tiles; one matrix for all of them too."""

    def body(b: ArrayBuilder, v: list[Value]) -> None:
        def one(starts: list[Value], extents: list[Value]) -> None:
            batch = starts[0]
            zero = b.index(0)
            k = b.sizes[v[0]][2]
            n = b.sizes[v[2]][2]
            start = b.full(b.constant(0.0, F32), (1, 32, 32))
            with b.region(("p", INDEX), ("acc", start.type)) as inner:
                p, acc = inner.arguments
                ek = clip(b, v[0], 2, p, 16)
                x = b.load_tile(v[0], [batch, starts[1], p], [*extents[:2], ek], (1, 32, 16))
                if stretched:
                    w = b.load_tile(v[1], [zero, p, zero], [ek, n], (16, 32), dims=(1, 2))
                    w = b.expand(w, 0)
                else:
                    w = b.load_tile(v[1], [batch, zero, p], [extents[0], n, ek], (1, 32, 16))
                    w = b.transpose(w, (0, 2, 1))
                b.yield_(b.dot(x, w, acc))
            (acc,) = b.loops([zero], [k], [b.index(16)], [start], inner.region, ["p"],
                             mapping=["loop"])  # fmt: skip
            b.store_tile(acc, v[2], [batch, starts[1], zero], [*extents[:2], n])

        grid(b, v[2], [1, 32], one)

    bf16 = ml_dtypes.bfloat16
    w = ints(1, 50, 20, dtype=bf16) if stretched else ints(3, 20, 50, dtype=bf16)
    made, _, _ = run(body, [(BF16, 3), (BF16, 3), (F32, 3)], [ints(3, 40, 50, dtype=bf16), w,
                     ints(3, 40, 20)])  # fmt: skip
    assert any(o.name == "tile.dot" for o in made.walk())
