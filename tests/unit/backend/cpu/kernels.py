"""Kernels that several tests of the CPU backend use."""

from __future__ import annotations

from tessera_lang.ir.core import Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import F32, I32, U8
from tests.unit.backend.tile_kernels import Kernel

Built = tuple[Program, LaunchPlan]


def position(b: Builder, lanes: int) -> Value:
    """Lane in the grid, for groups of one axis."""
    base = b.binary("mul", b.group_linear(), b.index(lanes))
    return b.binary("add", base, b.lane_linear())


def size_of(b: Builder, number: int) -> Value:
    """Length of array ``number``."""
    return b.current.operations[number].operands[1]


def when(b: Builder, condition: Value, make: object) -> None:
    """``if condition: make()``."""
    with b.region() as then:
        make()  # type: ignore[operator]
        b.yield_()
    with b.region() as otherwise:
        b.yield_()
    b.if_(condition, then.region, otherwise.region)


def add(bounds: str, *, condition: bool, lanes: int = 256) -> Built:
    """``out[i] = x[i] + y[i]``, under ``i < n`` or not."""

    def make(b: Builder, views: list[Value]) -> None:
        x, y, out = views
        size = size_of(b, 2)
        i = position(b, lanes)

        def work() -> None:
            total = b.binary("add", b.load(x, [i], bounds, 0), b.load(y, [i], bounds, 1))
            b.store(total, out, [i], bounds, 2)

        if condition:
            when(b, b.cmp("lt", i, size), work)
        else:
            work()

    return Kernel((lanes,)).build([F32, F32, F32], make)


def sum_reduce(bounds: str, lanes: int = 128) -> Built:
    """The reduction of the documents: every group sums all of ``x``."""

    def make(b: Builder, views: list[Value]) -> None:
        x, out = views
        n = size_of(b, 0)
        smem = b.shared_alloc(F32, [lanes], "smem")
        i = b.lane_linear("i")
        with b.region(("k", n.type), ("acc", F32)) as body:
            k, acc = body.arguments
            b.yield_(b.binary("add", acc, b.load(x, [k], bounds, 0)))
        (acc,) = b.for_(i, n, b.index(lanes), [b.constant(0.0, F32)], body.region)
        b.store(acc, smem, [i], bounds, 1)
        b.barrier()
        with b.region(("s", n.type)) as head:
            (s,) = head.arguments
            b.condition(b.cmp("gt", s, b.index(0)), s)
        with b.region(("s", n.type)) as body:
            (s,) = body.arguments

            def fold() -> None:
                other = b.load(smem, [b.binary("add", i, s)], bounds, 2)
                b.store(b.binary("add", b.load(smem, [i], bounds, 3), other), smem, [i], bounds, 4)

            when(b, b.cmp("lt", i, s), fold)
            b.barrier()
            b.yield_(b.binary("floordiv", s, b.index(2)))
        b.while_([b.index(lanes // 2)], head.region, body.region)

        def give() -> None:
            total = b.load(smem, [b.index(0)], bounds, 5)
            b.atomic("add", total, out, [b.group_linear()], bounds=bounds, site=6)

        when(b, b.cmp("eq", i, b.index(0)), give)

    return Kernel((lanes,)).build([F32, F32], make)


def histogram(lanes: int = 64) -> Built:
    """Counts bytes in shared memory, then adds to the result."""

    def make(b: Builder, views: list[Value]) -> None:
        x, counts = views
        n = size_of(b, 0)
        local = b.shared_alloc(I32, [256], "local")
        lane = b.lane_linear("lane")
        zero, one = b.constant(0, I32), b.constant(1, I32)
        with b.region(("c", n.type)) as body:
            b.store(zero, local, [body.arguments[0]], "proved")
            b.yield_()
        b.for_(lane, b.index(256), b.index(lanes), [], body.region)
        b.barrier()
        with b.region(("i", n.type)) as body:
            value = b.cast(b.load(x, [body.arguments[0]], "proved"), n.type)  # type: ignore[arg-type]
            b.atomic("add", one, local, [value], scope="group", bounds="proved")
            b.yield_()
        step = b.binary("mul", b.group_count(), b.index(lanes))
        b.for_(position(b, lanes), n, step, [], body.region)
        b.barrier()
        with b.region(("c", n.type)) as body:
            (c,) = body.arguments
            b.atomic("add", b.load(local, [c], "proved"), counts, [c], bounds="proved")
            b.yield_()
        b.for_(lane, b.index(256), b.index(lanes), [], body.region)

    return Kernel((lanes,)).build([U8, I32], make)
