"""Products made by hand from operations on tiles: matrix units, multiply-adds, rings."""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import blocked, mma_a, mma_b, mma_c
from tessera_lang.ir.core import BufferType, TileType, Value
from tessera_lang.ir.layout import Mode, RegisterLayout, SharedLayout
from tessera_lang.types.dtype import F32, INDEX, DType
from tests.unit.backend.nvptx.tile_kernels import Made, Tiles, kernel


def gemm(
    dtype: DType, block: tuple[int, int, int] = (128, 128, 32), *, warps: tuple[int, int] = (2, 2),
    stages: int = 3, b_major: int = 1, divisors: int = 16, precision: str = "exact",
    out: DType = F32, from_buffers: bool = False, vector: int = 16,
) -> Made:  # fmt: skip
    """C = A @ B by ``mma.sync`` from a ring of buffers filled by ``cp.async``."""
    m, n, k = block
    group = 32 * warps[0] * warps[1]
    acc = TileType(out, (m, n), mma_c((m, n), *warps))
    left = TileType(dtype, (m, k), mma_a((m, k), *warps, dtype))
    right = TileType(dtype, (k, n), mma_b((k, n), *warps, dtype))

    def shared(columns: int, major: int = 1) -> SharedLayout:
        panel = 128 // dtype.bytes
        if columns % panel == 0:
            return SharedLayout(major, panel, panel, 128)
        if columns * dtype.bytes == 64:
            return SharedLayout(major, columns, columns, 64)
        return SharedLayout(major, 0, columns + 16 // dtype.bytes, 0)

    def body(t: Tiles, views: Sequence[Value]) -> None:
        a, b, c = views
        zero = t.n(0)
        ring_a = t.buffer(BufferType(dtype, (stages, m, k), layout=shared(k)), "a")
        b_layout = shared(n) if b_major else shared(k, 0)
        ring_b = t.buffer(BufferType(dtype, (stages, k, n), layout=b_layout), "b")
        row, column = (t.mul(t.b.group_index(i), t.n(x)) for i, x in ((0, m), (1, n)))
        rows, columns = t.clipped(t.sizes[2][0], row, m), t.clipped(t.sizes[2][1], column, n)
        depth = t.sizes[0][1]
        turns = t.b.binary("floordiv", t.add(depth, t.n(k - 1)), t.n(k))

        def fill(turn: Value, stage: Value) -> None:
            start = t.mul(turn, t.n(k))
            left_k = t.clipped(depth, start, k)
            t.op("memcpy.async", (a, ring_a, row, start, rows, left_k, stage, zero, zero),
                 dims=(0, 1), steps=(1, 1), vector=vector)  # fmt: skip
            if b_major:
                t.op("memcpy.async", (b, ring_b, start, column, left_k, columns, stage, zero, zero),
                     dims=(0, 1), steps=(1, 1), vector=vector)  # fmt: skip
            else:
                t.op("memcpy.async", (b, ring_b, column, start, left_k, columns, stage, zero, zero),
                     dims=(1, 0), steps=(1, 1), vector=vector)  # fmt: skip
            t.b.emit("tile.memcpy.commit")

        for stage in range(stages - 1):
            fill(t.n(stage), t.n(stage))
        start = t.splat(0.0 if out.is_float else 0, acc)
        with t.b.region(("turn", INDEX), ("acc", acc), ("use", INDEX), ("put", INDEX)) as loop:
            turn, held, use, put = loop.arguments
            t.b.emit("tile.memcpy.wait", attributes={"pending": stages - 2})
            t.b.barrier()
            fill(t.add(turn, t.n(stages - 1)), put)
            if from_buffers:
                made = t.op("dot", (ring_a, ring_b, held, use, zero, zero, use, zero, zero), acc,
                            precision=precision)  # fmt: skip
            else:
                x = t.op("read_tile", (ring_a, use, zero, zero), left)
                y = t.op("read_tile", (ring_b, use, zero, zero), right)
                made = t.op("dot", (x, y, held), acc, precision=precision)
            after = [_next(t, v, stages) for v in (use, put)]
            t.b.yield_(made, *after)
        results = t.b.for_(
            zero, turns, t.n(1), (start, zero, t.n(stages - 1)), loop.region
        )  # fmt: skip
        t.store(results[0], c, (row, column), (rows, columns))

    arrays = [("a", dtype, 2, False), ("b", dtype, 2, False), ("c", out, 2, True)]
    return kernel(arrays, body, group=group, grid_rank=2, divisors=divisors)


def _next(t: Tiles, stage: Value, stages: int) -> Value:
    following = t.add(stage, t.n(1))
    return t.b.select(t.b.cmp("eq", following, t.n(stages)), t.n(0), following)


def simt_layout(m: int, n: int, warps: tuple[int, int]) -> RegisterLayout:
    """8 x 8 of the tile a lane as 2 x 2 blocks of 4 x 4: rows and columns in vectors of four."""
    rows, columns = m // warps[0], n // warps[1]
    return RegisterLayout(
        (Mode(4, 1, 1), Mode(columns // 32, 1, 32), Mode(4, 0, 1), Mode(rows // 16, 0, 16)),
        (Mode(8, 1, 4), Mode(4, 0, 4)),
        (Mode(warps[0], 0, rows), Mode(warps[1], 1, columns)),
    )


def simt_gemm(
    dtype: DType = F32, block: tuple[int, int, int] = (128, 128, 16),
    warps: tuple[int, int] = (4, 2), stages: int = 2, registers: int = 0,
) -> Made:  # fmt: skip
    """C = A @ B by multiply-adds: A goes through registers to lie column by column."""
    m, n, k = block
    group = 32 * warps[0] * warps[1]
    acc = TileType(dtype, (m, n), simt_layout(m, n, warps))
    count = warps[0] * warps[1]
    vector = 16 // dtype.bytes
    load_a = TileType(dtype, (m, k), blocked((m, k), vector, count))
    load_b = TileType(dtype, (k, n), blocked((k, n), vector, count))

    def body(t: Tiles, views: Sequence[Value]) -> None:
        a, b, c = views
        zero, one = t.n(0), t.n(1)
        a_layout = SharedLayout(0, 0, m + vector, 0)
        ring_a = t.buffer(BufferType(dtype, (stages, m, k), layout=a_layout), "a")
        ring_b = t.buffer(BufferType(dtype, (stages, k, n), layout=SharedLayout(1)), "b")
        row, column = (t.mul(t.b.group_index(i), t.n(x)) for i, x in ((0, m), (1, n)))
        rows, columns = t.clipped(t.sizes[2][0], row, m), t.clipped(t.sizes[2][1], column, n)
        depth = t.sizes[0][1]
        turns = t.b.binary("floordiv", t.add(depth, t.n(k - 1)), t.n(k))

        def fetch(turn: Value) -> tuple[Value, Value]:
            start = t.mul(turn, t.n(k))
            left = t.clipped(depth, start, k)
            return (
                t.load(a, (row, start), (rows, left), load_a),
                t.load(b, (start, column), (left, columns), load_b),
            )

        def put(x: Value, y: Value, stage: Value) -> None:
            t.op("write_tile", (x, ring_a, stage, zero, zero))
            t.op("write_tile", (y, ring_b, stage, zero, zero))

        put(*fetch(zero), zero)
        t.b.barrier()
        start = t.splat(0.0, acc)
        with t.b.region(("turn", INDEX), ("acc", acc), ("use", INDEX)) as loop:
            turn, held, use = loop.arguments
            x, y = fetch(t.add(turn, one))
            made = t.op("dot", (ring_a, ring_b, held, use, zero, zero, use, zero, zero), acc,
                        precision="exact")  # fmt: skip
            following = _next(t, use, stages)
            put(x, y, following)
            t.b.barrier()
            t.b.yield_(made, following)
        results = t.b.for_(zero, turns, one, (start, zero), loop.region)
        t.store(results[0], c, (row, column), (rows, columns))

    arrays = [("a", dtype, 2, False), ("b", dtype, 2, False), ("c", dtype, 2, True)]
    return kernel(
        arrays, body, group=group, grid_rank=2, divisors=16, registers=registers
    )  # fmt: skip


def simt_async(
    dtype: DType = F32, block: tuple[int, int, int] = (256, 128, 8),
    warps: tuple[int, int] = (4, 2), stages: int = 4, registers: int = 0,
) -> Made:  # fmt: skip
    """As ``simt_gemm``, with a ring filled by ``cp.async``: A element by element, transposed."""
    m, n, k = block
    acc = TileType(dtype, (m, n), simt_layout(m, n, warps))

    def body(t: Tiles, views: Sequence[Value]) -> None:
        a, b, c = views
        zero = t.n(0)
        a_layout = SharedLayout(0, 0, m + 16 // dtype.bytes, 0)
        ring_a = t.buffer(BufferType(dtype, (stages, m, k), layout=a_layout), "a")
        ring_b = t.buffer(BufferType(dtype, (stages, k, n), layout=SharedLayout(1)), "b")
        row, column = (t.mul(t.b.group_index(i), t.n(x)) for i, x in ((0, m), (1, n)))
        rows, columns = t.clipped(t.sizes[2][0], row, m), t.clipped(t.sizes[2][1], column, n)
        depth = t.sizes[0][1]
        turns = t.b.binary("floordiv", t.add(depth, t.n(k - 1)), t.n(k))

        def fill(turn: Value, stage: Value) -> None:
            start = t.mul(turn, t.n(k))
            left = t.clipped(depth, start, k)
            for view, ring, starts, extents, vector in (
                (a, ring_a, (row, start), (rows, left), dtype.bytes),
                (b, ring_b, (start, column), (left, columns), 16),
            ):
                t.op("memcpy.async", (view, ring, *starts, *extents, stage, zero, zero),
                     dims=(0, 1), steps=(1, 1), vector=vector)  # fmt: skip
            t.b.emit("tile.memcpy.commit")

        for stage in range(stages - 1):
            fill(t.n(stage), t.n(stage))
        start = t.splat(0.0, acc)
        with t.b.region(("turn", INDEX), ("acc", acc), ("use", INDEX), ("put", INDEX)) as loop:
            turn, held, use, put = loop.arguments
            t.b.emit("tile.memcpy.wait", attributes={"pending": stages - 2})
            t.b.barrier()
            fill(t.add(turn, t.n(stages - 1)), put)
            made = t.op("dot", (ring_a, ring_b, held, use, zero, zero, use, zero, zero), acc,
                        precision="exact")  # fmt: skip
            t.b.yield_(made, *[_next(t, v, stages) for v in (use, put)])
        results = t.b.for_(zero, turns, t.n(1), (start, zero, t.n(stages - 1)), loop.region)
        t.store(results[0], c, (row, column), (rows, columns))

    arrays = [("a", dtype, 2, False), ("b", dtype, 2, False), ("c", dtype, 2, True)]
    group = 32 * warps[0] * warps[1]
    return kernel(arrays, body, group=group, grid_rank=2, divisors=16, registers=registers)
