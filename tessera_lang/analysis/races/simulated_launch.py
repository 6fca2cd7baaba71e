"""A launch that is run: all lanes of all groups by turns, with the numbers that atomics work on.

Arrays that atomics touch begin with 0, other memory is not known. Every access is compared by
vector clocks with those before it, so two that no barrier and no atomic orders in this run are
found in whatever order they came. Where what a lane does depends on what is not known, and that
would matter, the run ends. Must not know what is reported.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from math import prod
from random import Random
from typing import Literal, TypeAlias, cast

from tessera_lang.analysis.lanes.clocks import Clocks, Who
from tessera_lang.analysis.lanes.concrete_lane import Effort, Launch, Step, Trace
from tessera_lang.analysis.lanes.decoded_steps import steps_of
from tessera_lang.analysis.lanes.followed_operations import followed_operations
from tessera_lang.analysis.lanes.hand_overs import is_sync
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT, Kind, reads_first
from tessera_lang.analysis.races.run_records import (
    Cell,
    Done,
    Late,
    Meeting,
    Synced,
    conflicting,
    may_conflict,
)
from tessera_lang.analysis.races.stored_values import Values
from tessera_lang.analysis.races.updates import value_after
from tessera_lang.cancellation import pause
from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import ATOMICS, LEAVES, OUTER_EXITS, WRITES
from tessera_lang.record import dataclass, field, replace

MOST_LANES = 4096
_IDLE = 3  # rounds in which all lanes wait
_TURNS = 6  # that who waits has when memory has changed
_MOST_FOUND = 64  # pairs of accesses
Order: TypeAlias = Literal["in turn", "forward", "reverse", "mixed", "eager"]
"""``in turn``: each lane up to the next barrier before the next begins. ``forward``, ``reverse``:
lanes in this order, each up to a barrier or a wait. ``mixed``: each up to the next atomic.
``eager``: lanes by turns, and who waits goes on as soon as the element that it asks changes."""
_Left = tuple[str, list[object]]
_Turn: TypeAlias = Generator[str, None, _Left]


class Unknown(Exception):
    """The run cannot go on."""


@dataclass(slots=True)
class Run:
    """``made_of``: None where it is not asked what stored values are made of. ``met``: pairs that
    nothing orders. ``assumed``: elements of arrays whose first value, 0, the
    way of a lane may hang on. ``late``: the first lane that waits for lanes which come later.
    ``open``: arrays and buffers of which accesses were left out; ``unwritten``: the first read of a
    buffer that nobody had written there, and ``unsure``: those where it is not known."""

    kernel: Operation
    launch: Launch
    made_of: Values | None
    met: list[Meeting] = field(default_factory=list[Meeting])
    assumed: set[Cell] = field(default_factory=set[Cell])
    whole: bool = True
    changes: int = 0  # of memory
    late: Late | None = None
    open: set[Value] = field(default_factory=set[Value])
    unwritten: dict[Value, Done] = field(default_factory=dict[Value, Done])
    outside: bool = False  # whether an index was
    both_ways: bool = False  # whether lanes go both ways where data say which
    unsure: set[Value] = field(default_factory=set[Value])
    _possible: dict[Cell, dict[tuple[Kind, Who], Done]] = field(
        default_factory=dict[Cell, "dict[tuple[Kind, Who], Done]"]
    )
    seed: int = 1  # of the order "mixed"
    _values: dict[Cell, object] = field(default_factory=dict[Cell, object])
    _versions: dict[Cell, int] = field(default_factory=dict[Cell, int])
    _blurred: set[Value] = field(default_factory=set[Value])
    _seen: dict[Cell, dict[str, dict[Who, Done]]] = field(
        default_factory=dict[Cell, "dict[str, dict[Who, Done]]"]
    )
    _pairs: set[tuple[Operation, Operation, bool]] = field(
        default_factory=set[tuple[Operation, Operation, bool]]
    )
    left: int = 0
    _lanes: int = 1
    _syncs: dict[int, list[Synced]] = field(default_factory=dict[int, "list[Synced]"])
    clocks: Clocks = field(default_factory=Clocks)
    steps: Mapping[Region, Sequence[Step]] = field(default_factory=dict[Region, "Sequence[Step]"])
    _constants: Mapping[Value, object] = field(default_factory=dict[Value, object])
    _views: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    _counted: set[Value] = field(default_factory=set[Value])
    _used: set[Value] = field(default_factory=set[Value])
    _waits: dict[Operation, bool] = field(default_factory=dict[Operation, bool])
    _running: dict[Who, _Lane | None] = field(default_factory=dict[Who, "_Lane | None"])
    stops_before: bool = False  # whether a turn ends before an atomic, not behind it
    _at_barrier: dict[int, set[Who]] = field(default_factory=dict[int, "set[Who]"])

    def __post_init__(self) -> None:
        for o in self.kernel.walk():
            if o.name == "tile.view":
                self._views[o.result] = o
        self._counted = {self._root(o) for o in self.kernel.walk() if o.name in ATOMICS}
        kept = followed_operations(self.kernel, lambda o: o.name in BUFFER_AT)
        self._used = {v for operations in kept.values() for o in operations for v in o.operands}
        ready = steps_of(kept)
        self.steps, self._constants = ready.of, ready.constants

    def _root(self, operation: Operation) -> Value:
        array = operation.operands[BUFFER_AT[operation.name]]
        view = self._views.get(array)
        return array if view is None else view.operands[0]

    # --- turns ------------------------------------------------------------------------------

    def go(self, order: Order, who: Sequence[Who] | None = None) -> None:
        """Run all lanes, or these; ``whole`` says afterwards whether they came to their end."""
        group = self.kernel.integers("group")
        lanes, groups = prod(group), prod(self.launch.groups)
        self._lanes = lanes
        if who is None:
            who = [(g, i) for g in range(groups) for i in range(lanes)]
        self._running = dict.fromkeys(who)
        try:
            if order == "in turn":
                self._in_turn()
            elif order == "eager":
                self.stops_before = True
                self._eagerly()
            else:
                self._by_turns(order)
        except Unknown:
            self.whole = False
        self.whole &= not self._running

    def _in_turn(self) -> None:
        """Group after group, and lane after lane up to the next barrier, as a target may. Where one
        waits for what comes later, the others go on by turns."""
        for g in sorted({w[0] for w in self._running}):
            while mine := [w for w in self._running if w[0] == g]:
                for w in mine:
                    while (state := self._turn(w)) == "turn":
                        pass
                    if state == "wait" and (lane := self._running[w]) is not None:
                        self.late = Late(w, lane.at)
                        self._by_turns("forward")
                        return
                self._barrier(g)

    def _by_turns(self, order: Order) -> None:
        r, idle = Random(self.seed), 0
        while self._running and idle < _IDLE:
            moved, changes = False, self.changes
            there = list(self._running)
            if order == "reverse":
                there.reverse()
            elif order == "mixed":
                r.shuffle(there)
            for w in there:
                if w in self._at_barrier.get(w[0], ()):
                    continue
                state = self._turn(w)
                while order != "mixed" and state == "turn":
                    state = self._turn(w)
                moved |= state != "wait"
            for g in list(self._at_barrier):
                moved |= self._barrier(g)
            idle = 0 if moved or self.changes != changes else idle + 1

    def _eagerly(self) -> None:
        """Lanes by turns, each up to before its next atomic; whenever memory has changed, those in
        a loop that waits come first."""
        idle = 0
        while self._running and idle < _IDLE:
            moved, changes = False, self.changes
            for w in list(self._running):
                lane = self._running.get(w)
                stays = w not in self._running or w in self._at_barrier.get(w[0], ())
                if stays or (lane is not None and lane.inside):
                    continue
                before = self.changes
                self._turn(w)
                moved = True
                if self.changes != before:
                    self._who_waits()
            moved |= self._who_waits()
            for g in list(self._at_barrier):
                moved |= self._barrier(g)
            idle = 0 if moved or self.changes != changes else idle + 1

    def _who_waits(self) -> bool:
        """Let lanes in loops that wait go on as far as they can."""
        moved = False
        inside = [w for w, lane in self._running.items() if lane is not None and lane.inside]
        self.left -= len(inside)
        for w in inside:
            if w in self._at_barrier.get(w[0], ()):
                continue
            for _ in range(_TURNS):
                lane = self._running.get(w)
                state = self._turn(w) if lane is not None and lane.inside else "wait"
                moved |= state != "wait"
                if state != "turn":
                    break
        return moved

    def _begun(self, who: Who) -> _Lane:
        """A lane before its first turn. Most runs end before many lanes have had one."""
        pause()
        self.clocks.begin(who)
        group = self.kernel.integers("group")
        trace = Trace(replace(self.launch, group=who[0]), group, who[1], Effort())
        trace.values.update(self._constants)
        trace.values.update(self.launch.arguments)
        lane = self._running[who] = _Lane(self, trace, who, self.kernel)
        return lane

    def _turn(self, who: Who) -> str:
        lane = self._running[who] or self._begun(who)
        if lane.waits and all(self._versions.get(c, 0) == n for c, n in lane.asked.items()):
            return "wait"
        state = lane.turn()
        lane.waits = state == "wait"
        if state == "barrier":
            self._at_barrier.setdefault(who[0], set()).add(who)
        elif state == "end":
            del self._running[who]
        return state

    def _barrier(self, group: int) -> bool:
        """Let a group go on, where all that are left of it have come."""
        there = self._at_barrier.get(group)
        if not there or len(there) < sum(1 for w in self._running if w[0] == group):
            return False
        pause()
        self.clocks.barrier(there)
        del self._at_barrier[group]
        return True

    def may_wait(self) -> bool:
        """Whether any lane may wait for others in a loop."""
        return any(self.waits(o) for o in self.kernel.walk() if o.name == "tile.while")

    def waits(self, loop: Operation) -> bool:
        """Whether others may have to come before a loop goes on."""
        found = self._waits.get(loop)
        if found is None:
            found = self._waits[loop] = any(is_sync(o) for o in loop.walk())
        return found

    # --- memory -----------------------------------------------------------------------------

    def leave_out(self, operation: Operation) -> None:
        """What depends on data does nothing that counts, and what it may write is not known."""
        self.must_not_decide(operation)
        for o in operation.walk():
            if o.name in BUFFER_AT:
                self.open.add(self._root(o))
                if o.name in WRITES:
                    self._blurred.add(self._root(o))

    def must_not_decide(self, operation: Operation) -> None:
        """Nothing that depends on data may have a barrier, an exit or an atomic that counts."""
        for o in operation.walk():
            if o.name == "tile.barrier" or o.name in LEAVES or (is_sync(o) and self._counts(o)):
                raise Unknown

    def _counts(self, sync: Operation) -> bool:
        """Whether a sync may order something, or decide: not a relaxed update for its own sake."""
        if sync.name != "tile.fence" and sync.attributes["order"] == "relaxed":
            return any(v in self._used for v in sync.results)
        return True

    def access(self, lane: _Lane, operation: Operation) -> None:
        trace, who = lane.trace, lane.who
        at = BUFFER_AT[operation.name]
        array = operation.operands[at]
        root = self._root(operation)
        view = self._views.get(array)
        if view is None:
            local = cast("BufferType", array.type).space == "local"
            extents: list[int | None] = list(cast("BufferType", array.type).shape)
        else:
            local, extents = False, [trace.number(v) for v in view.operands[1:]]
        place: list[int] = []
        for index, extent in zip(operation.operands[at + 1 :], extents, strict=False):
            number = trace.number(index)
            if number is None or extent is None:
                self._not_known(operation, root)
                for v in operation.results:
                    trace.values[v] = None
                return
            if not 0 <= number < extent:
                self.outside = True
                for v in operation.results:
                    trace.values[v] = 0
                return
            place.append(number)
        number = 0
        for index, extent in zip(place, extents, strict=False):
            number = number * cast("int", extent) + index
        cell = (root, -1 if view is not None else who[0], number)
        if local:
            cell = (root, who[0] * self._lanes + who[1], number)
        lane.asked[cell] = self._versions.get(cell, 0)
        unwritten = cell[1] != -1 and cell not in self._values and reads_first(operation)
        if unwritten or not local:
            # Before an atomic is done: what it takes over does not order its own access.
            done = Done(
                who, operation, root, tuple(place), self._stored(trace, operation),
                self.clocks.now(who), self.clocks.interval(who),
            )  # fmt: skip
            if unwritten and (lane.possible or root in self._blurred):
                self.unsure.add(root)
            elif unwritten:
                self.unwritten.setdefault(root, done)
            if not local:
                self._compare(cell, done, lane.possible)
        if lane.possible:
            if operation.name in WRITES:
                self._blurred.add(root)
            for v in operation.results:
                trace.values[v] = None
            return
        if operation.name in ATOMICS:
            self._by_atomic(lane, operation, cell)
        elif operation.name == "tile.load":
            trace.values[operation.result] = self._value(cell)
        else:
            self._put(cell, trace.values.get(operation.operands[0]))

    def _put(self, cell: Cell, value: object) -> None:
        self.changes += 1
        self._versions[cell] = self._versions.get(cell, 0) + 1
        self._values[cell] = value

    def _stored(self, trace: Trace, operation: Operation) -> object:
        if operation.name != "tile.store":
            return None
        stored = operation.operands[0]
        value = trace.values.get(stored)
        if value is None and self.made_of is not None:
            return self.made_of.of(stored, trace)
        return value

    def _not_known(self, operation: Operation, root: Value) -> None:
        if is_sync(operation) and self._counts(operation):
            raise Unknown
        self.open.add(root)
        if operation.name in WRITES:
            self._blurred.add(root)

    def _value(self, cell: Cell) -> object:
        root = cell[0]
        if root in self._blurred:
            return None
        if cell not in self._values and cell[1] == -1 and root in self._counted:
            self.assumed.add(cell)
            return 0
        return self._values.get(cell)

    def _by_atomic(self, lane: _Lane, operation: Operation, cell: Cell) -> None:
        """The value before, the value after, and what is handed over."""
        trace = lane.trace
        used = any(v in self._used for v in operation.results)
        known = self._value(cell) if used or cell in self._values else 0
        if not used and known == 0 and cell not in self._values and cell[1] != -1:
            known = None
        old = known if isinstance(known, int) else None
        new = value_after(trace, operation, old)
        for v in operation.results:
            trace.values[v] = old
        if operation.name in WRITES:
            if new is None or new != old:
                self._put(cell, new)
            else:
                self._values[cell] = new
        self._note(lane.who, operation)
        failed = operation.name == "tile.atomic_cas" and (new is None or new == old)
        writes = operation.name in WRITES
        self.clocks.atomic(lane.who, operation, cell, writes, writes and not failed)

    def fence(self, lane: _Lane, operation: Operation) -> None:
        self._note(lane.who, operation)
        self.clocks.fence(lane.who, operation)

    def _note(self, who: Who, operation: Operation) -> None:
        clocks, known = self.clocks, self._syncs.setdefault(who[0], [])
        known.append(Synced(who, operation, clocks.now(who), clocks.interval(who)))

    # --- who meets --------------------------------------------------------------------------

    def _compare(self, cell: Cell, done: Done, possible: bool) -> None:
        seen = self._seen.get(cell)
        if seen is None:
            seen = self._seen[cell] = {"read": {}, "write": {}, "atomic": {}, "narrow": {}}
        for earlier in conflicting(done, seen):
            if not self._ordered(cell, earlier, done):
                if possible:
                    self.open.add(done.root)
                else:
                    self._meet(earlier, done)
        maybe = self._possible.get(cell)
        for earlier in maybe.values() if maybe else ():
            if may_conflict(earlier, done) and not self._ordered(cell, earlier, done):
                self.open.add(done.root)
        if possible:
            self._possible.setdefault(cell, {})[done.kind, done.who] = done
            return
        if done.kind == "atomic" and done.narrow:
            seen["narrow"][done.who] = done
        if done.kind == "write":
            seen["read"].clear()  # each is before this, or was told to meet it
            seen["write"].clear()
        seen[done.kind][done.who] = done

    def _ordered(self, cell: Cell, earlier: Done, done: Done) -> bool:
        """Who has read what an update left comes behind it at that element, by its value alone."""
        if self.clocks.ordered(earlier.who, earlier.time, done.who):
            return True
        by_value = earlier.kind == "atomic" and done.kind != "atomic"
        return by_value and self.clocks.read_since(cell, earlier.who, earlier.time, done.who)

    def _meet(self, first: Done, second: Done) -> None:
        inside = first.who[0] == second.who[0]
        key = (first.operation, second.operation, inside)
        if key in self._pairs or len(self.met) >= _MOST_FOUND:
            return
        self._pairs.add(key)
        given = tuple(
            s for s in self._syncs.get(first.who[0], ())
            if (s.time >= first.time and s.interval >= first.interval) or s.who != first.who
        )  # fmt: skip
        taken = tuple(s for s in self._syncs.get(second.who[0], ()))
        self.met.append(Meeting(first, second, given, taken))


@dataclass(slots=True)
class _Lane:
    """One lane of a run, which goes on turn by turn. ``at``: the loop in which it last waited;
    ``waits``: whether it waits there still, until one of the elements ``asked`` changes, which are
    those of the last iteration with the number of changes till then."""

    run: Run
    trace: Trace
    who: Who
    at: Operation
    waits: bool = False
    possible: bool = False  # whether data say that it is here
    inside: int = 0  # loops that wait, in which it is
    asked: dict[Cell, int] = field(default_factory=dict[Cell, int])
    _going: _Turn | None = None

    def turn(self) -> str:
        """Up to where others may have to come first: ``barrier``, ``wait``, or the ``end``."""
        if self._going is None:
            self._going = self._region(self.run.kernel.regions[0])
        return next(self._going, "end")

    def _region(self, region: Region) -> _Turn:
        run, trace = self.run, self.trace
        steps = run.steps[region]
        run.left -= len(steps)
        if run.left < 0:
            raise Unknown
        for kind, o, compute in steps:
            if compute is not None:
                compute(trace)
            elif kind == "access":
                stops = o.name in ATOMICS
                if stops and run.stops_before:
                    yield "turn"
                run.access(self, o)
                if stops and not run.stops_before:
                    yield "turn"
            elif kind == "exit":
                return o.name, trace.numbers(o.operands)
            elif kind == "barrier":
                yield "barrier"
            elif kind == "fence":
                run.fence(self, o)
            else:
                left = yield from self._control(o)
                if left is not None:
                    return left
        raise Unknown

    def _control(self, o: Operation) -> Generator[str, None, _Left | None]:
        match o.name:
            case "tile.if":
                return (yield from self._if(o))
            case "tile.scope":
                name, values = yield from self._region(o.regions[0])
                if name != "tile.leave":
                    return name, values
                self.trace.put(o.results, values)
            case "tile.for":
                return (yield from self._for(o))
            case "tile.while":
                return (yield from self._while(o))
            case _:
                raise Unknown
        return None

    def _not_known(self, o: Operation) -> None:
        self.run.leave_out(o)
        self.trace.put(o.results, [None] * len(o.results))

    def _if(self, o: Operation) -> Generator[str, None, _Left | None]:
        condition = self.trace.number(o.operands[0])
        if condition is None:
            if self.run.both_ways:
                yield from self._go_both_ways(o)
            else:
                self._not_known(o)
            return None
        name, values = yield from self._region(o.regions[0 if condition else 1])
        if name != "tile.yield":
            return name, values
        self.trace.put(o.results, values)
        return None

    def _go_both_ways(self, o: Operation) -> Generator[str, None, None]:
        """What data decide may happen: each way, one after the other."""
        self.run.must_not_decide(o)
        before, self.possible = self.possible, True
        for region in o.regions:
            yield from self._region(region)
        self.possible = before
        self.trace.put(o.results, [None] * len(o.results))

    def _for(self, o: Operation) -> Generator[str, None, _Left | None]:
        trace = self.trace
        lower, upper, step = (trace.number(v) for v in o.operands[:3])
        if lower is None or upper is None or not step:
            self._not_known(o)
            return None
        carried = trace.numbers(o.operands[3:])
        region = o.regions[0]
        for i in range(lower, upper, step):
            trace.put(region.arguments, [i, *carried])
            name, carried = yield from self._region(region)
            if name in OUTER_EXITS:
                return name, carried
            if name == "tile.break":
                break
        trace.put(o.results, carried)
        return None

    def _while(self, o: Operation) -> Generator[str, None, _Left | None]:
        trace = self.trace
        head, body = o.regions
        carried = trace.numbers(o.operands)
        waits, outer = self.run.waits(o), self.asked
        self.inside += waits
        while True:
            self.asked = {}
            before = (self.run.changes, carried)
            trace.put(head.arguments, carried)
            _, (condition, *carried) = yield from self._region(head)
            if condition is None:
                self.inside -= waits
                self._not_known(o)
                return None
            if not condition:
                break
            trace.put(body.arguments, carried)
            name, carried = yield from self._region(body)
            if name in OUTER_EXITS:
                self.inside -= waits
                return name, carried
            if name == "tile.break":
                break
            if waits:
                self.at = o
                yield "wait" if (self.run.changes, carried) == before else "turn"
        self.inside -= waits
        self.asked = outer | self.asked
        trace.put(o.results, carried)
        return None
