"""Groups that stay, with the tiles of later iterations on their way while they work.

What asynchronous copies can move goes through a ring of buffers, as in any loop (``multistage``).
Other tiles are carried in registers: loaded once before the loop, then at the top of every
iteration for the one behind; behind the last one stands the last of all once more, so that no load
has to ask whether there is a next. Owns this loop. Must not know why groups stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_tile.body import Body
from tessera_lang.lower.schedule_to_tile.facts import is_tile
from tessera_lang.lower.schedule_to_tile.meetings import (
    Meeting,
    begun,
    last_across,
    lower_again,
    made_again,
    meeting_of,
    needed_by,
)
from tessera_lang.lower.schedule_to_tile.multistage import Ahead, Multistage, ahead_of
from tessera_lang.lower.schedule_to_tile.staging import Staging

Variables = Callable[[Value], Sequence[Value]]
"""The variables of the grid for the number of an iteration."""


def early_loads(loop: Operation) -> list[Operation]:
    """The loads of a loop over groups that are to be made before their iteration."""
    return [o for o in loop.regions[0].operations if o.attributes.get("early")]


def build_early(
    body: Body, staging: Staging, loop: Operation, total: Value, variables: Variables
) -> None:
    """The iterations of one group, of ``total`` of all groups."""
    b = body.builder
    _keep(body, staging, loop, variables)
    ahead = ahead_of(staging, loop)
    if ahead is None:
        _carrying(body, loop, total, variables)
        return
    ring = _Walk(body, staging, loop, ahead, variables)
    ring.innermost((b.group_linear(), total, b.group_count()), (), ())


def _kept(loop: Operation) -> list[Operation]:
    """The loads that are of all iterations of a group."""
    return [o for o in loop.regions[0].operations if o.attributes.get("kept")]


def _keep(body: Body, staging: Staging, loop: Operation, variables: Variables) -> None:
    """Loads them, to registers or to a buffer that is read in each iteration."""
    region, loads = loop.regions[0], _kept(loop)
    if not loads:
        return
    b = body.builder
    for value, made in zip(region.arguments, variables(b.group_linear()), strict=True):
        body.bind(value, made)
    body.lower(_before(region.operations, loads))
    for load in loads:
        staged = staging.of(load)
        for one in staged:
            staging.copy(body, one, None)
            one.slot = b.index(0)
        if not staged:
            body.lower([load])
    if any(map(staging.of, loads)):
        b.emit("tile.memcpy.commit")


class _Walk(Multistage):
    """A loop over numbers of iterations."""

    def __init__(
        self, body: Body, staging: Staging, loop: Operation, ahead: Ahead, places: Variables
    ) -> None:
        super().__init__(body, staging, loop, ahead)
        self._places = places
        kept = [o for o in _kept(loop) if not staging.of(o)]
        self._operations = [o for o in loop.regions[0].operations[:-1] if o not in kept]
        rows = [o for o in self._operations if o.attributes.get("again")]
        self._again = made_again(self._operations, rows) if rows else []
        first, last = begun(self._operations), last_across(self._operations)
        self._first = meeting_of(body, first) if first is not None else None
        apart = first is not None and last is not None and last is not first
        self._last = meeting_of(body, last) if apart and last is not None else None
        # Rows that are read once leave their places before the next row is looked at.
        self._late = self._first is not None and not self._again

    @property
    def distance(self) -> int:
        return self.ahead.stages if self._late else super().distance

    @property
    def pending(self) -> int:
        return super().pending - (1 if self._first is not None and not self._late else 0)

    def arrive(
        self, bounds: tuple[Value, Value, Value], variable: Value, counts: Sequence[Value]
    ) -> None:
        if not self._late:
            super().arrive(bounds, variable, counts)

    def begin(self, bounds: tuple[Value, Value, Value]) -> None:
        if self._first is None:
            return
        b = self.body.builder
        b.emit("tile.memcpy.wait", (), (), {"pending": self.distance - 1})
        b.barrier()  # the first row is there
        self._send_first(self._first, bounds[0], bounds[1], b.index(0), b.index(0))

    def _send_first(
        self, meeting: Meeting, number: Value, end: Value, slot: Value, time: Value
    ) -> None:
        """The first reduction of iteration ``number``, if there is one, goes to all groups."""
        body, b = self.body, self.body.builder
        known, slots = dict(body.values), [one.slot for one in self.ahead.copies]
        with b.region() as there:
            self.enter(number)
            for one in self.ahead.copies:
                one.slot = slot
            body.lower(needed_by(self._operations, [meeting.reduction]))
            meeting.send(body, time)
            b.yield_()
        body.values.clear()
        body.values.update(known)
        for one, before in zip(self.ahead.copies, slots, strict=True):
            one.slot = before
        with b.region() as otherwise:
            b.yield_()
        b.if_(b.cmp("lt", number, end), there.region, otherwise.region)

    def work(
        self, bounds: tuple[Value, Value, Value], variable: Value, counts: Sequence[Value]
    ) -> None:
        first, last = self._first, self._last
        if first is None:
            lower_again(self.body, self._operations, self._again, lambda _: False)
            return
        b, time = self.body.builder, counts[-1]

        def following() -> None:
            if self._late:
                self.advance(bounds, variable, counts)
            number = b.binary("add", variable, bounds[2])
            slot = self._after(counts[0])
            self._send_first(first, number, bounds[1], slot, b.binary("add", time, b.index(1)))

        def instead(operation: Operation) -> bool:
            if operation is first.reduction:
                if last is None and self._late:
                    following()
                first.take(self.body, time)
            elif last is not None and operation is last.reduction:
                last.send(self.body, time)
                following()
                last.take(self.body, time)
            else:
                return False
            return True

        if last is None and not self._late:
            following()
        lower_again(self.body, self._operations, self._again, instead)

    def _counters(self) -> list[Value]:
        times = [self.body.builder.index(0)] if self._first is not None else []
        return [*super()._counters(), *times]

    def _next(self, counts: Sequence[Value]) -> list[Value]:
        b = self.body.builder
        times = [b.binary("add", counts[-1], b.index(1))] if self._first is not None else []
        return [*super()._next(counts), *times]

    def enter(self, variable: Value) -> None:
        for value, place in zip(self.variables(), self._places(variable), strict=True):
            self.body.bind(value, place)

    def variables(self) -> list[Value]:
        return list(self.loop.regions[0].arguments)


def _carrying(body: Body, loop: Operation, total: Value, variables: Variables) -> None:
    b, region = body.builder, loop.regions[0]
    loads = early_loads(loop)
    before = _before(region.operations, loads)

    def load(number: Value) -> list[Value]:
        for value, made in zip(region.arguments, variables(number), strict=True):
            body.bind(value, made)
        body.lower([*before, *loads])
        return [body.tile(o.result) for o in loads]

    first, step = b.group_linear(), b.group_count()
    last = b.binary("sub", total, b.index(1))
    carried = load(first)
    arguments = [("tile", total.type), *((v.name, v.type) for v in carried)]
    with b.region(*arguments) as made:
        number, *held = made.arguments
        following = load(b.binary("min", b.binary("add", number, step), last))
        for value, at in zip(region.arguments, variables(number), strict=True):
            body.bind(value, at)
        for operation, tile in zip(loads, held, strict=True):
            body.bind(operation.result, tile)
        body.lower([o for o in region.operations[:-1] if o not in loads])
        b.yield_(*following)
    b.for_(first, total, step, carried, made.region)


def _before(operations: Sequence[Operation], loads: Sequence[Operation]) -> list[Operation]:
    """The numbers that loads need, in order."""
    needed = {v for o in loads for v in o.operands}
    found: list[Operation] = []
    for operation in reversed(operations):
        if operation in loads or not needed.intersection(operation.results):
            continue
        assert not any(map(is_tile, operation.results)), "an early load depends on no tile"
        needed.update(operation.operands)
        found.insert(0, operation)
    return found
