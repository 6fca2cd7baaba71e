"""Loads of numbers for the next iteration of a software pipeline, behind the work of this one.

What lanes read themselves for an element-wise step, such as a number for each column, would arrive
long after the products that the step waits for. It is carried from one iteration to the next: read
where the step before is done, it takes no register more than at the step itself. Owns which loads
these are and how their places are computed for another iteration. Must not know products.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.rewrite import clone_operations
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.loops.pipeline_partition import Divided
from tessera_lang.opt.schedule.query.kernel_facts import LOAD
from tessera_lang.opt.schedule.query.scalar_facts import is_tile
from tessera_lang.record import dataclass

_MOST_AXES = 1
"""Of what is carried: a matrix takes as many registers as an accumulator."""


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """``loads`` of an iteration's early part, in order, and the numbers that say where they are."""

    parts: Divided
    loads: tuple[Operation, ...]
    numbers: tuple[Operation, ...]

    def read(self, b: ScheduleBuilder, variable: Value) -> list[Value]:
        """What the loads of another iteration give."""
        to = {self.parts.variable: variable}
        for operation in clone_operations((*self.numbers, *self.loads), to):
            b.append(operation)
        return [to[x.result] for x in self.loads]

    def first(self, b: ScheduleBuilder, lower: Value, upper: Value) -> list[Value]:
        """What the first iteration takes; zeros where there is none."""
        with b.region() as then:
            found = self.read(b, lower)
            b.yield_(*found)
        with b.region() as otherwise:
            b.yield_(*(b.full(b.constant(0, v.tile_type.dtype), v.tile_type.shape) for v in found))
        made = b.emit("tile.if", (b.cmp("lt", lower, upper),), [v.type for v in found], None,
                      (then.region, otherwise.region), [v.name for v in found])  # fmt: skip
        return list(made.results)

    def following(self, b: ScheduleBuilder, variable: Value, upper: Value, step: Value) -> Value:
        """The variable of the next iteration; of this one where it is the last."""
        further = b.binary("add", variable, step)
        return b.select(b.cmp("lt", further, upper), further, variable)


def loads_ahead(parts: Divided) -> Ahead:
    """The loads that an iteration may take from the one before it."""
    made = {v: o for o in parts.early for v in o.results}
    numbers: dict[int, Operation] = {}
    loads: list[Operation] = []
    for operation in parts.early:
        if operation.name != LOAD or operation.attributes.get("stage") == "shared":
            continue
        needed = _numbers(operation.operands, made, parts)
        if len(operation.result.tile_type.shape) <= _MOST_AXES and needed is not None:
            loads.append(operation)
            numbers.update({id(o): o for o in needed})
    kept = tuple(o for o in parts.early if id(o) in numbers)
    return Ahead(parts, tuple(loads), kept)


def _numbers(
    values: Sequence[Value], made: dict[Value, Operation], parts: Divided
) -> list[Operation] | None:
    """The operations of an iteration that values are made by, where these only compute numbers of
    its variable and of what does not change."""
    found: dict[int, Operation] = {}
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in parts.carried:
            return None
        operation = made.get(value)
        if operation is None or id(operation) in found:
            continue
        if id(operation) not in {id(o) for o in parts.both} or any(map(is_tile, operation.results)):
            return None
        found[id(operation)] = operation
        waiting += operation.operands
    return list(found.values())
