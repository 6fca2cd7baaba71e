"""A product of matrices for Hopper in Tile IR, written by hand: what the passes are to make.

``c[m, n] = a[m, k] @ b[n, k]^T``, bf16 with an f32 accumulator. The parts come one by one: a
ring of stages, roles of warps, groups that walk over all tiles, clusters that share loads, an
epilogue by stmatrix and TMA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera_lang.analysis.resources.register_layouts import wgmma_c
from tessera_lang.ir.core import (
    BarrierType,
    BufferType,
    IRType,
    Program,
    Region,
    TensorMapType,
    TileType,
    Value,
)
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import BF16, F32, INDEX

SWIZZLED = SharedLayout(major=1, panel=64, pitch=64, swizzle=128)
DEPTH = 64


@dataclass(frozen=True)
class Form:
    """Which parts the kernel has. ``groups`` are warp groups that multiply."""

    rows: int = 128
    columns: int = 256
    stages: int = 4
    groups: int = 2
    roles: bool = True
    persistent: bool = True
    cluster: int = 2
    subtile: int = 64
    band: int = 8  # rows of tiles that are walked together, a power of two

    @property
    def lanes(self) -> int:
        return 128 * (self.groups + self.roles)


FULL = Form()


def alloc(b: Builder, shape: Sequence[int], name: str, layout: SharedLayout = SWIZZLED) -> Value:
    t = BufferType(BF16, tuple(shape), layout=layout)
    return b.emit("tile.shared.alloc", (), (t,), {"name": name}, names=(name,)).result


def barriers(b: Builder, count: int, name: str, arrivals: int) -> Value:
    attributes = {"name": name, "arrivals": arrivals}
    return b.emit(
        "tile.mbarrier.alloc", (), (BarrierType(count),), attributes, names=(name,)
    ).result


def once(b: Builder, body: Callable[[], object]) -> None:
    with b.region() as region:
        body()
        b.yield_()
    b.emit("tile.once", regions=(region.region,))


@dataclass
class Ring:
    """Buffers of a ring and their barriers."""

    form: Form
    a: Value
    b: Value
    full: Value
    empty: Value

    def next(self, b: Builder, slot: Value, phase: Value) -> tuple[Value, Value]:
        """The slot behind ``slot``, and its phase."""
        one = b.binary("add", slot, b.index(1))
        wraps = b.cmp("eq", one, b.index(self.form.stages))
        other = b.binary("xor", phase, b.index(1))
        return b.select(wraps, b.index(0), one), b.select(wraps, other, phase)


@dataclass
class Kernel:
    """The kernel in the making."""

    b: Builder
    form: Form
    arguments: Sequence[Value]
    ring: Ring
    out: Value
    rank: Value
    first: Value
    step: Value

    def place(self, t: Value) -> tuple[Value, Value, Value]:
        """Row of this group's tile, column of the tile, column of this group's part of b."""
        b, form = self.b, self.form
        wide = b.binary("mul", self.arguments[5], b.index(form.band))
        band = b.binary("floordiv", t, wide)
        rest = b.binary("sub", t, b.binary("mul", band, wide))
        across = form.rows * form.cluster
        row = b.binary("add", b.binary("mul", band, b.index(form.band)),
                       b.binary("and", rest, b.index(form.band - 1)))  # fmt: skip
        row = b.binary("mul", row, b.index(across))
        row = b.binary("add", row, b.binary("mul", self.rank, b.index(form.rows)))
        block = b.binary("shr", rest, b.index(form.band.bit_length() - 1))
        column = b.binary("mul", block, b.index(form.columns))
        part = b.binary("mul", self.rank, b.index(form.columns // form.cluster))
        return row, column, b.binary("add", column, part)

    def over_tiles(
        self, carried: Sequence[Value], body: Callable[..., tuple[Value, ...]]
    ) -> tuple[Value, ...]:
        """``body(t, carried)`` for the tiles of this cluster; gives what it gives."""
        b = self.b
        types: list[tuple[str, IRType]] = [("t", INDEX), *((v.name, v.type) for v in carried)]
        if not self.form.persistent:
            return body(self.first, tuple(carried))
        with b.region(*types) as region:
            t, *inner = region.arguments
            b.yield_(*body(t, tuple(inner)))
        return b.for_(self.first, self.arguments[4], self.step, carried, region.region)

    def load_stage(self, k: Value, row: Value, column: Value, slot: Value, phase: Value) -> None:
        """Waits until the slot is free and asks for its next content."""
        b, form, ring = self.b, self.form, self.ring
        b.emit("tile.mbarrier.wait", (ring.empty, slot, phase))
        size = (form.rows + form.columns) * DEPTH * 2
        b.emit("tile.mbarrier.expect", (ring.full, slot), attributes={"bytes": size})
        at, zero = b.binary("mul", k, b.index(DEPTH)), b.index(0)
        b.emit("tma.load", (self.arguments[0], ring.a, ring.full, slot, slot, zero, zero, row, at))
        part = b.binary("mul", self.rank, b.index(form.columns // form.cluster))
        b.emit(
            "tma.load",
            (self.arguments[1], ring.b, ring.full, slot, slot, part, zero, column, at),
            attributes={"multicast": (1 << form.cluster) - 1} if form.cluster > 1 else {},
        )

    def produce(self) -> None:
        b = self.b

        def tile(t: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            row, _, column = self.place(t)
            with b.region(("k", INDEX), ("slot", INDEX), ("phase", INDEX)) as region:
                k, slot, phase = region.arguments
                self.load_stage(k, row, column, slot, phase)
                b.yield_(*self.ring.next(b, slot, phase))
            return b.for_(b.index(0), self.arguments[3], b.index(1), carried, region.region)

        once(b, lambda: self.over_tiles((b.index(0, "slot"), b.index(1, "phase")), tile))

    def multiply(self, acc: Value, k: Value, slot: Value) -> Value:
        b, zero = self.b, self.b.index(0)
        again = b.cmp("gt", k, zero)
        operands = (acc, self.ring.a, self.ring.b, again, slot, zero, zero, slot, zero, zero)
        attributes = {"transpose_a": False, "transpose_b": True, "precision": "exact"}
        acc = b.emit("tile.mma.async", operands, (acc.type,), attributes).result
        b.emit("tile.mma.commit")
        return acc

    def wait(self, acc: Value, pending: int) -> Value:
        return self.b.emit("tile.mma.wait", (acc,), (acc.type,), {"pending": pending}).result

    def release(self, slot: Value) -> None:
        across = "cluster" if self.form.cluster > 1 else "group"
        operands = (self.ring.empty, slot)
        self.b.emit("tile.mbarrier.arrive", operands, attributes={"across": across})

    def consume(self) -> None:
        b, form = self.b, self.form

        def tile(t: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
            row, column, _ = self.place(t)
            shape = (form.rows, form.columns)
            kind = TileType(F32, shape, wgmma_c(shape, form.groups))
            acc = b.emit("tile.splat", (b.constant(0.0, F32),), (kind,)).result
            inner = [
                ("k", INDEX),
                ("acc", kind),
                ("slot", INDEX),
                ("phase", INDEX),
                ("last", INDEX),
            ]
            with b.region(*inner) as region:
                k, now, slot, phase, last = region.arguments
                b.emit("tile.mbarrier.wait", (self.ring.full, slot, phase))
                now = self.wait(self.multiply(now, k, slot), 1)
                with b.region() as then:
                    self.release(last)
                    b.yield_()
                with b.region() as otherwise:
                    b.yield_()
                b.if_(b.cmp("gt", k, b.index(0)), then.region, otherwise.region)
                b.yield_(now, *self.ring.next(b, slot, phase), slot)
            acc, slot, phase, last = b.for_(
                b.index(0),
                self.arguments[3],
                b.index(1),
                (acc, *carried, carried[0]),
                region.region,
            )
            acc = self.wait(acc, 0)
            self.release(last)
            self.epilogue(acc, row, column)
            return slot, phase

        self.over_tiles((b.index(0, "slot"), b.index(0, "phase")), tile)
        once(b, lambda: b.emit("tma.wait", attributes={"pending": 0}))

    def epilogue(self, acc: Value, row: Value, column: Value) -> None:
        b, form, zero = self.b, self.form, self.b.index(0)
        shape = (form.rows, form.subtile)
        layout = wgmma_c(shape, form.groups)
        for number in range(form.columns // form.subtile):
            start = number * form.subtile
            part = b.emit(
                "tile.slice_tile", (acc,), (TileType(F32, shape, layout),), {"starts": (0, start)}
            ).result
            part = b.emit("tile.cast", (part,), (TileType(BF16, shape, layout),)).result
            once(b, lambda: b.emit("tma.wait", attributes={"pending": 1}))
            b.barrier()
            where = (b.index(number % 2), zero, zero)
            b.emit("tile.write_tile", (part, self.out, *where))
            b.emit("tile.fence_async")
            b.barrier()
            at = b.binary("add", column, b.index(start))

            def store(where: tuple[Value, ...] = where, at: Value = at) -> None:
                b.emit("tma.store", (self.out, self.arguments[2], *where, row, at))
                b.emit("tma.commit")

            once(b, store)

    def together(self) -> None:
        """Without roles: the ring is filled and emptied by the same lanes, a stage ahead."""
        b, form, ring = self.b, self.form, self.ring
        row, column, part = self.place(self.first)
        shape = (form.rows, form.columns)
        kind = TileType(F32, shape, wgmma_c(shape, form.groups))
        acc = b.emit("tile.splat", (b.constant(0.0, F32),), (kind,)).result
        zero, one = b.index(0), b.index(1)
        inner = [("k", INDEX), ("acc", kind), ("slot", INDEX), ("phase", INDEX)]
        with b.region(*inner) as region:
            k, now, slot, phase = region.arguments
            free = b.binary("xor", phase, one)
            once(b, lambda: self.load_stage(k, row, part, slot, free))
            b.emit("tile.mbarrier.wait", (ring.full, slot, phase))
            now = self.wait(self.multiply(now, k, slot), 0)
            self.release(slot)
            b.yield_(now, *ring.next(b, slot, phase))
        acc, *_ = b.for_(zero, self.arguments[3], one, (acc, zero, zero), region.region)
        self.epilogue(acc, row, column)
        once(b, lambda: b.emit("tma.wait", attributes={"pending": 0}))


def _body(b: Builder, form: Form, arguments: Sequence[Value]) -> None:
    a = alloc(b, (form.stages, form.rows, DEPTH), "a_tiles")
    right = alloc(b, (form.stages, form.columns, DEPTH), "b_tiles")
    out = alloc(b, (2, form.rows, form.subtile), "c_tiles")
    full = barriers(b, form.stages, "full", 1)
    empty = barriers(b, form.stages, "empty", form.groups * form.cluster)
    rank = b.index(0, "rank")
    if form.cluster > 1:
        rank = b.emit("tile.cluster_rank", (), (INDEX,), names=("rank",)).result
    size = b.index(form.cluster)
    first = b.binary("floordiv", b.group_linear(), size)
    step = b.binary("floordiv", b.group_count(), size)
    kernel = Kernel(b, form, arguments, Ring(form, a, right, full, empty), out, rank, first, step)
    if form.roles:
        regions: list[Region] = []
        for role in (kernel.produce, kernel.consume):
            with b.region() as region:
                role()
                b.yield_()
            regions.append(region.region)
        b.emit(
            "tile.roles",
            attributes={
                "names": ("producer", "consumer"),
                "warps": (4, 4 * form.groups),
                "registers": (40, 232),
            },
            regions=regions,
        )
    else:
        kernel.together()
    if form.cluster > 1:
        b.emit("tile.cluster_barrier")
    b.return_()


def gemm(form: Form = FULL) -> tuple[Program, LaunchPlan]:
    """The program and its plan: maps of a, b and c, then ``k / 64``, tiles, columns of tiles."""
    half = form.columns // form.cluster
    boxes = ((form.rows, DEPTH), (half, DEPTH), (form.rows, form.subtile))
    names = ("a", "b", "c", "k_tiles", "tiles", "n_tiles")
    types: list[tuple[str, IRType]] = [
        (name, TensorMapType(BF16, box)) for name, box in zip("abc", boxes, strict=True)
    ]
    types += [(name, INDEX) for name in names[3:]]
    b = Builder()
    with b.region(*types) as region:
        _body(b, form, region.arguments)
    attributes = {
        "sym_name": "gemm", "group": (form.lanes,), "grid_rank": 1, "shared_budget": -1,
        "parameters": names, "cluster": (form.cluster,),
    }  # fmt: skip
    b.emit("tile.kernel", (), (), attributes, (region.region,))
    parameters = tuple(
        ParameterPlan(n, "tensor", "bf16", 2, mut=n == "c", contiguous=True, aligned=True)
        for n in "abc"
    )
    slots = tuple(
        Slot("tensor_map", i, dtype="bf16", box=box, axes=(0, 1), swizzle=128)
        for i, box in enumerate(boxes)
    ) + tuple(Slot("symbol", symbol=name) for name in names[3:])
    plan = LaunchPlan("gemm", parameters, slots, (form.lanes,), None, cluster=(form.cluster,))
    return b.program(), plan
