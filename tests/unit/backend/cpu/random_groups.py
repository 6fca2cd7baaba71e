"""Random kernels without races, with barriers, shared memory and every kind of exit.

A lane writes only elements of its own (index = lane modulo the lanes of the group) and, in
shared memory, its own cell between barriers. Barriers stand only where no lane can have left.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tessera_lang.ir.core import Operation, PointerType, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import F32, I32, INDEX, DType

_DTYPES = (INDEX, INDEX, I32, F32)
ELEMENTS = 6  # of each lane in the array that is written


@dataclass
class _Level:
    """What encloses a statement: carried values of loops, results of scopes."""

    kind: str
    types: tuple[DType, ...]
    barriers: bool


PART = 32  # lanes of a part of a longer row


@dataclass
class GroupKernel:
    """Builds one kernel: ``x`` is read, ``y`` written, ``a`` and ``c`` are numbers."""

    seed: int
    group: tuple[int, ...]
    b: Builder = field(default_factory=Builder)
    pool: list[tuple[Value, bool]] = field(default_factory=list)  # value, uniform
    levels: list[_Level] = field(default_factory=list)
    sites: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.lanes = prod(self.group)

    # --- values -----------------------------------------------------------------------------

    def site(self) -> int:
        self.sites += 1
        return self.sites - 1

    def of(self, dtype: DType, uniform: bool = False) -> Value:
        known = [v for v, same in self.pool if v.type == dtype and (same or not uniform)]
        if known and self.random.random() < 0.8:
            return self.random.choice(known[-8:])
        value = self.random.choice([0, 1, 2, 3, 5, -1, -4, 17])
        return self.b.constant(value, dtype)

    def is_uniform(self, *values: Value) -> bool:
        known = dict(self.pool)
        return all(known.get(v, True) for v in values)

    def add(self, value: Value, uniform: bool) -> None:
        self.pool.append((value, uniform))

    def condition(self, uniform: bool) -> tuple[Value, bool]:
        dtype = self.random.choice(_DTYPES)
        a, c = self.of(dtype, uniform), self.of(dtype, uniform)
        name = self.random.choice(["lt", "le", "gt", "ge", "eq", "ne"])
        return self.b.cmp(name, a, c), self.is_uniform(a, c)

    def small(self, value: Value, most: int) -> Value:
        """An index in 0..most-1."""
        return self.b.binary("mod", value, self.b.index(most))

    def own(self) -> Value:
        """An index into ``y`` that is this lane's alone."""
        part = self.small(self.of(INDEX), ELEMENTS)
        row = self.b.binary("mul", part, self.b.index(self.lanes))
        return self.b.binary("add", self.b.binary("add", row, self.lane), self.segment)

    def value(self) -> None:
        dtype = self.random.choice(_DTYPES)
        a, c = self.of(dtype), self.of(dtype)
        uniform = self.is_uniform(a, c)
        if dtype == F32:
            name = self.random.choice(["add", "sub", "mul", "min", "max"])
        else:
            name = self.random.choice(["add", "sub", "mul", "min", "max", "xor", "floordiv", "mod"])
        if self.random.random() < 0.2:
            chosen, same = self.condition(False)
            self.add(self.b.select(chosen, a, c), uniform and same)
        elif name in ("floordiv", "mod"):
            self.add(self.b.binary(name, a, c, self.site()), uniform)
        else:
            self.add(self.b.binary(name, a, c), uniform)

    def convert(self) -> None:
        a = self.of(self.random.choice(_DTYPES))
        to = self.random.choice(_DTYPES)
        self.add(self.b.cast(a, to), self.is_uniform(a))

    # --- statements -------------------------------------------------------------------------

    def statements(self, count: int, depth: int, uniform: bool) -> bool:
        """``uniform``: all lanes are here. Returns False behind an exit."""
        for _ in range(count):
            kinds = ["value", "value", "convert", "read", "write", "update"]
            if depth:
                kinds += ["if_", "for_", "strided", "scope", "while_", "until"]
            if uniform and all(level.barriers for level in self.levels):
                kinds += ["exchange", "exchange"]
            kind = self.random.choice(kinds)
            if kind in ("value", "convert"):
                getattr(self, kind)()
            else:
                getattr(self, kind)(depth, uniform)
            if uniform and not all(level.barriers for level in self.levels):
                uniform = self.levels[-1].barriers
        return True

    def read(self, depth: int, uniform: bool) -> None:
        index = self.of(INDEX) if self.random.random() < 0.5 else self.lane
        self.add(self.b.load(self.x, [index], site=self.site()), False)

    def write(self, depth: int, uniform: bool) -> None:
        self.b.store(self.of(F32), self.y, [self.own()], site=self.site())

    def update(self, depth: int, uniform: bool) -> None:
        kind = self.random.choice(["add", "min", "max", "exchange"])
        index = self.own()
        self.add(self.b.atomic(kind, self.of(F32), self.y, [index], site=self.site()), False)

    def exchange(self, depth: int, uniform: bool) -> None:
        b = self.b
        b.store(self.of(F32), self.shared, [self.lane], "proved")
        b.barrier()
        other = b.binary("add", self.lane, b.index(self.random.randrange(self.lanes)))
        self.add(b.load(self.shared, [self.small(other, self.lanes)], "proved"), False)
        b.barrier()

    def exit(self, uniform: bool) -> bool:
        """Maybe an exit as the end of a region; divergent ones end barriers around."""
        if self.random.random() < 0.6:
            return False
        ways = ["return"]
        if any(level.kind == "loop" for level in self.levels):
            ways += ["break", "continue"] * 2
        if any(level.kind == "scope" for level in self.levels):
            ways += ["leave"] * 3
        way = self.random.choice(ways)
        wanted = {"leave": "scope", "return": "kernel"}.get(way, "loop")
        at = max(i for i, level in enumerate(self.levels) if level.kind == wanted)
        if not uniform and any(level.barriers for level in self.levels[at:]):
            return False
        values = [self.of(t) for t in self.levels[at].types]
        if way == "return":
            self.b.return_()
        else:
            getattr(self.b, "leave" if way == "leave" else f"{way}_")(*values)
        return True

    def side(self, depth: int, uniform: bool, results: tuple[DType, ...], exits: bool) -> Any:
        mark = len(self.pool)
        with self.b.region() as region:
            self.statements(self.random.choice([0, 1, 2, 3]), depth, uniform)
            left = exits and self.exit(uniform)
            if not left:
                self.b.yield_(*(self.of(t) for t in results))
        del self.pool[mark:]
        return region.region, left

    def if_(self, depth: int, uniform: bool) -> None:
        condition, same = self.condition(self.random.random() < 0.3)
        results = tuple(self.random.choice(_DTYPES) for _ in range(self.random.randrange(3)))
        inside = uniform and same
        then, left = self.side(depth - 1, inside, results, True)
        otherwise, _ = self.side(depth - 1, inside, results, not left)
        values = self.b.if_(condition, then, otherwise)
        for value in values:
            self.add(value, False)

    def loop_body(
        self, depth: int, uniform: bool, arguments: list[tuple[str, DType]], same: bool,
        counted: Value | None = None,
    ) -> Any:  # fmt: skip
        mark = len(self.pool)
        barriers = uniform and same and self.random.random() < 0.6
        types = tuple(t for _, t in arguments[(1 if counted is None else 0) :])
        self.levels.append(_Level("loop", types, barriers))
        with self.b.region(*arguments) as region:
            start = 0
            if counted is None:
                self.add(region.arguments[0], same)
                start = 1
            for value in region.arguments[start:]:
                self.add(value, False)
            self.statements(self.random.choice([1, 2, 4]), depth - 1, uniform and same)
            self.b.yield_(*(self.of(t) for t in types))
        self.levels.pop()
        del self.pool[mark:]
        return region.region

    def carried(self) -> tuple[list[Value], list[tuple[str, DType]]]:
        types = [self.random.choice(_DTYPES) for _ in range(self.random.randrange(3))]
        return [self.of(t) for t in types], [("c", t) for t in types]

    def for_(self, depth: int, uniform: bool) -> None:
        b = self.b
        same = self.random.random() < 0.6
        lower = self.small(self.of(INDEX, same), 4)
        upper = self.small(self.of(INDEX, same), 7)
        step = b.index(self.random.choice([1, 2, -1]))
        starts, arguments = self.carried()
        body = self.loop_body(depth, uniform, [("i", INDEX), *arguments], same)
        for value in b.for_(lower, upper, step, starts, body, self.site()):
            self.add(value, False)

    def strided(self, depth: int, uniform: bool) -> None:
        """The loop over an array that is interchanged."""
        b = self.b
        starts, arguments = self.carried()
        mark = len(self.pool)
        self.levels.append(_Level("loop", tuple(t for _, t in arguments), False))
        with b.region(("k", INDEX), *arguments, ("s", F32)) as region:
            for value in region.arguments:
                self.add(value, False)
            self.levels[-1].types = (*self.levels[-1].types, F32)
            loaded = b.load(self.x, [region.arguments[0]], site=self.site())
            self.add(b.binary("add", region.arguments[-1], loaded), False)
            self.statements(self.random.choice([0, 0, 1, 2]), depth - 1, False)
            b.yield_(*(self.of(t) for _, t in arguments), self.of(F32))
        self.levels.pop()
        del self.pool[mark:]
        limit = self.small(self.of(INDEX), 3 * self.lanes) if self.random.random() < 0.4 else self.n
        step = b.index(self.lanes)
        first = [*starts, self.of(F32)]
        for value in b.for_(self.lane, limit, step, first, region.region, self.site()):
            self.add(value, False)

    def scope(self, depth: int, uniform: bool) -> None:
        types = tuple(self.random.choice(_DTYPES) for _ in range(self.random.randrange(1, 3)))
        mark = len(self.pool)
        self.levels.append(_Level("scope", types, uniform and self.random.random() < 0.5))
        with self.b.region() as region:
            self.statements(self.random.choice([1, 2, 3]), depth - 1, uniform)
            self.b.leave(*(self.of(t) for t in types))
        self.levels.pop()
        del self.pool[mark:]
        for value in self.b.scope(region.region, types):
            self.add(value, False)

    def while_(self, depth: int, uniform: bool) -> None:
        """Halves a uniform number, as tree reductions do."""
        self._counted(depth, uniform, self.b.index(self.random.choice([1, 4, 8])), True)

    def until(self, depth: int, uniform: bool) -> None:
        """Ends at another time in each lane."""
        self._counted(depth, uniform, self.small(self.of(INDEX), 5), False)

    def _counted(self, depth: int, uniform: bool, fuel: Value, same: bool) -> None:
        b = self.b
        starts, arguments = self.carried()
        arguments = [("f", INDEX), *arguments]
        with b.region(*arguments) as head:
            f = head.arguments[0]
            b.condition(b.cmp("gt", f, b.index(0)), *head.arguments)
        mark = len(self.pool)
        barriers = uniform and same and self.random.random() < 0.6
        self.levels.append(_Level("while", tuple(t for _, t in arguments), barriers))
        with b.region(*arguments) as body:
            left = b.binary("floordiv", body.arguments[0], b.index(2))
            self.add(left, same)
            for value in body.arguments[1:]:
                self.add(value, False)
            outer = self.levels
            self.levels = [v for v in outer if v.kind != "loop"]
            self.statements(self.random.choice([1, 2, 3]), depth - 1, uniform and same)
            self.levels = outer
            b.yield_(left, *(self.of(t) for _, t in arguments[1:]))
        self.levels.pop()
        del self.pool[mark:]
        for value in b.while_([fuel, *starts], head.region, body.region):
            self.add(value, False)

    # --- the kernel -------------------------------------------------------------------------

    def build(self) -> Operation:
        b = self.b
        arguments: list[tuple[str, Any]] = [
            ("x", PointerType(F32, "global")), ("n", INDEX), ("y", PointerType(F32, "global")),
            ("m", INDEX), ("a", INDEX), ("c", I32), ("fault", INDEX),
        ]  # fmt: skip
        with b.region(*arguments) as region:
            x, self.n, y, m, a, c, _ = region.arguments
            self.x = b.view(x, [self.n])
            self.y = b.view(y, [m], mut=True)
            self.shared = b.shared_alloc(F32, [self.lanes], "s")
            self.lane = b.lane_linear("lane")
            group = b.group_linear("g")
            self.segment = b.binary("mul", group, b.index(ELEMENTS * self.lanes))
            self.pool = [(self.n, True), (a, True), (c, True), (self.lane, False), (group, True)]
            if len(self.group) > 1:
                self.pool += [(b.lane_index(axis), False) for axis in range(len(self.group))]
            elif self.lanes > PART:
                parts = (b.binary(name, self.lane, b.index(PART)) for name in ("floordiv", "mod"))
                self.pool += [(part, False) for part in parts]
            self.levels.append(_Level("kernel", (), self.random.random() < 0.7))
            self.statements(self.random.choice([3, 6, 10]), 3, True)
            for part in range(ELEMENTS):
                value = self.b.cast(self.of(self.random.choice(_DTYPES)), F32)
                place = b.index(part * self.lanes)
                index = b.binary("add", b.binary("add", place, self.lane), self.segment)
                b.store(b.binary("add", value, b.load(self.y, [index], "proved")), self.y, [index])
            b.return_()
        names = [name for name, _ in arguments]
        return b.kernel("k", region.region, group=self.group, grid_rank=1, parameters=names)
