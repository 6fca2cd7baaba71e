"""A contraction whose iterations several groups share: what every way to share them has in common.

``Parting`` rewrites the body of the grid: the loop that sums runs some of its iterations, from
nothing; a ``combine`` takes the sums in, and what stood behind the loop is its region. Counters
and parts are memory of the launch, behind the kernel's arguments; the plan's ``scratch`` counts
parts until their lowering knows what one takes. Must not know who has which iterations, or how
parts are combined.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import (
    Attribute,
    Operation,
    PointerType,
    Program,
    Region,
    TileType,
    Value,
)
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.ir.schedule.ops import PREFIX, SCHEDULE_OPS
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.lower.schedule_to_tile.common.schedule_ir_builder import Line
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tessera_lang.opt.schedule.query.scalar_facts import axes_of, is_positive_zero
from tessera_lang.opt.schedule.query.staging_rings import is_staged
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch.isa_constants import LINE_BYTES
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import U32
from tessera_lang.types.shape import Dim, dim_op

COMBINE = PREFIX + "combine"


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What a group does of a tile: iterations from ``begin`` up to ``end`` (numbers of iterations)
    of ``iterations``; as ``part`` of the ``count`` of the tile with the number ``place``, whose
    first is number ``first`` of all parts."""

    begin: Value
    end: Value
    place: Value
    first: Value
    part: Value
    count: Value


class Parting:
    """The rewriting of one kernel."""

    def __init__(self, facts: Facts, grid: Operation, loop: Operation) -> None:
        self.facts = facts
        self.grid = grid
        self.loop = loop
        self.sums = tuple(v.type for v in loop.results if isinstance(v.type, TileType))
        self.counters = Value(PointerType(U32, "global"), "counters")
        self.memory = Value(PointerType(self.sums[0].dtype, "global"), "parts")

    @property
    def bounds(self) -> tuple[Value, Value, Value]:
        """Of the outermost axis of the loop, whose iterations are shared."""
        axes = axes_of(self.loop)
        return self.loop.operands[0], self.loop.operands[axes], self.loop.operands[2 * axes]

    def grid_bounds(self) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
        axes, operands = axes_of(self.grid), self.grid.operands
        return operands[:axes], operands[axes : 2 * axes], operands[2 * axes : 3 * axes]

    def whole(
        self, plan: LaunchPlan, made: Sequence[Operation], tiles: Dim, parts: Dim
    ) -> tuple[Program, LaunchPlan]:
        """The kernel with ``made`` in place of its grid, and memory for so many ``parts`` of
        ``tiles``."""
        kernel = self.facts.kernel
        (region,) = kernel.regions
        operations: list[Operation] = []
        for operation in region.operations:
            operations += made if operation is self.grid else [operation]
        body = Region((*region.arguments, self.counters, self.memory), tuple(operations))
        attributes = {n: v for n, v in self._attributes().items() if n not in ("split", "stream")}
        return Program("schedule", (replace(kernel, regions=(body,), attributes=attributes),)), (
            replace(
                plan, slots=(*plan.slots, Slot("workspace"), Slot("scratch")),
                workspace=dim_op("*", tiles, U32.bytes), scratch=parts,
            )
        )  # fmt: skip

    def _attributes(self) -> dict[str, Attribute]:
        kernel = self.facts.kernel
        attributes: dict[str, Attribute] = dict(kernel.attributes)
        attributes["parameters"] = (*kernel.strings("parameters"), "counters", "parts")
        for name, more in (("hints", (0, 0)), ("divisors", (LINE_BYTES, LINE_BYTES))):
            if name in attributes:
                attributes[name] = (*kernel.integers(name), *more)
        return attributes

    # --- a tile ---------------------------------------------------------------------------------

    def tile(self, line: Line, share: Share) -> tuple[Operation, ...]:
        """The body of the grid, for a share of a tile: ``line`` is what has computed it."""
        operations = self.grid.regions[0].operations
        at = next(i for i, o in enumerate(operations) if o is self.loop)
        behind = [*operations[at + 1 : -1]]
        before = self._sunk(operations[:at], behind)
        loop = self._loop(line, share)
        self._combine(line, share, loop, behind)
        return (*before, *line.operations, operations[-1])

    def _sunk(self, before: Sequence[Operation], behind: list[Operation]) -> list[Operation]:
        """What only the last part needs is done there: put in front of ``behind``."""
        later = {id(i) for o in behind for i in o.walk()}
        kept: list[Operation] = []
        for operation in reversed(before):
            users = [u for v in operation.results for u in self.facts.users.get(v, ())]
            if users and all(id(u) in later for u in users) and self._moves(operation):
                behind.insert(0, operation)
                later.add(id(operation))
            else:
                kept.insert(0, operation)
        return kept

    def _moves(self, operation: Operation) -> bool:
        definition = TILE_OPS.get(operation.name) or SCHEDULE_OPS[operation.name]
        staged = any(x.operation is operation and is_staged(x) for x in self.facts.reads)
        return definition.effect in ("none", "read") and not operation.regions and not staged

    def _loop(self, line: Line, share: Share) -> Operation:
        """The loop over the share's iterations along its outermost axis, from nothing."""
        loop, axes = self.loop, axes_of(self.loop)
        lower, upper, step = self.bounds
        begin, end = (
            line.binary("add", lower, line.binary("mul", iteration, step))
            for iteration in (share.begin, share.end)
        )
        operands = list(loop.operands)
        operands[0], operands[axes] = begin, line.binary("min", upper, end)
        for i, t in enumerate(self.sums):
            operands[3 * axes + i] = line.zeros(t)
        made = replace(
            loop,
            operands=tuple(operands),
            results=tuple(Value(v.type, v.name) for v in loop.results),
        )
        line.operations.append(made)
        return made

    def _combine(
        self, line: Line, share: Share, loop: Operation, behind: Sequence[Operation]
    ) -> None:
        sums = tuple(Value(v.type, v.name) for v in loop.results)
        inside = Line()
        axes = axes_of(self.loop)
        totals: dict[Value, Value] = {}
        for old, start, total in zip(
            self.loop.results, self.loop.operands[3 * axes :], sums, strict=True
        ):
            totals[old] = total if self._is_zero(start) else inside.add(start, total)
        end = Operation("tile.yield", span=self.loop.span)
        region = Region(sums, (*inside.operations, *replace_values(tuple(behind), totals), end))
        operands = (self.counters, self.memory, share.place, share.first, share.part, share.count,
                    *loop.results)  # fmt: skip
        line.operations.append(
            Operation(COMBINE, operands, (), {}, (region,), self.loop.span)
        )  # fmt: skip

    def _is_zero(self, value: Value) -> bool:
        made = self.facts.definitions.get(value)
        if made is None or made.name != PREFIX + "full":
            return False
        number = self.facts.definitions.get(made.operands[0])
        return number is not None and is_positive_zero(number.attributes.get("value"))
