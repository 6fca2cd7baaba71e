"""For tests: random Tile kernels of integer arithmetic, guards, loops and accesses.

``draw`` is any source of choices: it is given a list and picks an item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera_lang.ir.core import PointerType, Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import BOOL, I8, I32, I64, INDEX, U8, U32, DType

Draw = Callable[[Sequence[Any]], Any]
DTYPES = (INDEX, INDEX, I64, I32, U32, I8, U8)
_BINARY = ("add", "sub", "mul", "floordiv", "mod", "min", "max", "and", "or", "xor", "shl", "shr")
_CONSTANTS = (0, 1, 2, 3, 7, 8, 63, 100, -1, -2, -5, 127, 2**31 - 1, 2**62, -(2**63))


@dataclass
class Generator:
    draw: Draw
    builder: Builder = field(default_factory=Builder)
    pool: list[Value] = field(default_factory=list)
    array: Value | None = None
    size: Value | None = None
    sites: int = 0

    def site(self) -> int:
        self.sites += 1
        return self.sites - 1

    def of(self, dtype: DType) -> Value:
        """A value of a dtype: one there is, cast where needed, or a constant."""
        known = [v for v in self.pool if v.type == dtype]
        choice = self.draw(["known", "known", "cast", "constant"])
        if choice == "known" and known:
            return self.draw(known[-6:])
        others = [v for v in self.pool if v.type not in (dtype, BOOL)]
        if choice == "cast" and others:
            return self.builder.cast(self.draw(others[-6:]), dtype)
        return self.constant(dtype)

    def constant(self, dtype: DType) -> Value:
        bits, value = dtype.bits, self.draw(_CONSTANTS)
        low = -(1 << (bits - 1)) if dtype.is_signed else 0
        return self.builder.constant((value - low) % (1 << bits) + low, dtype)

    def condition(self) -> Value:
        dtype = self.draw(DTYPES)
        predicate = self.draw(["lt", "le", "gt", "ge", "eq", "ne"])
        made = self.builder.cmp(predicate, self.of(dtype), self.of(dtype))
        choice = self.draw(["plain", "plain", "and", "or", "not"])
        if choice == "not":
            return self.builder.unary("not", made)
        if choice == "plain":
            return made
        dtype = self.draw(DTYPES)
        other = self.builder.cmp(self.draw(["lt", "ge", "ne"]), self.of(dtype), self.of(dtype))
        return self.builder.binary(choice, made, other)

    def value(self) -> None:
        dtype = self.draw(DTYPES)
        kind = self.draw([*_BINARY, *_BINARY, "neg", "abs", "not", "select", "box"])
        b = self.builder
        if kind in ("neg", "abs", "not"):
            made = b.unary(kind, self.of(dtype))
        elif kind == "select":
            made = b.select(self.condition(), self.of(dtype), self.of(dtype))
        elif kind == "box":
            low = b.binary("max", self.of(dtype), b.constant(0, dtype))
            made = b.binary("min", low, b.constant(self.draw([5, 31, 100]), dtype))
        elif kind in ("floordiv", "mod"):
            made = b.binary(kind, self.of(dtype), self.of(dtype), self.site())
        else:
            made = b.binary(kind, self.of(dtype), self.of(dtype))
        self.pool.append(made)

    def statements(self, count: int, depth: int, loops: list[list[Value]]) -> None:
        for _ in range(count):
            kinds = ["value"] * 5 + ["access", "access"]
            if depth:
                kinds += ["if", "if", "for", "while"]
            kind = self.draw(kinds)
            getattr(self, f"_{kind}")(depth, loops) if kind != "value" else self.value()

    def _access(self, depth: int, loops: list[list[Value]]) -> None:
        index = self.of(INDEX)
        assert self.array is not None
        if self.draw([True, False]):
            self.pool.append(self.builder.load(self.array, [index], site=self.site()))
        else:
            self.builder.store(self.of(I64), self.array, [index], site=self.site())

    def _if(self, depth: int, loops: list[list[Value]]) -> None:
        condition, dtype = self.condition(), self.draw(DTYPES)
        mark = len(self.pool)
        regions: list[Any] = []
        exits = 0
        for _ in range(2):
            with self.builder.region() as region:
                self.statements(self.draw([0, 1, 3]), depth - 1, loops)
                if loops and not exits and self.draw([True, False, False]):
                    exits = 1
                    way = self.draw(["break_", "continue_"])
                    values = [self.of(v.type) for v in loops[-1]]  # type: ignore[arg-type]
                    getattr(self.builder, way)(*values)
                else:
                    self.builder.yield_(self.of(dtype))
            del self.pool[mark:]
            regions.append(region.region)
        self.pool.extend(self.builder.if_(condition, *regions))

    def _for(self, depth: int, loops: list[list[Value]]) -> None:
        b, dtype = self.builder, self.draw(DTYPES)
        lower = self.of(INDEX)
        lower = b.binary("mod", lower, b.index(1000), self.site())  # no wrap: the loop is short
        span = b.binary("min", b.binary("max", self.of(INDEX), b.index(-3)), b.index(6))
        choice = self.draw(["up", "size", "down"])
        if choice == "size":
            assert self.size is not None
            lower, upper, step = b.binary("max", lower, b.index(0)), self.size, b.index(1)
        elif choice == "up":
            upper, step = b.binary("add", lower, span), b.index(self.draw([1, 2, 5]))
        else:
            upper, step = b.binary("sub", lower, span), b.index(-1)
        start = self.of(dtype)
        mark = len(self.pool)
        with b.region(("i", INDEX), ("c", dtype)) as body:
            self.pool.extend(body.arguments)
            self.statements(self.draw([1, 2, 4]), depth - 1, [*loops, list(body.arguments[1:])])
            b.yield_(self.of(dtype))
        del self.pool[mark:]
        self.pool.extend(b.for_(lower, upper, step, [start], body.region))

    def _while(self, depth: int, loops: list[list[Value]]) -> None:
        """Ends: the first carried value counts down, whatever the body does."""
        b, dtype = self.builder, self.draw(DTYPES)
        start = self.of(dtype)
        fuel = b.index(self.draw([1, 4, 8]))
        with b.region(("f", INDEX), ("w", dtype)) as head:
            b.condition(b.cmp("gt", head.arguments[0], b.index(0)), *head.arguments)
        mark = len(self.pool)
        with b.region(("f", INDEX), ("w", dtype)) as body:
            self.pool.append(body.arguments[1])
            self.statements(self.draw([1, 3]), 0, [])
            step = self.draw(["sub", "floordiv"])
            amount = b.index(1 if step == "sub" else 2)
            left = b.binary(step, body.arguments[0], amount)
            self.pool.append(left)
            b.yield_(left, self.of(dtype))
        del self.pool[mark:]
        self.pool.extend(b.while_([fuel, start], head.region, body.region))


def random_kernel(draw: Draw) -> Program:
    """A kernel of two lanes over one array ``i64[n]`` and three scalars."""
    g = Generator(draw)
    b = g.builder
    scalar_types = (("n", INDEX), ("a", INDEX), ("b", I32), ("c", U8))
    with b.region(("x", PointerType(I64, "global")), *scalar_types) as body:
        x, g.size, *scalars = body.arguments
        g.array = b.view(x, [g.size], mut=True, name="x")
        g.pool = [g.size, *scalars, b.lane_linear(), b.group_linear()]
        g.statements(draw([3, 6, 10]), 2, [])
        for value in g.pool[-4:]:
            if value.type != BOOL:
                b.store(b.cast(value, I64), g.array, [b.index(0)], site=g.site())
        b.return_()
    b.kernel("random", body.region, group=(2,), grid_rank=1, parameters=["x", "n", "a", "b", "c"])
    return b.program()
