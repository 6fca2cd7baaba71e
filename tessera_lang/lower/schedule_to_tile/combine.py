"""The parts of a sum, put together by the group that comes last.

Every group puts its sums down in memory, makes them known, and counts itself. Whoever counts last
takes up the sums of all parts, its own too, in the order of the parts: so the result has the same
bits however the groups come. It sets the counter back, and goes on with what stands behind.
Nobody waits. Where the number of parts is known only at the launch, a group may have all of a tile,
and adds nothing; and one that has the first part looks whether all others are there, before it
puts down what it may as well begin with. Owns this protocol. Must not know grids, rings, or what
is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.analysis.layouts import held_elements
from tessera_lang.analysis.pressure import registers_of_tile
from tessera_lang.ir.core import Operation, Region, TileType, Value, ViewType
from tessera_lang.lower.schedule_to_tile.body import Body
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import BOOL, U32

_LINE = 128  # bytes at whose multiples the sums of a tile begin
_STRAIGHT = 256  # registers of a lane, of all parts: more are taken up in a loop


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
        counters, memory, *numbers = body.scalars(operation.operands[:7])
        self.counters, self.memory = counters, memory
        self.place, self.first, self.part, self.count, self.behind = numbers
        self.parts = body.facts.constant(operation.operands[5])
        self.kept: list[_Kept] = []
        elements, size = 0, 1
        for value in operation.operands[7:]:
            t = body.layouts.type_of(value)
            size = t.dtype.bytes
            self.kept.append(_Kept(value, t, elements))
            elements += -(-held_elements(t) * size // _LINE) * _LINE // size
        self.elements = elements
        body.scratch.of_a_part = max(body.scratch.of_a_part, elements * size)

    def run(self) -> None:
        body, b = self.body, self.builder
        body.engine.before_control(body, self.operation)
        tiles = [body.tile(one.value) for one in self.kept]
        last, mine = self._last(tiles)
        before = body.order.held()
        (region,) = self.operation.regions
        with b.region() as then:
            for argument, total in zip(region.arguments, self._totals(tiles, mine), strict=True):
                body.bind(argument, total)
            body.lower(region.operations[:-1])
            b.yield_()
        with b.region() as otherwise:
            b.yield_()
        b.if_(last, then.region, otherwise.region)
        body.order.join([before, body.order.held()])

    def _last(self, tiles: Sequence[Value]) -> tuple[Value, Value | None]:
        """Whether this part is the last; and whether it is the first too, with its sums still in
        registers, as the only part and one that finds all others there are (None: never)."""
        b = self.builder
        if self.parts is not None:
            last = self._arrive(tiles)
            self.body.order.barrier()
            return last, None
        yes, no = b.constant(True, BOOL), b.constant(False, BOOL)
        with b.region() as there:
            b.yield_(yes, yes)
        with b.region() as missing:
            b.yield_(self._arrive(tiles), no)
        with b.region() as several:
            b.yield_(*b.if_(self._others_are_there(), there.region, missing.region))
        with b.region() as alone:
            b.yield_(yes, yes)
        last, mine = b.if_(self._is_shared(), several.region, alone.region, ("last", "mine"))
        return last, mine

    def _is_shared(self) -> Value:
        return self.builder.cmp("gt", self.count, self.builder.index(1))

    # --- arriving -------------------------------------------------------------------------------

    def _arrive(self, tiles: Sequence[Value]) -> Value:
        """This part's sums are put down and counted; whether it is the last."""
        b = self.builder
        for one, tile in zip(self.kept, tiles, strict=True):
            b.emit("tile.put_down", (tile, *self._at(one, self.part)))
        b.barrier()  # the lane that counts knows what the others have written
        return self._others_counted(lambda: b.atomic(
            "add", b.constant(1, U32), self._counter(), (self.place,), order="acq_rel",
            bounds="proved",
        ))  # fmt: skip

    def _others_are_there(self) -> Value:
        """Whether this is the first part, and all others have been put down and counted: looked at
        where it is probable."""
        b = self.builder
        with b.region() as first:
            b.barrier()  # nobody reads any more what was found the last time
            b.yield_(self._others_counted(lambda: b.atomic_load(
                self._counter(), (self.place,), order="acquire", bounds="proved"
            )))  # fmt: skip
        with b.region() as other:
            b.yield_(b.constant(False, BOOL))
        is_first = b.binary("and", b.cmp("eq", self.part, b.index(0)),
                            b.cmp("ne", self.behind, b.index(0)))  # fmt: skip
        return b.if_(is_first, first.region, other.region, ("there",))[0]

    def _others_counted(self, count: Callable[[], Value]) -> Value:
        """Whether what one lane finds by ``count`` is all other parts."""
        b = self.builder
        found = self.body.scratch.shared(U32, (1,), "arrived", "parts that have come")
        with b.region() as then:
            b.store(count(), found, (b.index(0),), bounds="proved")
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

    def _one_lane(self, region: Region, condition: Value | None = None) -> None:
        b = self.builder
        with b.region() as otherwise:
            b.yield_()
        one = b.cmp("eq", b.lane_linear(), b.index(0))
        b.if_(one if condition is None else b.binary("and", one, condition), region,
              otherwise.region)  # fmt: skip

    # --- sums -----------------------------------------------------------------------------------

    def _totals(self, tiles: Sequence[Value], mine: Value | None) -> list[Value]:
        """The sums of all parts, by the last; the counter is as it was in the beginning."""
        b = self.builder
        with b.region() as then:
            b.store(b.constant(0, U32), self._counter(), (self.place,), bounds="proved")
            b.yield_()
        self._one_lane(then.region, None if mine is None else self._is_shared())
        return [self._total(one, tile, mine) for one, tile in zip(self.kept, tiles, strict=True)]

    def _total(self, one: _Kept, tile: Value, mine: Value | None) -> Value:
        """Begins with what changes no number it is added to."""
        b, t = self.builder, one.tile
        zero = b.constant(-0.0 if t.dtype.is_float else 0, t.dtype)
        total = b.emit("tile.splat", (zero,), (t,)).result
        begin = b.index(0)
        if self.parts is not None and self.parts * registers_of_tile(t) <= _STRAIGHT:
            for part in range(self.parts):
                total = self._with(one, total, b.index(part))
            return total
        if mine is not None:
            with b.region() as held:
                b.yield_(tile)
            with b.region() as put_down:
                b.yield_(total)
            total = b.if_(mine, held.region, put_down.region, ("total",))[0]
            begin = b.select(mine, b.index(1), begin)
        with b.region(("part", self.part.type), ("total", t)) as region:
            part, so_far = region.arguments
            b.yield_(self._with(one, so_far, part))
        return b.for_(begin, self.count, b.index(1), (total,), region.region)[0]

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
