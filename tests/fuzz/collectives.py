"""For tests: what generated programs have beyond plain lanes: warp and group operations, arrays of
a lane's own, tables of the module.

``Together`` is the mixin of the generator that chooses them, for the seeds that have them. Must
not know the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz import numbers
from tests.fuzz import program as p
from tests.fuzz.numbers import BITS, FLOATS, INTEGERS, Number, cast

WARP = 32
SUMMED = (
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "index",
    "f16",
    "bf16",
    "f32",
    "f64",
)


def folded(values: list[Any], combine: Callable[[Any, Any], Any]) -> Any:
    """The values of one warp, each lane with the one 16, 8, 4, 2, 1 behind it."""
    values = list(values)
    for step in (16, 8, 4, 2, 1):
        for lane in range(step):
            if lane + step < len(values):
                values[lane] = combine(values[lane], values[lane + step])
    return values[0]


def combined(operator: str, dtype: str) -> Callable[[Any, Any], Any]:
    operation = numbers.float_operation if dtype in FLOATS else numbers.integer_operation
    return lambda a, b: operation(operator, a, b, dtype)


@dataclass
class Collective(p.Together):
    """``name = warp_sum(expr)``: made of the values of all lanes of a warp or of the group."""

    function: str
    name: str
    expr: p.Expr
    dtype: str
    lane: p.Expr | None = None  # of `warp_shuffle`

    def lines(self) -> list[str]:
        given = [self.expr.text(), *([self.lane.text()] if self.lane else [])]
        return [f"{self.name} = {self.function}({', '.join(given)})"]

    def run_group(self, lanes: list[p.Lane]) -> None:
        values = [self.expr.value(lane) for lane in lanes]
        others = [self.lane.value(lane) for lane in lanes] if self.lane else []
        warps = [values[k : k + WARP] for k in range(0, len(values), WARP)]
        for at, lane in enumerate(lanes):
            warp, place = warps[at // WARP], at % WARP
            if self.function.startswith("group"):
                lane.names[self.name] = self._of_group(warps)
            elif self.lane:
                other = others[at] % WARP
                lane.names[self.name] = warp[other if other < len(warp) else place]
            else:
                lane.names[self.name] = self._of_warp(warp, place)

    def _of_warp(self, warp: list[Any], place: int) -> Number:
        match self.function:
            case "warp_sum":
                return (
                    numbers.rounded(self._sum(warp), self.dtype) if self._float else self._sum(warp)
                )
            case "warp_max" | "warp_min":
                return folded(warp, combined(self.function[5:], self.dtype))
            case "warp_any":
                return any(warp)
            case "warp_all":
                return all(warp)
            case "warp_ballot":
                return sum(1 << k for k, v in enumerate(warp) if v)
            case _:
                return sum(1 << k for k, v in enumerate(warp) if v == warp[place])

    @property
    def _float(self) -> bool:
        return self.dtype in FLOATS

    def _sum(self, warp: list[Any]) -> Any:
        """Of narrow floats in f32, not rounded to their dtype."""
        wide = "f32" if self._float and BITS[self.dtype] < 32 else self.dtype
        return folded(warp, combined("+", wide))

    def _of_group(self, warps: list[list[Any]]) -> Number:
        kind = self.function.removeprefix("group_")
        if kind != "sum":
            parts = [folded(w, combined(kind, self.dtype)) for w in warps]
            return folded(parts, combined(kind, self.dtype))
        parts = [self._sum(w) for w in warps]
        if len(parts) > 1:
            nothing: Number = 0.0 if self._float else 0
            parts = [self._sum([*parts, *[nothing] * (WARP - len(parts))])]
        return self._rounded(parts[0])

    def _rounded(self, total: Any) -> Number:
        return numbers.rounded(total, self.dtype) if self._float else total


@dataclass
class Cells(p.Stmt):
    """``c = tlocal.alloc((5,), i32)``: each lane has an array of its own."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def lines(self) -> list[str]:
        shape = f"({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''})"
        return [f"{self.name} = tlocal.alloc({shape}, {self.dtype})"]

    def run(self, lane: p.Lane) -> p.Outcome:
        count = 1
        for n in self.shape:
            count *= n
        lane.own[self.name] = p.Array(self.dtype, self.shape, [cast(0, "i32", self.dtype)] * count)
        return None


@dataclass
class Entry(p.Expr):
    """``i32(T[k % 5])``: a number of a table of the module, at an index of the run."""

    table: str
    values: tuple[int, ...]
    index: p.Expr
    dtype: str

    def text(self) -> str:
        return f"{self.dtype}({self.table}[{self.index.text()}])"

    def value(self, lane: p.Lane) -> Any:
        return cast(self.values[self.index.value(lane)], "i64", self.dtype)


class Together:
    """The part of the generator that chooses them."""

    random: Any
    tables: list[tuple[str, tuple[int, ...]]]
    cells: list[Cells]

    def collective(self: Any, lanes: int) -> list[p.Stmt]:
        del lanes
        name = self.fresh("v")
        kind = self.random.choice(
            ("warp_sum", "warp_max", "warp_min", "warp_shuffle", "warp_any", "warp_all",
             "warp_ballot", "warp_match", "group_sum", "group_max", "group_min")
        )  # fmt: skip
        lane = None
        if kind in ("warp_any", "warp_all", "warp_ballot"):
            expr: p.Expr = self.condition(2)
            dtype = "u32" if kind == "warp_ballot" else "bool"
        elif kind == "warp_match":
            expr = self.expr(self.random.choice(INTEGERS), 2)
            dtype = "u32"
        else:
            dtype = self.random.choice(SUMMED)
            expr = self.expr(dtype, 2)
            lane = self.expr(self.random.choice(("i32", "index")), 1) if "shuffle" in kind else None
        self.frames[-1].readable.append((name, dtype))
        self.frames[-1].writable.append((name, dtype))
        return [Collective(kind, name, expr, dtype, lane)]

    def collectives(self: Any, lanes: int) -> list[p.Stmt]:
        """One or two, perhaps where the whole group decides or in a loop; what follows uses them
        only where they are sure to be."""
        if self.random.random() < 0.6:
            return self.collective(lanes)
        frame = type(self.frames[0])
        self.frames.append(frame())
        body = [*self.collective(lanes), *self.statement(1), *self.collective(lanes)]
        self.frames.pop()
        writable = self.frames[-1].writable
        own = [n for n in writable if n[1] != "bool"]
        if own:
            body += self.change(*self.random.choice(own))
        n = p.Scalar("n", "index")
        if self.random.random() < 0.5:
            most = p.Const(self.random.randint(2, 100), "index", True)
            return [p.UniformIf(p.Compare([n, most], ["<"]), body, [])]
        if self.random.random() < 0.5:
            bounds: list[p.Expr] = [p.Const(self.random.randint(1, 3), "index", True)]
        else:
            bounds = [p.Binary("%", n, p.Const(4, "index", True), "index")]
        return [p.UniformFor(self.fresh("r"), bounds, body)]

    def new_cells(self: Any) -> list[p.Stmt]:
        """An array of each lane's own, every element written in a loop."""
        dtype = self.random.choice([d for d in SUMMED if d != "index"])
        shape = self.random.choice(((1,), (3,), (4,), (2, 3), (7,), (16,), (90,)))
        made = Cells(self.fresh("c"), shape, dtype)
        names = [self.fresh("j") for _ in shape]
        self.frames.append(type(self.frames[0])([(n, "index") for n in names]))
        body: list[p.Stmt] = [
            p.Store(made.name, [p.Name(n, "index") for n in names], self.expr(dtype, 2), dtype)
        ]
        self.frames.pop()
        for n, size in zip(reversed(names), reversed(shape), strict=True):
            body = [p.For(n, [p.Const(size, "index", True)], body)]
        self.cells.append(made)
        return [made, *body]

    def cell(self: Any, cells: Cells, depth: int) -> list[p.Expr]:
        """A place in such an array: known when compiled, or in the run."""
        return [
            p.Const(self.random.randrange(n), "index", True)
            if self.random.random() < 0.4
            else self.below(n, depth)
            for n in cells.shape
        ]

    def below(self: Any, size: int, depth: int) -> p.Expr:
        inner = self.expr(self.random.choice(("index", "i32", "u8")), min(depth - 1, 1))
        if inner.dtype != "index" or isinstance(inner, p.Const):
            inner = p.Cast(self.id() if isinstance(inner, p.Const) else inner, "index")
        return p.Binary("%", inner, p.Const(size, "index", True), "index")

    def reduced_cells(self: Any, dtype: str, depth: int) -> p.Expr:
        """A reduction of what a lane has of its own, or of a part of it."""
        fitting = [c for c in self.cells if c.dtype in INTEGERS
                   and self.reductions_to(c.dtype, dtype)]  # fmt: skip
        if not fitting or self.in_helper:
            return self.leaf(dtype)
        cells = self.random.choice(fitting)
        *rows, size = cells.shape
        bounds: list[p.Expr | None] = [
            self.below(size, depth) if self.random.random() < 0.3 else None for _ in range(2)
        ]
        kind = self.random.choice(self.reductions_to(cells.dtype, dtype))
        if kind == "argmax":
            bounds = [None, None]
        step = self.random.choice((1, 1, 2))
        indices = [self.below(n, depth) for n in rows]
        return p.Reduce(kind, cells.name, indices, *bounds, cells.dtype, dtype, step)

    def store_cell(self: Any) -> list[p.Stmt]:
        cells = self.random.choice(self.cells)
        operator = self.random.choice(("", "", "+", "-", "*"))
        e = self.expr(cells.dtype, 2)
        return [p.Store(cells.name, self.cell(cells, 2), e, cells.dtype, operator)]

    def new_table(self: Any) -> None:
        values = tuple(self.random.randint(-100, 100) for _ in range(self.random.randint(2, 9)))
        self.tables.append((f"T{self.fresh('_')}_{self.name}", values))

    def entry(self: Any, dtype: str, depth: int) -> p.Expr:
        fitting = [t for t in self.tables if min(t[1]) >= 0 or not dtype.startswith("u")]
        if not fitting or dtype not in (*INTEGERS, "f32", "f64"):
            return self.leaf(dtype)
        name, values = self.random.choice(fitting)
        return Entry(name, values, self.below(len(values), depth), dtype)


__all__ = ["Cells", "Collective", "Entry", "Together"]
