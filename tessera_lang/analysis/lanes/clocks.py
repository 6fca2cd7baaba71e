"""Vector clocks of the lanes of a launch: what surely comes before what.

Barriers join the lanes of a group, also what each has behind a fence. An atomic that writes hands
over what its lane has done, by a release or behind a fence; one that reads takes it over, by an
acquire or before a fence. Between groups both need a scope wider than the group. The updates of a
cell come one after the other, whatever they hand over. Must not know what is accessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass, field

Who: TypeAlias = tuple[int, int]
"""A group and a lane in it."""
_Times: TypeAlias = dict[Who, int]


@dataclass(slots=True)
class _Clock:
    """Times of lanes. ``base`` is shared with others and never changed; ``within``: other such that
    have been joined already."""

    base: _Times = field(default_factory=dict[Who, int])
    more: _Times = field(default_factory=dict[Who, int])
    within: dict[int, _Times] = field(default_factory=dict[int, "_Times"])

    def of(self, who: Who) -> int:
        return max(self.base.get(who, 0), self.more.get(who, 0))

    def copy(self) -> _Clock:
        return _Clock(self.base, dict(self.more), dict(self.within))

    def join(self, other: _Clock | None) -> None:
        if other is None:
            return
        if other.base is not self.base and id(other.base) not in self.within:
            self.within[id(other.base)] = other.base
            self._raise(other.base)
        if other.within:
            self.within.update(other.within)
        self._raise(other.more)

    def _raise(self, times: _Times) -> None:
        base, more = self.base, self.more
        if len(times) > 2 * len(more):
            # Of two the longer is copied as it is: lanes that take turns take over ever more.
            times, self.more = more, dict(times)
            base, more = {}, self.more
        for who, time in times.items():
            if time > base.get(who, 0) and time > more.get(who, 0):
                more[who] = time


@dataclass(slots=True)
class _Given:
    """What a cell hands over: to all, and to the lanes of a group."""

    wide: _Clock = field(default_factory=_Clock)
    inside: dict[int, _Clock] = field(default_factory=dict[int, _Clock])


@dataclass(slots=True)
class _Lane:
    """``seen``: what atomics without an acquire have read, and ``fenced``: what was done before the
    last fence; each by groups as well (True) and in the group only (False), where there is any."""

    time: int = 1
    interval: int = 0
    clock: _Clock = field(default_factory=_Clock)
    seen: dict[bool, _Clock] = field(default_factory=dict[bool, _Clock])
    fenced: dict[bool, _Clock] = field(default_factory=dict[bool, _Clock])


@dataclass(frozen=True, slots=True)
class _Update:
    """An atomic on a cell, of those since the last one that only stored. ``changes``: whether it
    wrote, ``reads``: whether it read what the one before it had left."""

    who: Who
    time: int
    changes: bool
    reads: bool
    wide: bool


def _is_wide(operation: Operation) -> bool:
    return operation.attributes["scope"] in ("device", "mesh")


@dataclass(slots=True)
class Clocks:
    _lanes: dict[Who, _Lane] = field(default_factory=dict[Who, _Lane])
    _given: dict[object, _Given] = field(default_factory=dict[object, _Given])
    _updates: dict[object, list[_Update]] = field(default_factory=dict[object, "list[_Update]"])

    def begin(self, who: Who) -> None:
        lane = self._lanes[who] = _Lane()
        lane.clock.more[who] = lane.time

    def now(self, who: Who) -> int:
        return self._lanes[who].time

    def interval(self, who: Who) -> int:
        return self._lanes[who].interval

    def ordered(self, first: Who, time: int, second: Who) -> bool:
        """Whether what a lane did at a time comes before what another does now."""
        return time <= self._lanes[second].clock.of(first)

    def read_since(self, cell: object, first: Who, time: int, second: Who) -> bool:
        """Whether an atomic that comes before what a lane does now has read what the update that
        another did at a time had left, or what later updates made of it."""
        for update in reversed(self._updates.get(cell, ())):
            if (update.who, update.time) == (first, time):
                return False
            if not update.reads or not self.ordered(update.who, update.time, second):
                continue
            there = [u for u in self._updates[cell] if (u.who, u.time) == (first, time)]
            inside = first[0] == second[0] == update.who[0]
            return any(u.changes and (inside or (u.wide and update.wide)) for u in there)
        return False

    def _tick(self, who: Who, lane: _Lane) -> None:
        lane.time += 1
        lane.clock.more[who] = lane.time

    def barrier(self, there: Iterable[Who]) -> None:
        """All of a group have come."""
        joint, fenced = _Clock(), {True: _Clock(), False: _Clock()}
        for who in there:
            joint.join(self._lanes[who].clock)
            for far, clock in self._lanes[who].fenced.items():
                if clock.base or clock.more:
                    fenced[far].join(clock)
        for who in there:
            lane = self._lanes[who]
            lane.clock = _Clock(joint.more, within=dict(joint.within))
            lane.fenced = dict(fenced)
            lane.interval += 1
            self._tick(who, lane)

    def fence(self, who: Who, operation: Operation) -> None:
        lane = self._lanes[who]
        if operation.attributes["scope"] == "tile":
            return
        lane.clock.join(lane.seen.get(False))
        if _is_wide(operation):
            lane.clock.join(lane.seen.get(True))
            lane.fenced[True] = lane.clock.copy()
        lane.fenced[False] = lane.clock.copy()
        self._tick(who, lane)

    def atomic(
        self, who: Who, operation: Operation, cell: object, writes: bool, changes: bool
    ) -> None:
        """An atomic on a cell: first it reads, where it has a result, then it writes. ``changes``:
        whether it did so, which an `atomic_cas` may not."""
        lane = self._lanes[who]
        update = _Update(who, lane.time, changes, bool(operation.results), _is_wide(operation))
        if not update.reads:
            self._updates[cell] = []
        self._updates.setdefault(cell, []).append(update)
        scope, order = operation.attributes["scope"], operation.attributes["order"]
        acquires = order in ("acquire", "acq_rel")
        if scope != "tile" and operation.results:
            self._take(who, lane, _is_wide(operation), acquires, cell)
        if writes:
            self._give(who, lane, operation, cell, acquires)
        self._tick(who, lane)

    def _take(self, who: Who, lane: _Lane, wide: bool, acquires: bool, cell: object) -> None:
        given = self._given.get(cell)
        if given is None:
            return
        for far, clock in ((False, given.inside.get(who[0])), (True, given.wide if wide else None)):
            if acquires:
                lane.clock.join(clock)
            elif clock is not None:
                lane.seen.setdefault(far, _Clock()).join(clock)

    def _give(
        self, who: Who, lane: _Lane, operation: Operation, cell: object, acquired: bool
    ) -> None:
        """An update leaves what others have handed over before, a store takes its place.
        ``acquired``: the lane has taken over what the cell held."""
        scope, order = operation.attributes["scope"], operation.attributes["order"]
        given = self._given.get(cell)
        if given is None or not operation.results:
            given = self._given[cell] = _Given()
        if scope == "tile":
            return
        releases = order in ("release", "acq_rel")
        if acquired and releases and operation.results:  # it has all that the cell had, and more
            given.inside[who[0]] = lane.clock.copy()
            if _is_wide(operation):
                given.wide = lane.clock.copy()
            return
        given.inside.setdefault(who[0], _Clock()).join(
            lane.clock if releases else lane.fenced.get(False)
        )
        if _is_wide(operation):
            given.wide.join(lane.clock if releases else lane.fenced.get(True))
