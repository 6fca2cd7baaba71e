"""Kernels with staged products of many forms: what no pass was written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_lang.ir.core import Attribute, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.types.dtype import BF16, F8E4M3, F32, I8, I32, INDEX
from tests.unit.opt.schedule.programs import Array, Kernel, clipped, kernel

T = 64
"""Every tile is T x T."""

Loads = Callable[[Value], tuple[Value, Value]]


class Parts:
    """What the bodies below are made of."""

    def __init__(self, b: ScheduleBuilder, v: Mapping[str, Value]) -> None:
        self.b, self.v = b, v
        self.zero, self.step = b.index(0), b.index(T)

    def zeros(self) -> Value:
        return self.b.full(self.b.constant(0.0, F32), (T, T))

    def load(
        self, name: str, rows: tuple[str, Value], columns: tuple[str, Value], hint: str = ""
    ) -> Value:
        """A tile of an array at two starts; each with the name of its size."""
        extents = [clipped(self.b, self.v[n], at, self.step) for n, at in (rows, columns)]
        return self.b.load_tile(
            self.v[name], [rows[1], columns[1]], extents, (T, T), hint=hint or name
        )

    def store(
        self, name: str, tile: Value, rows: tuple[str, Value], columns: tuple[str, Value]
    ) -> None:
        extents = [clipped(self.b, self.v[n], at, self.step) for n, at in (rows, columns)]
        self.b.store_tile(self.b.cast(tile, BF16), self.v[name], [rows[1], columns[1]], extents)

    def over_k(self, carried: Sequence[Value], body: Callable[..., Sequence[Value]],
               upper: Value | None = None) -> tuple[Value, ...]:  # fmt: skip
        arguments = [("p", INDEX), *((c.name or "c", c.type) for c in carried)]
        with self.b.region(*arguments) as inner:
            self.b.yield_(*body(*inner.arguments))
        return self.b.loops(
            [self.zero], [upper or self.v["k"]], [self.step], carried, inner.region, ["p"],
            mapping=["loop"],
        )  # fmt: skip

    def grid(self, body: Callable[[Value, Value], None]) -> None:
        with self.b.region(("i", INDEX), ("j", INDEX)) as grid:
            body(*grid.arguments)
            self.b.yield_()
        self.b.loops(
            [self.zero] * 2, [self.v["m"], self.v["n"]], [self.step] * 2, [], grid.region,
            ["i", "j"], mapping=["grid", "grid"],
        )  # fmt: skip


A, B, C = (
    Array("a", BF16, ("m", "k")),
    Array("b", BF16, ("k", "n")),
    Array("c", BF16, ("m", "n"), True),
)
SIZES = {"m": 136, "n": 200, "k": 264}


def made(
    arrays: Sequence[Array], body: Callable[[Parts], None],
    attributes: Mapping[str, Attribute] | None = None, sizes: Mapping[str, int] | None = None,
) -> Kernel:  # fmt: skip
    return kernel("made", arrays, sizes or SIZES, lambda b, v: body(Parts(b, v)), attributes)


def two_sums() -> Kernel:
    """Two accumulators that share a left operand."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value, y: Value) -> Sequence[Value]:
                a = p.load("a", ("m", i), ("k", k))
                b, d = p.load("b", ("k", k), ("n", j)), p.load("d", ("k", k), ("n", j))
                return p.b.dot(a, b, x), p.b.dot(a, d, y)

            x, y = p.over_k([p.zeros(), p.zeros()], step)
            p.store("c", p.b.binary("mul", x, y), ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, Array("d", BF16, ("k", "n")), C], body)


def read_twice() -> Kernel:
    """A staged tile that a product and element-wise work read: it is in registers too."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value, y: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return p.b.dot(a, b, x), p.b.binary("add", y, p.b.cast(a, F32))

            x, y = p.over_k([p.zeros(), p.zeros()], step)
            p.store("c", p.b.binary("add", x, y), ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body, sizes={"m": 128, "n": 192, "k": 256})


def used_each_turn() -> Kernel:
    """The accumulator is scaled in every turn, so each product is waited for."""

    def body(p: Parts) -> None:
        half = p.b.full(p.b.constant(0.5, F32), (T, T))

        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(a, b, p.b.binary("mul", x, half)),)

            (x,) = p.over_k([p.zeros()], step)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body)


def under_a_condition() -> Kernel:
    """Products on one side of a condition that is the same for the group."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                inside = p.b.cmp("le", k, p.b.binary("add", i, j))
                with p.b.region() as then:
                    a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                    p.b.yield_(p.b.dot(a, b, x))
                with p.b.region() as otherwise:
                    p.b.yield_(x)
                return p.b.if_(inside, then.region, otherwise.region)

            (x,) = p.over_k([p.zeros()], step)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body)


def counted_by_memory() -> Kernel:
    """How far each row of tiles goes along the contraction is read from an array."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            row = p.b.binary("floordiv", i, p.step)
            count = p.b.cast(p.b.load(p.v["count"], [row]), INDEX)

            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(a, b, x),)

            upper = p.b.binary("min", count, p.v["k"])
            (x,) = p.over_k([p.zeros()], step, upper)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, Array("count", I32, ("r",)), C], body, sizes={**SIZES, "r": 3})


def one_after_the_other() -> Kernel:
    """A computed tile is the left operand of the next product."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(a, b, x),)

            (x,) = p.over_k([p.zeros()], step)
            d = p.load("d", ("n", j), ("n", p.zero))
            x = p.b.mask(p.b.cast(x, BF16), p.b.constant(0.0, BF16), [
                p.step, clipped(p.b, p.v["n"], j, p.step)
            ])  # fmt: skip
            p.store("c", p.b.dot(x, d, p.zeros()), ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, Array("d", BF16, ("n", "n")), C], body)


def added_to_memory() -> Kernel:
    """The accumulator begins with what the array holds."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            old = p.b.cast(p.load("c", ("m", i), ("n", j), "old"), F32)

            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(a, b, x),)

            (x,) = p.over_k([old], step)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body)


def several_results() -> Kernel:
    """Two stores, one of them transposed."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(a, b, x),)

            (x,) = p.over_k([p.zeros()], step)
            p.store("c", x, ("m", i), ("n", j))
            p.store("d", p.b.transpose(x, (1, 0)), ("n", j), ("m", i))

        p.grid(tile)

    return made([A, B, C, Array("d", BF16, ("n", "m"), True)], body)


def transposed_left() -> Kernel:
    """The left operand is given as k x m."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("k", k), ("m", i)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(p.b.transpose(a, (1, 0)), b, x),)

            (x,) = p.over_k([p.zeros()], step)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([Array("a", BF16, ("k", "m")), B, C], body)


def nested_sums() -> Kernel:
    """Two loops around one accumulator."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def turn(r: Value, x: Value) -> Sequence[Value]:
                def step(k: Value, y: Value) -> Sequence[Value]:
                    a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                    return (p.b.dot(a, b, y),)

                return p.over_k([x], step)

            (x,) = p.over_k([p.zeros()], turn, p.b.index(3 * T))
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body)


def row_sums() -> Kernel:
    """A reduction over the rows of the product, and a store of a vector."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return (p.b.dot(a, b, x),)

            (x,) = p.over_k([p.zeros()], step)
            extent = clipped(p.b, p.v["n"], j, p.step)
            sums = p.b.reduce("add", x, extent, 1)
            column = p.b.binary("floordiv", j, p.step)
            p.b.store_tile(
                sums, p.v["s"], [column, i], [clipped(p.b, p.v["m"], i, p.step)], dims=(1,)
            )  # fmt: skip

        p.grid(tile)

    return made([A, B, Array("s", F32, ("q", "m"), True)], body, sizes={**SIZES, "q": 4})


def computed_right() -> Kernel:
    """The right operand is made on the fly of small integers."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, q = p.load("a", ("m", i), ("k", k)), p.load("q", ("k", k), ("n", j))
                wide = p.b.cast(p.b.cast(q, F32), BF16)
                return (p.b.dot(a, wide, x),)

            (x,) = p.over_k([p.zeros()], step)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    sizes = {"m": 128, "n": 192, "k": 256}
    return made([A, Array("q", I8, ("k", "n")), C], body, sizes=sizes)


def computed_both() -> Kernel:
    """Both operands are computed, and one of the loads is an operand of another product."""

    def body(p: Parts) -> None:
        half = p.b.full(p.b.constant(0.5, F32), (T, T))

        def tile(i: Value, j: Value) -> None:
            def scaled(t: Value) -> Value:
                return p.b.cast(p.b.binary("mul", p.b.cast(t, F32), half), BF16)

            def step(k: Value, x: Value, y: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                return p.b.dot(scaled(a), scaled(b), x), p.b.dot(a, b, y)

            x, y = p.over_k([p.zeros(), p.zeros()], step)
            p.store("c", p.b.binary("add", x, y), ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body, sizes={"m": 128, "n": 192, "k": 256})


def computed_small() -> Kernel:
    """Operands of 8 bits that are computed: both go through shared memory, along k."""

    def body(p: Parts) -> None:
        def tile(i: Value, j: Value) -> None:
            def step(k: Value, x: Value) -> Sequence[Value]:
                a, b = p.load("a", ("m", i), ("k", k)), p.load("b", ("k", k), ("n", j))
                left, right = p.b.cast(a, F32), p.b.cast(b, F32)
                return (p.b.dot(p.b.cast(left, F8E4M3), p.b.cast(right, F8E4M3), x),)

            (x,) = p.over_k([p.zeros()], step)
            p.store("c", x, ("m", i), ("n", j))

        p.grid(tile)

    return made([A, B, C], body, sizes={"m": 128, "n": 192, "k": 256})
