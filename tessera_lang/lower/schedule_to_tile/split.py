"""A contraction in parts: one more axis of the grid, and sums that are combined behind it.

``in_parts`` makes of a kernel with ``split`` one whose grid has an axis of parts in front. Each
part runs its share of the turns of the loop, from nothing; a ``combine`` takes the sums in, and
what stood behind the loop is its region. Counters and parts are memory of the launch, which the
plan asks for; its ``scratch`` counts parts until their lowering knows what one takes. Must not
know when it is worth it, or how parts are combined.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.diagnostics import Diagnostic
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
from tessera_lang.lower.schedule_to_lanes.numbers import Numbers
from tessera_lang.lower.schedule_to_lanes.source import Source
from tessera_lang.lower.schedule_to_tile.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.facts import axes_of, strings
from tessera_lang.lower.schedule_to_tile.tile_counts import tile_counts
from tessera_lang.opt.schedule.facts import Facts, facts_of, numbers
from tessera_lang.opt.schedule.rings import is_staged
from tessera_lang.opt.schedule.sums import sums_of
from tessera_lang.record import replace
from tessera_lang.target.plan import LaunchPlan, Slot
from tessera_lang.types.dtype import INDEX, U32
from tessera_lang.types.shape import Dim, dim_op

COMBINE = PREFIX + "combine"
_LINE = 128


def in_parts(
    program: Program, plan: LaunchPlan, remarks: list[Diagnostic]
) -> tuple[Program, LaunchPlan]:
    """Itself where nothing is split; ``remarks`` says why, where that was decided."""
    (kernel,) = program.operations
    parts = kernel.attributes.get("split", 1)
    if not isinstance(parts, int) or parts < 2:
        return program, plan
    facts = facts_of(kernel)
    found = sums_of(facts)
    try:
        if found.loop is None or facts.grid is None:
            raise NotTiled(found.reason)
        counts = tile_counts(facts.grid, Numbers(Source(kernel), plan))
    except NotTiled as reason:
        message = f"the contraction is not split after all: {reason.reason}"
        remarks.append(Diagnostic("T0749", message, kernel.span, severity="note"))
        return program, plan
    return _Splitting(facts, facts.grid, found.loop, parts).run(plan, counts)


class _Splitting:
    def __init__(self, facts: Facts, grid: Operation, loop: Operation, parts: int) -> None:
        self.facts = facts
        self.grid = grid
        self.loop = loop
        self.parts = parts
        self.sums = tuple(v.type for v in loop.results if isinstance(v.type, TileType))
        self.counters = Value(PointerType(U32, "global"), "counters")
        self.memory = Value(PointerType(self.sums[0].dtype, "global"), "parts")
        self.part = Value(INDEX, "part")

    def run(self, plan: LaunchPlan, counts: Sequence[Dim]) -> tuple[Program, LaunchPlan]:
        kernel = self.facts.kernel
        (region,) = kernel.regions
        operations: list[Operation] = []
        for operation in region.operations:
            operations += self._grid() if operation is self.grid else [operation]
        body = Region((*region.arguments, self.counters, self.memory), tuple(operations))
        made = replace(kernel, regions=(body,), attributes=self._attributes())
        tiles: Dim = 1
        for count in counts:
            tiles = dim_op("*", tiles, count)
        return Program("schedule", (made,)), replace(
            plan, slots=(*plan.slots, Slot("workspace"), Slot("scratch")),
            workspace=dim_op("*", tiles, U32.bytes),
            scratch=dim_op("*", tiles, self.parts),
        )  # fmt: skip

    def _attributes(self) -> dict[str, Attribute]:
        kernel = self.facts.kernel
        attributes: dict[str, Attribute] = dict(kernel.attributes)
        attributes["parameters"] = (*strings(kernel, "parameters"), "counters", "parts")
        for name, more in (("hints", (0, 0)), ("divisors", (_LINE, _LINE))):
            if name in attributes:
                attributes[name] = (*numbers(kernel, name), *more)
        return attributes

    # --- the grid -------------------------------------------------------------------------------

    def _grid(self) -> list[Operation]:
        line, axes = Line(), axes_of(self.grid)
        zero, one = line.constant(0), line.constant(1)
        bounds = [self.grid.operands[i * axes : (i + 1) * axes] for i in range(3)]
        first = (zero, line.constant(self.parts), one)
        operands = tuple(v for n, b in zip(first, bounds, strict=True) for v in (n, *b))
        attributes: dict[str, Attribute] = {
            **self.grid.attributes,
            "axes": ("part", *strings(self.grid, "axes")),
            "mapping": ("grid", *strings(self.grid, "mapping")),
        }
        (region,) = self.grid.regions
        body = Region((self.part, *region.arguments), self._body(region, bounds))
        return [
            *line.operations,
            replace(self.grid, operands=operands, attributes=attributes, regions=(body,)),
        ]

    def _body(self, region: Region, bounds: Sequence[Sequence[Value]]) -> tuple[Operation, ...]:
        operations = region.operations
        at = next(i for i, o in enumerate(operations) if o is self.loop)
        behind = [*operations[at + 1 : -1]]
        before = self._sunk(operations[:at], behind)
        line = Line()
        place = self._place(line, region, bounds)
        loop = self._loop(line)
        self._combine(line, place, loop, behind)
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

    def _place(self, line: Line, region: Region, bounds: Sequence[Sequence[Value]]) -> Value:
        """The number of a tile: the last axis of the grid fastest."""
        place = line.constant(0)
        for variable, lower, upper, step in zip(region.arguments, *bounds, strict=True):
            number = line.binary("floordiv", line.binary("sub", variable, lower), step)
            place = line.binary("mul", place, line.turns(lower, upper, step))
            place = line.binary("add", place, number)
        return place

    def _loop(self, line: Line) -> Operation:
        """The loop over this part's turns along its outermost axis, from nothing."""
        loop, axes = self.loop, axes_of(self.loop)
        lower, upper, step = loop.operands[0], loop.operands[axes], loop.operands[2 * axes]
        turns = line.turns(lower, upper, step)
        ends: list[Value] = []
        for number in (self.part, line.binary("add", self.part, line.constant(1))):
            share = line.binary("mul", turns, number)
            turn = line.binary("floordiv", share, line.constant(self.parts))
            ends.append(line.binary("add", lower, line.binary("mul", turn, step)))
        operands = list(loop.operands)
        operands[0], operands[axes] = ends[0], line.binary("min", upper, ends[1])
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
        self, line: Line, place: Value, loop: Operation, behind: Sequence[Operation]
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
        count = line.constant(self.parts)
        operands = (self.counters, self.memory, place, self.part, count, *loop.results)
        line.operations.append(
            Operation(COMBINE, operands, (), {}, (region,), self.loop.span)
        )  # fmt: skip

    def _is_zero(self, value: Value) -> bool:
        made = self.facts.definitions.get(value)
        if made is None or made.name != PREFIX + "full":
            return False
        number = self.facts.definitions.get(made.operands[0])
        return number is not None and number.attributes.get("value") == 0


class Line:
    """Operations in a row."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def constant(self, value: int) -> Value:
        return self._emit("tile.constant", (), Value(INDEX), {"value": value})

    def binary(self, kind: str, a: Value, b: Value) -> Value:
        attributes: dict[str, Attribute] = {"site": -1} if kind == "floordiv" else {}
        return self._emit(f"tile.{kind}", (a, b), Value(INDEX), attributes)

    def add(self, a: Value, b: Value) -> Value:
        return self._emit("tile.add", (a, b), Value(a.type, a.name), {})

    def turns(self, lower: Value, upper: Value, step: Value) -> Value:
        """How often a loop with these bounds runs."""
        span = self.binary("max", self.binary("sub", upper, lower), self.constant(0))
        up = self.binary("sub", self.binary("add", span, step), self.constant(1))
        return self.binary("floordiv", up, step)

    def zeros(self, t: TileType) -> Value:
        value = 0.0 if t.dtype.is_float else 0
        zero = self._emit("tile.constant", (), Value(t.dtype, "zero"), {"value": value})
        return self._emit(PREFIX + "full", (zero,), Value(t, "start"), {})

    def _emit(
        self, name: str, operands: tuple[Value, ...], result: Value,
        attributes: dict[str, Attribute],
    ) -> Value:  # fmt: skip
        self.operations.append(Operation(name, operands, (result,), attributes))
        return result
