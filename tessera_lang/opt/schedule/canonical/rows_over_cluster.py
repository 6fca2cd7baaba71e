"""Rows that several groups share become parts: the grid gets a further, fastest axis.

How many groups share a row is decided before (``cluster``). Each loads, works on and stores its
part; reductions are those of the cluster. Must not know why rows are shared.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import BOUNDED, COPIES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.decision_context import (
    COST,
    Context,
    origins_of,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import STORE, Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.splittable_rows import has_tile, local_row
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import INDEX

_FULL, _IOTA, _REDUCE = (PREFIX + n for n in ("full", "iota", "reduce"))


@rewrites
def split_rows(program: Program, context: Context) -> Program:
    """The kernel in which each group of a cluster has a part of a row; itself where no rows are
    shared."""
    kernel = kernel_of(program)
    groups = kernel.attributes.get("cluster")
    facts = facts_of(kernel)
    # No other pass in front of this one decides a cluster, and the user's is for products.
    if not isinstance(groups, tuple) or origins_of(kernel).get("cluster") != COST:
        return program
    size = None if facts.grid is None else local_row(facts, facts.grid)
    if size is None or facts.grid is None:
        return program
    (count,) = groups
    assert isinstance(count, int)
    part = -(-size // (count * WARP)) * WARP
    return with_kernel(program, _Splitter(facts, facts.grid, count, part).kernel())


@dataclass(slots=True, eq=False)
class _Splitter:
    """Writes the kernel in which the grid has a further, fastest axis: the parts of a row."""

    facts: Facts
    grid: Operation
    groups: int
    part: int
    to: dict[Value, Value] = field(default_factory=dict[Value, Value])
    out: list[Operation] = field(default_factory=list[Operation])

    def kernel(self) -> Operation:
        kernel = self.facts.kernel
        region = kernel.regions[0]
        operations: list[Operation] = []
        for o in region.operations:
            operations += self._loop(o) if o is self.grid else [o]
        return replace(kernel, regions=(replace(region, operations=tuple(operations)),))

    def _loop(self, loop: Operation) -> list[Operation]:
        names, mapping = loop.strings("axes"), loop.strings("mapping")
        axes = len(names)
        zero, step, end = (self._constant(n) for n in (0, self.part, self.part * self.groups))
        before, self.out = self.out, []
        bounds = [loop.operands[i * axes : (i + 1) * axes] for i in range(3)]
        start = Value(INDEX, "part")
        region = loop.regions[0]
        for o in region.operations:
            self._operation(o, start)
        body = Region((*region.arguments, start), tuple(self.out))
        operands = (*bounds[0], zero, *bounds[1], end, *bounds[2], step)
        attributes = {**loop.attributes, "axes": (*names, "part"), "mapping": (*mapping, "grid")}
        return [*before, replace(loop, operands=operands, attributes=attributes, regions=(body,))]

    # --- numbers ------------------------------------------------------------------------------

    def _emit(self, name: str, *operands: Value) -> Value:
        made = Value(INDEX)
        self.out.append(Operation(name, operands, (made,), {}, (), self.grid.span))
        return made

    def _constant(self, number: int) -> Value:
        made = Value(INDEX)
        attributes = {"value": number}
        self.out.append(Operation("tile.constant", (), (made,), attributes, (), self.grid.span))
        return made

    def _extent(self, extent: Value, start: Value) -> Value:
        """How many elements of an extent lie in this part."""
        rest = self._emit("tile.sub", self._value(extent), start)
        size, zero = self._constant(self.part), self._constant(0)
        return self._emit("tile.max", zero, self._emit("tile.min", size, rest))

    # --- operations -----------------------------------------------------------------------------

    def _value(self, value: Value) -> Value:
        return self.to.get(value, value)

    def _result(self, value: Value) -> Value:
        t = value.type
        if not isinstance(t, TileType):
            return value
        return self.to.setdefault(value, Value(replace(t, shape=(self.part,)), value.name))

    def _operation(self, o: Operation, start: Value) -> None:
        if not has_tile(o):
            self.out.append(o)
            return
        operands = list(map(self._value, o.operands))
        attributes = o.attributes
        if o.name in COPIES:
            operands = self._access(o, operands, start)
        elif o.name in BOUNDED:
            operands[-1] = self._extent(operands[-1], start)
            if o.name == _REDUCE:
                attributes = {**attributes, "across": self.groups}
        results = tuple(map(self._result, o.results))
        made = replace(o, operands=tuple(operands), results=results, attributes=attributes)
        self.out.append(made)
        if o.name == _IOTA:
            self._moved(o, made, start)

    def _access(self, o: Operation, operands: Sequence[Value], start: Value) -> list[Value]:
        first = 1 if o.name == STORE else 0
        dims, steps = o.integers("dims"), o.attributes.get("steps", (1,))
        assert isinstance(steps, tuple)
        (dim,), (step,) = dims, steps
        assert isinstance(dim, int)
        assert isinstance(step, int)
        made = list(operands)
        distance = start if step == 1 else self._emit("tile.mul", start, self._constant(step))
        at = first + 1 + dim
        made[at] = self._emit("tile.add", made[at], distance)
        made[-1] = self._extent(made[-1], start)
        return made

    def _moved(self, o: Operation, iota: Operation, start: Value) -> None:
        """Coordinates in the whole row."""
        t = iota.result.tile_type
        number = start
        if t.dtype != INDEX:
            number = Value(t.dtype)
            self.out.append(Operation("tile.cast", (start,), (number,), {}, (), o.span))
        spread, total = Value(t), Value(t)
        self.out.append(Operation(_FULL, (number,), (spread,), {}, (), o.span))
        operands = (iota.result, spread)
        self.out.append(Operation("tile.add", operands, (total,), {}, (), o.span))
        self.to[o.result] = total
