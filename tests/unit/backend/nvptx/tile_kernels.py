"""Kernels on register tiles, made by hand: what the tests compile, and run on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.analysis.resources.register_layouts import (
    blocked,
    reduce_scratch,
    scan_scratch,
    scratch_buffer,
)
from tessera_lang.ir.core import (
    BufferType,
    IRType,
    PointerType,
    Program,
    TileType,
    Value,
)
from tessera_lang.ir.layout import RegisterLayout, SharedLayout
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.ir.verify import verify
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import DTYPES, F32, I32, INDEX, DType

Made = tuple[Program, LaunchPlan]
Body = Callable[["Tiles", Sequence[Value]], None]


class Tiles:
    """A builder with the operations on tiles; ``sizes`` are the sizes of the arrays."""

    def __init__(self, b: Builder, sizes: Sequence[Sequence[Value]], rest: Sequence[Value]) -> None:
        self.b = b
        self.sizes = sizes
        self.rest = rest

    def op(
        self,
        op: str,
        operands: Sequence[Value],
        result: IRType | None = None,
        /,
        **attributes: object,
    ) -> Value:
        made = self.b.emit(
            f"tile.{op}", operands, () if result is None else (result,), attributes,  # type: ignore[arg-type]
        )  # fmt: skip
        return made.results[0] if result is not None else operands[0]

    def n(self, value: int) -> Value:
        return self.b.index(value)

    def add(self, a: Value, b: Value) -> Value:
        return self.b.binary("add", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.b.binary("mul", a, b)

    def clipped(self, size: Value, start: Value, most: int) -> Value:
        """max(0, min(most, size - start))"""
        left = self.b.binary("sub", size, start)
        return self.b.binary("max", self.n(0), self.b.binary("min", self.n(most), left))

    def load(
        self, view: Value, starts: Sequence[Value], extents: Sequence[Value], t: TileType,
        dims: Sequence[int] | None = None, steps: Sequence[int] | None = None, hint: str = "keep",
    ) -> Value:  # fmt: skip
        rank = len(t.shape)
        return self.op(
            "load_tile", (view, *starts, *extents), t, dims=tuple(dims or range(rank)),
            steps=tuple(steps or (1,) * rank), hint=hint,
        )  # fmt: skip

    def store(
        self, tile: Value, view: Value, starts: Sequence[Value], extents: Sequence[Value],
        dims: Sequence[int] | None = None, steps: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        rank = len(tile.type.shape)  # type: ignore[union-attr]
        self.op(
            "store_tile", (tile, view, *starts, *extents), None, dims=tuple(dims or range(rank)),
            steps=tuple(steps or (1,) * rank), hint="keep",
        )  # fmt: skip

    def buffer(self, t: BufferType, name: str) -> Value:
        return self.op("shared.alloc", (), t, name=name)

    def splat(self, value: float, t: TileType) -> Value:
        return self.op("splat", (self.b.constant(value, t.dtype),), t)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        return self.op(name, (a, b), a.type)

    def reduce(self, tile: Value, axis: int, kind: str, out: DType | None = None) -> Value:
        t = tile.type
        assert isinstance(t, TileType) and t.layout is not None
        shape = (*t.shape[:axis], *t.shape[axis + 1 :])
        dtype = out or t.dtype
        result: IRType = TileType(dtype, shape, t.layout.without_axis(axis)) if shape else dtype
        needed = reduce_scratch(t, axis, kind)
        scratch = [self.scratch(needed)] if needed else []
        return self.op("reduce_tile", (tile, *scratch), result, kind=kind, axis=axis)

    def scan(self, tile: Value, axis: int, kind: str, inclusive: bool) -> Value:
        t = tile.type
        assert isinstance(t, TileType)
        needed = scan_scratch(t, axis)
        scratch = [self.scratch(needed)] if needed else []
        return self.op(
            "scan_tile", (tile, *scratch), t, kind=kind, axis=axis, inclusive=inclusive
        )  # fmt: skip

    def scratch(self, bytes_: int) -> Value:
        top = self.b.current
        number = sum(o.name == "tile.shared.alloc" for o in top.operations)
        return self.buffer(scratch_buffer(bytes_), f"scratch{number}")

    def expand(self, tile: Value, axis: int, like: TileType) -> Value:
        return self.op("expand_tile", (tile,), TileType(tile.type.dtype, like.shape, like.layout),  # type: ignore[union-attr]
                       axis=axis)  # fmt: skip


def tile(dtype: DType, shape: Sequence[int], layout: RegisterLayout | None = None, *,
         warps: int = 4, vector: int | None = None) -> TileType:  # fmt: skip
    """A blocked tile, with vectors of 16 bytes unless said."""
    wide = 16 // dtype.bytes if vector is None else vector
    return TileType(dtype, tuple(shape), layout or blocked(shape, wide, warps))


def kernel(
    arrays: Sequence[tuple[str, DType, int, bool]], body: Body, *, group: int = 128,
    grid_rank: int = 1, strided: Sequence[str] = (), divisors: int = 1, numbers: int = 0,
    aligned: bool = True, registers: int = 0,
) -> Made:  # fmt: skip
    """``arrays``: name, dtype, rank, mut. Arguments: all pointers, then the sizes of each array
    (and strides, of those in ``strided``), then ``numbers`` further numbers."""
    builder = Builder()
    typed: list[tuple[str, IRType]] = [(n, PointerType(d, "global")) for n, d, _, _ in arrays]
    slots = [Slot("data", i, dtype=d.name) for i, (_, d, _, _) in enumerate(arrays)]
    for i, (name, _, rank, _) in enumerate(arrays):
        typed += [(f"{name}{axis}", INDEX) for axis in range(rank)]
        slots += [Slot("size", i, axis) for axis in range(rank)]
        if name in strided:
            typed += [(f"{name}s{axis}", INDEX) for axis in range(rank)]
            slots += [Slot("size", i, axis) for axis in range(rank)]
    typed += [(f"number{i}", INDEX) for i in range(numbers)]
    slots += [Slot("symbol", symbol=f"number{i}") for i in range(numbers)]
    with builder.region(*typed) as region:
        values = list(region.arguments)
        at = len(arrays)
        views: list[Value] = []
        sizes: list[list[Value]] = []
        for i, (name, _, rank, mut) in enumerate(arrays):
            own = values[at : at + rank]
            at += rank
            strides = values[at : at + rank] if name in strided else []
            at += len(strides)
            views.append(builder.view(values[i], own, strides, mut=mut, aligned=aligned, name=name))
            sizes.append(own)
        body(Tiles(builder, sizes, values[at:]), views)
        if not builder.terminated:
            builder.return_()
    top = Builder()
    attributes = {
        "sym_name": "k", "group": (group,), "grid_rank": grid_rank, "shared_budget": -1,
        "parameters": tuple(name for name, _ in typed),
        "divisors": tuple(16 if isinstance(t, PointerType) else divisors for _, t in typed),
        "registers": registers,
    }  # fmt: skip
    top.emit("tile.kernel", (), (), attributes, (region.region,))
    parameters = tuple(
        ParameterPlan(n, "tensor", d.name, r, mut=m, contiguous=n not in strided, aligned=aligned)
        for n, d, r, m in arrays
    )
    program = top.program()
    verify(program)
    return program, LaunchPlan("k", parameters, tuple(slots), (group,), None)


# --- the kernels ------------------------------------------------------------------------------


def copy_tile(dtype: DType = F32, shape: tuple[int, int] = (64, 128), divisors: int = 1) -> Made:
    """One tile a group: y = x."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind = tile(dtype, shape)
        start = t.mul(t.b.group_index(0), t.n(shape[0]))
        zero = t.n(0)
        extents = [
            t.clipped(t.sizes[0][0], start, shape[0]), t.clipped(t.sizes[0][1], zero, shape[1])
        ]  # fmt: skip
        made = t.load(x, (start, zero), extents, kind)
        t.store(made, y, (start, zero), extents)

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body, divisors=divisors)


def transpose(dtype: DType = F32, size: int = 64, swizzle: bool = False) -> Made:
    """y[j, i] = x[i, j] by way of shared memory."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        panel = 128 // dtype.bytes
        padded = SharedLayout(pitch=size + 16 // dtype.bytes)
        shared = SharedLayout(1, panel, panel, 128) if swizzle else padded
        buffer = t.buffer(BufferType(dtype, (size, size), layout=shared), "buffer")
        kind = tile(dtype, (size, size))
        zero = t.n(0)
        row, column = (t.mul(t.b.group_index(a), t.n(size)) for a in (0, 1))
        extents = [t.clipped(t.sizes[0][0], row, size), t.clipped(t.sizes[0][1], column, size)]
        made = t.load(x, (row, column), extents, kind)
        t.op("write_tile", (made, buffer, zero, zero))
        t.b.barrier()
        turned = blocked((size, size), 16 // dtype.bytes, 4, (0, 1))
        back = t.op("read_tile", (buffer, zero, zero), TileType(dtype, (size, size), turned))
        out = t.op("transpose_tile", (back,), kind, permutation=(1, 0))
        t.store(out, y, (column, row), extents[::-1])

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body, grid_rank=2)


def softmax(rows: int = 64, columns: int = 256, layout: RegisterLayout | None = None) -> Made:
    """Rows of y are the softmax of those of x, of at most ``columns`` columns. The exponential
    is a polynomial stand-in: 1 / (1 + d * d), d the distance from the maximum."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind = tile(F32, (rows, columns), layout)
        start, zero = t.mul(t.b.group_index(0), t.n(rows)), t.n(0)
        extents = [
            t.clipped(t.sizes[0][0], start, rows), t.clipped(t.sizes[0][1], zero, columns)
        ]  # fmt: skip
        values = t.load(x, (start, zero), extents, kind)
        place = TileType(I32, kind.shape, kind.layout)
        at = t.op("coordinate", (), place, axis=1)
        limit = t.op("splat", (t.b.cast(extents[1], I32),), place)
        inside = t.op("cmp", (at, limit), TileType(DTYPES["bool"], kind.shape, kind.layout),
                      predicate="lt")  # fmt: skip
        lowest = t.splat(-float("inf"), kind)
        masked = t.op("select", (inside, values, lowest), kind)
        most = t.expand(t.reduce(masked, 1, "max"), 1, kind)
        d = t.binary("sub", masked, most)
        one = t.splat(1.0, kind)
        weight = t.binary("div", one, t.binary("add", one, t.binary("mul", d, d)))
        weight = t.op("select", (inside, weight, t.splat(0.0, kind)), kind)
        total = t.expand(t.reduce(weight, 1, "add"), 1, kind)
        t.store(t.binary("div", weight, total), y, (start, zero), extents)

    return kernel([("x", F32, 2, False), ("y", F32, 2, True)], body)


def reductions(kind: str, dtype: DType, shape: tuple[int, int], axis: int,
               layout: RegisterLayout) -> Made:  # fmt: skip
    """y = reduce(x, axis), of one tile."""
    out = I32 if kind.startswith("arg") else dtype

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        zero = t.n(0)
        tile_ = t.load(
            x, (zero, zero), [t.n(n) for n in shape], TileType(dtype, shape, layout)
        )  # fmt: skip
        made = t.reduce(tile_, axis, kind, out)
        t.store(made, y, (zero,), (t.n(shape[1 - axis]),))

    return kernel([("x", dtype, 2, False), ("y", out, 1, True)], body)


def scans(kind: str, dtype: DType, shape: tuple[int, int], axis: int, layout: RegisterLayout,
          inclusive: bool) -> Made:  # fmt: skip
    """y = scan(x, axis), of one tile."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        zero = t.n(0)
        extents = [t.n(n) for n in shape]
        tile_ = t.load(x, (zero, zero), extents, TileType(dtype, shape, layout))
        t.store(t.scan(tile_, axis, kind, inclusive), y, (zero, zero), extents)

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body)


def converts(dtype: DType, shape: tuple[int, int], a: RegisterLayout, b: RegisterLayout) -> Made:
    """y = x, through a change of layout."""
    from tessera_lang.analysis.resources.register_layouts import convert_scratch

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        zero = t.n(0)
        extents = [t.n(n) for n in shape]
        kind = TileType(dtype, shape, a)
        tile_ = t.load(x, (zero, zero), extents, kind)
        needed = convert_scratch(kind, b)
        scratch = [t.scratch(needed)] if needed else []
        made = t.op("convert", (tile_, *scratch), TileType(dtype, shape, b))
        t.store(made, y, (zero, zero), extents)

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body)


def gather(dtype: DType, rows: int, columns: int) -> Made:
    """y[i] = x[rows[i]]"""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, index, y = views
        kind = tile(dtype, (rows, columns))
        assert kind.layout is not None
        zero = t.n(0)
        numbers = t.load(
            index, (zero,), (t.n(rows),), TileType(I32, (rows,), kind.layout.without_axis(1))
        )  # fmt: skip
        extents = (t.n(rows), t.clipped(t.sizes[0][1], zero, columns))
        made = t.op("gather_tile", (x, numbers, zero, *extents), kind, dims=(0, 1))
        t.store(made, y, (zero, zero), extents)

    arrays = [("x", dtype, 2, False), ("rows", I32, 1, False), ("y", dtype, 2, True)]
    return kernel(arrays, body)


def strided(dtype: DType = F32) -> Made:
    """y[i, j] = x[2 j, i], where x has any strides."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind, zero = tile(dtype, (32, 64)), t.n(0)
        extents = (t.clipped(t.sizes[1][0], zero, 32), t.clipped(t.sizes[1][1], zero, 64))
        made = t.load(x, (zero, zero), extents, kind, dims=(1, 0), steps=(1, 2))
        t.store(made, y, (zero, zero), extents)

    arrays = [("x", dtype, 2, False), ("y", dtype, 2, True)]
    return kernel(arrays, body, strided=("x",))


def lanes_and_tiles(dtype: DType, shared: SharedLayout) -> Made:
    """y = x: written to a buffer with a layout as a tile, read by single lanes."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        zero, side = t.n(0), t.n(64)
        buffer = t.buffer(BufferType(dtype, (2, 64, 64), layout=shared), "buffer")
        made = t.load(x, (zero, zero), (side, side), tile(dtype, (64, 64)))
        t.op("write_tile", (made, buffer, t.n(1), zero, zero))
        t.b.barrier()
        with t.b.region(("e", INDEX)) as loop:
            (e,) = loop.arguments
            at = (t.b.binary("floordiv", e, side), t.b.binary("mod", e, side))
            t.b.store(t.b.load(buffer, (t.n(1), *at), "proved"), y, at, "proved")
            t.b.yield_()
        t.b.for_(t.b.lane_linear(), t.n(64 * 64), t.n(128), (), loop.region)

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body)


def carried(dtype: DType = F32) -> Made:
    """y = x * 2 ** n: tiles through loops and branches; n rows of x decide nothing else."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind, zero = tile(dtype, (8, 128)), t.n(0)
        extents = (t.n(8), t.n(128))
        start = t.load(x, (zero, zero), extents, kind)
        with t.b.region(("i", INDEX), ("held", kind)) as loop:
            _, held = loop.arguments
            with t.b.region() as then:
                t.b.yield_(t.binary("add", held, held))
            with t.b.region() as other:
                t.b.yield_(held)
            odd = t.b.cmp("gt", t.rest[1], zero)
            t.b.yield_(*t.b.if_(odd, then.region, other.region))
        results = t.b.for_(zero, t.rest[0], t.n(1), (start,), loop.region)
        t.store(results[0], y, (zero, zero), extents)

    return kernel([("x", dtype, 2, False), ("y", dtype, 2, True)], body, numbers=2)


def rowwise_copy(dtype: DType, shape: tuple[int, int], warps: int, hint: str) -> Made:
    """One tile a group: y = x, with a hint for the caches."""

    def body(t: Tiles, views: Sequence[Value]) -> None:
        x, y = views
        kind = tile(dtype, shape, warps=warps)
        start, zero = t.mul(t.b.group_index(0), t.n(shape[0])), t.n(0)
        extents = [
            t.clipped(t.sizes[0][0], start, shape[0]), t.clipped(t.sizes[0][1], zero, shape[1])
        ]  # fmt: skip
        made = t.load(x, (start, zero), extents, kind, hint=hint)
        t.op("store_tile", (made, y, start, zero, *extents), None, dims=(0, 1), steps=(1, 1),
             hint=hint)  # fmt: skip

    arrays = [("x", dtype, 2, False), ("y", dtype, 2, True)]
    return kernel(arrays, body, divisors=16, group=32 * warps)
