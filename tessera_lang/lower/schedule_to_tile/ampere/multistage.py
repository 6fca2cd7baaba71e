"""Loops whose staged loads run ahead: rings of buffers filled by asynchronous copies.

With S stages the copies of S - 1 iterations are on their way. Each iteration waits for its own,
meets one barrier, starts the copies for the iteration S - 1 ahead, and works. That barrier
orders two pairs: the copies of all lanes before everybody's reads, and everybody's reads of the
stage before it (the iteration before) before the copies that write that stage again. Loads that
no asynchronous copy can move go through registers, one iteration ahead, into two buffers. How many
stages there are is the schedule's (``opt.schedule.non_specialized_kernels``).

Owns the shape of the loop. Must not know what its body computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import IRType, Operation, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.lower.schedule_to_tile.ampere.staging import Staged, Staging
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.opt.schedule.query.kernel_facts import is_grid
from tessera_lang.opt.schedule.query.prefetch_addresses import address_of
from tessera_lang.opt.schedule.query.scalar_facts import Facts, axes_of
from tessera_lang.opt.schedule.query.staging_rings import PLAIN_STAGES
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import INDEX


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """What one loop loads ahead: with which stages, and the scalars that say where."""

    copies: tuple[Staged, ...]
    fetches: tuple[Staged, ...]
    stages: int
    addresses: tuple[Operation, ...]

    @property
    def all(self) -> tuple[Staged, ...]:
        return (*self.copies, *self.fetches)


def ahead_of(staging: Staging, loop: Operation) -> Ahead | None:
    """What ``loop`` loads ahead: the loads in it that have several buffers."""
    facts = staging.facts
    region = loop.regions[0]
    inside = [o for o in region.operations if o.name == "tessera.schedule.load"]
    taken = [s for load in inside for s in staging.of(load) if s.buffer is None and s.stages > 1]
    if not taken:
        return None
    addresses: dict[Operation, None] = {}
    for one in taken:
        found = address_of(facts, loop, one.load)
        if found is None:
            raise NotTiled("where a tile lies that is loaded ahead depends on the iteration before",
                           one.load.span)  # fmt: skip
        addresses.update(dict.fromkeys(found))
    order = {o: i for i, o in enumerate(region.operations)}
    copies = tuple(s for s in taken if s.asynchronous)
    fetches = tuple(s for s in taken if not s.asynchronous)
    stages = {s.stages for s in copies}
    if len(stages) > 1 or any(s.stages != PLAIN_STAGES for s in fetches):
        raise NotTiled("the tiles of a loop have rings of different depths", loop.span)
    depth = next(iter(stages), PLAIN_STAGES)
    return Ahead(copies, fetches, depth, tuple(sorted(addresses, key=lambda o: order[o])))


# --- the loop -----------------------------------------------------------------------------------


class Multistage:
    """Builds one loop; ``innermost`` stands in for the plain innermost loop of a nest."""

    def __init__(self, body: Body, staging: Staging, loop: Operation, ahead: Ahead) -> None:
        self.body = body
        self.staging = staging
        self.loop = loop
        self.ahead = ahead
        self.variable = loop.regions[0].arguments[axes_of(loop) - 1]

    def innermost(
        self, bounds: tuple[Value, Value, Value], carried: Sequence[Value],
        types: tuple[IRType, ...],
    ) -> tuple[Value, ...]:  # fmt: skip
        body, builder = self.body, self.body.builder
        if body.repeats(self.loop) or axes_of(self.loop) > 1:
            builder.barrier()  # between the last reads of the ring and the copies that refill it
        self._prologue(bounds)
        counters = self._counters()
        region = self.loop.regions[0]
        names = [v.name for v in region.arguments[axes_of(self.loop) :]]
        arguments: list[tuple[str, IRType]] = [(self.variable.name, self.variable.type)]
        arguments += zip(names, types, strict=True)
        arguments += [(f"stage{i}", INDEX) for i in range(len(counters))]
        with builder.region(*arguments) as made, body.target("loop", types):
            variable, *rest = made.arguments
            given, positions = rest[: len(types)], rest[len(types) :]
            self._iteration(bounds, variable, given, positions, types)
        results = builder.for_(*bounds, [*carried, *counters], made.region)
        if self.ahead.copies:
            builder.emit("tile.memcpy.wait", (), (), {"pending": 0})
        return results[: len(types)]

    def _counters(self) -> list[Value]:
        """First values: the stage read, the stage written by copies, the stage of fetches."""
        builder, found = self.body.builder, list[Value]()
        if self.ahead.copies:
            found += [builder.index(0), builder.index(self.ahead.stages - 1)]
        if self.ahead.fetches:
            found.append(builder.index(0))
        return found

    def _at(self, variable: Value, upper: Value) -> tuple[Value, list[tuple[Value, Value]]]:
        """Bind the loop's variable and addresses to another iteration; what was bound before is
        returned, with whether that iteration exists."""
        body = self.body
        known = [(v, body.values[v]) for v in self._rebound() if v in body.values]
        self.enter(variable)
        body.lower(self.ahead.addresses)
        return body.builder.cmp("lt", variable, upper), known

    def enter(self, variable: Value) -> None:
        """Bind what the body knows of an iteration."""
        self.body.bind(self.variable, variable)

    def work(self) -> None:
        """What is done in an iteration."""
        self.body.lower(self.loop.regions[0].operations[:-1])

    def variables(self) -> list[Value]:
        """What ``enter`` binds."""
        return [self.variable]

    def _rebound(self) -> list[Value]:
        return [*self.variables(), *(v for o in self.ahead.addresses for v in o.results)]

    def _restore(self, known: list[tuple[Value, Value]]) -> None:
        for value in self._rebound():
            self.body.values.pop(value, None)
        for value, made in known:
            self.body.bind(value, made)

    def _later(self, variable: Value, step: Value, count: int) -> Value:
        builder = self.body.builder
        if count == 0:
            return variable
        return builder.binary("add", variable, builder.binary("mul", step, builder.index(count)))

    def _prologue(self, bounds: tuple[Value, Value, Value]) -> None:
        body, builder = self.body, self.body.builder
        lower, upper, step = bounds
        for i in range(self.ahead.stages - 1 if self.ahead.copies else 0):
            valid, known = self._at(self._later(lower, step, i), upper)
            for one in self.ahead.copies:
                self.staging.copy(body, one, builder.index(i), valid)
            builder.emit("tile.memcpy.commit")
            self._restore(known)
        if self.ahead.fetches:
            valid, known = self._at(lower, upper)
            for one in self.ahead.fetches:
                self.staging.put(body, one, self.staging.fetch(body, one, valid), builder.index(0))
            self._restore(known)

    def _iteration(
        self, bounds: tuple[Value, Value, Value], variable: Value, given: Sequence[Value],
        positions: Sequence[Value], types: tuple[IRType, ...],
    ) -> None:  # fmt: skip
        body, builder = self.body, self.body.builder
        _, upper, step = bounds
        stages = self.ahead.stages
        counts = list(positions)
        if self.ahead.copies:
            builder.emit("tile.memcpy.wait", (), (), {"pending": stages - 2})
        builder.barrier()  # copies before reads; reads of the iteration before before new copies
        if self.ahead.copies:
            read, written = counts[:2]
            valid, known = self._at(self._later(variable, step, stages - 1), upper)
            for one in self.ahead.copies:
                self.staging.copy(body, one, written, valid)
                one.slot = read
            builder.emit("tile.memcpy.commit")
            self._restore(known)
        fetched = self._fetch_next(variable, upper, step, counts)
        region = self.loop.regions[0]
        self.enter(variable)
        for value, argument in zip(region.arguments[axes_of(self.loop) :], given, strict=True):
            body.bind(value, argument)
        self.work()
        self._put_next(fetched, counts)
        values = body.handed(region.terminator, types)
        builder.yield_(*values, *self._next(counts))

    def _fetch_next(
        self, variable: Value, upper: Value, step: Value, counts: Sequence[Value]
    ) -> list[Value]:
        if not self.ahead.fetches:
            return []
        valid, known = self._at(self._later(variable, step, 1), upper)
        fetched = [self.staging.fetch(self.body, one, valid) for one in self.ahead.fetches]
        for one in self.ahead.fetches:
            one.slot = counts[-1]
        self._restore(known)
        return fetched

    def _put_next(self, fetched: Sequence[Value], counts: Sequence[Value]) -> None:
        builder = self.body.builder
        if fetched:
            other = builder.binary("sub", builder.index(1), counts[-1])
            for one, tile in zip(self.ahead.fetches, fetched, strict=True):
                self.staging.put(self.body, one, tile, other)

    def _next(self, counts: Sequence[Value]) -> list[Value]:
        builder, found = self.body.builder, list[Value]()
        if self.ahead.copies:
            for count in counts[:2]:
                after = builder.binary("add", count, builder.index(1))
                last = builder.cmp("eq", after, builder.index(self.ahead.stages))
                found.append(builder.select(last, builder.index(0), after))
        if self.ahead.fetches:
            found.append(builder.binary("sub", builder.index(1), counts[-1]))
        return found


def encloses(facts: Facts, operation: Operation) -> bool:
    """Whether a loop stands around an operation whose iterations one group runs."""
    up = facts.parent(operation)
    while up is not None:
        if up.name in LOOPS and not is_grid(up):
            return True
        up = facts.parent(up)
    return False
