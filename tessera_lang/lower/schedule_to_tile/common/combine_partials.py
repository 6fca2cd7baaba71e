"""The parts of a sum, put together by the group that comes last.

Every group puts its sums down in memory, makes them known, and counts itself. Whoever counts last
takes up the sums of all parts, its own too, in the order of the parts: so the result has the same
bits however the groups come. It sets the counter back, and goes on with what stands behind.
Nobody waits. Where a group may have all of a tile, which is known only at the launch, it adds
nothing. Owns this protocol. Must not know grids, rings, or what is summed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import held_elements
from tessera_lang.analysis.resources.register_pressure import registers_of_tile
from tessera_lang.ir.core import Operation, Region, TileType, Value, ViewType
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import LINE_BYTES
from tessera_lang.target.tuned_constants import COMBINED_REGISTERS
from tessera_lang.types.dtype import BOOL, U32


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """Sums, their tile in registers, and where they lie: ``offset`` elements behind the first of
    a part."""

    value: Value
    tile: TileType
    offset: int


def combine(body: Body, operation: Operation) -> None:
    """One ``combine``, by all lanes of the group or role."""
    _Combining(body, operation).run()


class _Combining:
    def __init__(self, body: Body, operation: Operation) -> None:
        self.body = body
        self.builder = body.builder
        self.operation = operation
        counters, memory, *numbers = body.scalars(operation.operands[:6])
        self.counters, self.memory = counters, memory
        self.place, self.first, self.part, self.count = numbers
        self.parts = body.facts.constant(operation.operands[5])
        self.kept: list[_Kept] = []
        elements, size = 0, 1
        for value in operation.operands[6:]:
            t = body.layouts.type_of(value)
            size = t.dtype.bytes
            self.kept.append(_Kept(value, t, elements))
            elements += -(-held_elements(t) * size // LINE_BYTES) * LINE_BYTES // size
        self.elements = elements
        body.scratch.of_a_part = max(body.scratch.of_a_part, elements * size)

    def run(self) -> None:
        body, b = self.body, self.builder
        body.engine.before_control(body, self.operation)
        tiles = [body.tile(one.value) for one in self.kept]
        last = self._last(tiles)
        before = body.order.held()
        (region,) = self.operation.regions
        with b.region() as then:
            for argument, total in zip(region.arguments, self._sums(tiles), strict=True):
                body.bind(argument, total)
            body.lower(region.operations[:-1])
            b.yield_()
        with b.region() as otherwise:
            b.yield_()
        b.if_(last, then.region, otherwise.region)
        body.order.join([before, body.order.held()])

    def _last(self, tiles: Sequence[Value]) -> Value:
        """Whether this part is the last; where it is the only one nobody else is asked."""
        b = self.builder
        if self.parts is not None:
            last = self._arrive(tiles)
            self.body.order.barrier()
            return last
        with b.region() as several:
            b.yield_(self._arrive(tiles))
        with b.region() as alone:
            b.yield_(b.constant(True, BOOL))
        return b.if_(self._is_shared(), several.region, alone.region, ("last",))[0]

    def _sums(self, tiles: Sequence[Value]) -> Sequence[Value]:
        """By the last: those of all parts, or its own."""
        b = self.builder
        if self.parts is not None:
            return self._totals()
        with b.region() as several:
            b.yield_(*self._totals())
        with b.region() as alone:
            b.yield_(*tiles)
        names = [one.value.name for one in self.kept]
        return b.if_(self._is_shared(), several.region, alone.region, names)

    def _is_shared(self) -> Value:
        return self.builder.cmp("gt", self.count, self.builder.index(1))

    # --- arriving -------------------------------------------------------------------------------

    def _arrive(self, tiles: Sequence[Value]) -> Value:
        """This part's sums are put down and counted; whether it is the last."""
        b = self.builder
        for one, tile in zip(self.kept, tiles, strict=True):
            b.emit("tile.put_down", (tile, *self._at(one, self.part)))
        b.barrier()  # the lane that counts knows what the others have written
        found = self.body.scratch.shared(U32, (1,), "arrived", "parts that have come")
        with b.region() as then:
            old = b.atomic("add", b.constant(1, U32), self._counter(), (self.place,),
                           order="acq_rel", bounds="proved")  # fmt: skip
            b.store(old, found, (b.index(0),), bounds="proved")
            b.yield_()
        self._one_lane(then.region)
        b.barrier()  # the others know what it has found, and what it knows
        before = b.load(found, (b.index(0),), bounds="proved")
        return b.cmp("eq", before, b.cast(b.binary("sub", self.count, b.index(1)), U32))

    def _counter(self) -> Value:
        b = self.builder
        t = ViewType(U32, (None,), "global", True, True, False)
        size = b.binary("add", self.place, b.index(1))
        return b.emit("tile.view", (self.counters, size), (t,), names=("counters",)).result

    def _one_lane(self, region: Region) -> None:
        b = self.builder
        with b.region() as otherwise:
            b.yield_()
        b.if_(b.cmp("eq", b.lane_linear(), b.index(0)), region, otherwise.region)

    # --- sums -----------------------------------------------------------------------------------

    def _totals(self) -> list[Value]:
        """The sums of all parts, by the last; the counter is as it was in the beginning."""
        b = self.builder
        with b.region() as then:
            b.store(b.constant(0, U32), self._counter(), (self.place,), bounds="proved")
            b.yield_()
        self._one_lane(then.region)
        return [self._total(one) for one in self.kept]

    def _total(self, one: _Kept) -> Value:
        b, t = self.builder, one.tile
        zero = b.constant(0.0 if t.dtype.is_float else 0, t.dtype)
        total = b.emit("tile.splat", (zero,), (t,)).result
        if self.parts is not None and self.parts * registers_of_tile(t) <= COMBINED_REGISTERS:
            for part in range(self.parts):
                total = self._with(one, total, b.index(part))
            return total
        with b.region(("part", self.part.type), ("total", t)) as region:
            part, so_far = region.arguments
            b.yield_(self._with(one, so_far, part))
        return b.for_(b.index(0), self.count, b.index(1), (total,), region.region)[0]

    def _with(self, one: _Kept, total: Value, part: Value) -> Value:
        operands = (total, *self._at(one, part))
        return self.builder.emit("tile.take_up", operands, (one.tile,), names=("total",)).result

    # --- places ---------------------------------------------------------------------------------

    def _at(self, one: _Kept, part: Value) -> tuple[Value, Value]:
        """The memory of all parts up to those of this tile, and where a part's sums begin."""
        b, elements = self.builder, self.builder.index(self.elements)
        end = b.binary("mul", b.binary("add", self.first, self.count), elements)
        first = b.binary("mul", b.binary("add", self.first, part), elements)
        t = ViewType(one.tile.dtype, (None,), "global", True, True, True)
        view = b.emit("tile.view", (self.memory, end), (t,), names=("parts",)).result
        return view, b.binary("add", first, b.index(one.offset))
