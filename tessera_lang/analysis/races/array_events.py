"""What lanes of a launch surely do to arrays, lane by lane, with numbers.

Owns which lanes and groups are followed, and how far: those at the ends first, then all of a group
and of more groups, as long as the work allows. What depends on data is left out. Must not know
what is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from tessera_lang.analysis.lanes.access_records import DoneAccess
from tessera_lang.analysis.lanes.concrete_lane import Effort, Launch, Trace, WayUnknown, trace_lane
from tessera_lang.analysis.lanes.decoded_steps import steps_of
from tessera_lang.analysis.lanes.followed_operations import followed_operations
from tessera_lang.analysis.lanes.hand_overs import Orders, Sync, Who, is_sync
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT, KINDS
from tessera_lang.analysis.races.stored_values import Values
from tessera_lang.cancellation import pause
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan

_STEPS = 20_000  # operations of the lanes at the ends that are followed for a kernel
_MORE_STEPS = 12_000  # of all other lanes
_MOST_EVENTS = 2000  # of one lane
_MOST_AGAIN = 256  # lanes that are followed once more, for what they store
_ALIKE = 2  # lanes that are kept of those of a group that do the same to an element


@dataclass(frozen=True, slots=True)
class Access(DoneAccess):
    """An access that surely happens. ``value``: what is stored, None if that is not known;
    ``time``: operations of the lane before it."""

    lane: int
    group: int
    interval: int
    time: int
    operation: Operation
    pointer: Value
    cell: tuple[int, ...]
    value: object

    @property
    def writes(self) -> bool:
        """By a plain store."""
        return self.kind == "write"

    @property
    def who(self) -> Who:
        return self.group, self.lane


@dataclass(slots=True)
class _Watch:
    """Collects the accesses of one lane to the arrays in question. ``values``: None where it is not
    asked what numbers that are not known are made of."""

    views: dict[Value, Operation]
    pointers: frozenset[Value]
    values: Values | None
    launch: Launch
    lane: int
    events: list[Access] = field(default_factory=list[Access])
    unseen: set[Value] = field(default_factory=set[Value])
    known: set[object] = field(default_factory=set[object])
    outside: bool = False  # whether an index was

    def matters(self, operation: Operation) -> bool:
        waits = operation.name == "tile.while" or is_sync(operation)
        return waits or self._pointer(operation) is not None

    def passed_over(self, operation: Operation) -> None:
        pointer = self._pointer(operation)
        if pointer is not None:
            self.unseen.add(pointer)

    def see(self, trace: Trace, operation: Operation) -> None:
        pointer = self._pointer(operation)
        if pointer is None:
            return
        at = BUFFER_AT[operation.name]
        view = self.views[operation.operands[at]]
        cell: list[int] = []
        for index, size in zip(operation.operands[at + 1 :], view.operands[1:], strict=False):
            number, extent = trace.number(index), trace.number(size)
            if number is None or extent is None:
                self.unseen.add(pointer)
                return
            if not 0 <= number < extent:
                self.outside = True
                return
            cell.append(number)
        key = (operation, trace.interval, *cell)
        if key in self.known:
            return  # in another round of a loop
        self.known.add(key)
        writes = KINDS[operation.name] == "write"
        value: object = None
        if writes:
            stored = operation.operands[0]
            value = trace.values.get(stored)
            if value is None and self.values is not None:
                value = self.values.of(stored, trace)
        self.events.append(Access(
            self.lane, self.launch.group, trace.interval, trace.time, operation, pointer,
            tuple(cell), value,
        ))  # fmt: skip
        if len(self.events) > _MOST_EVENTS:
            raise WayUnknown

    def _pointer(self, operation: Operation) -> Value | None:
        pointer = _pointer_of(operation, self.views)
        return pointer if pointer in self.pointers else None


def _pointer_of(operation: Operation, views: Mapping[Value, Operation]) -> Value | None:
    if operation.name not in BUFFER_AT:
        return None
    view = views.get(operation.operands[BUFFER_AT[operation.name]])
    return None if view is None else view.operands[0]


Places = dict[tuple[Value, tuple[int, ...]], list[Access]]


@dataclass(slots=True)
class Followed:
    """``places``: accesses by element. ``whole``: whether all lanes of all groups were followed.
    ``syncs`` are those of each lane, by the way of which order follows; ``last``: the barriers that
    it comes to. ``unseen``: arrays with accesses that some lane does only if data say so, or at a
    place that they say. ``steps``: operations of all lanes; ``outside``: whether an index was."""

    places: Places = field(default_factory=Places)
    whole: bool = True
    outside: bool = False
    steps: int = 0
    unseen: set[Value] = field(default_factory=set[Value])
    syncs: dict[Who, list[Sync]] = field(default_factory=dict[Who, list[Sync]])
    last: dict[Who, int] = field(default_factory=dict[Who, int])
    _seen: dict[object, int] = field(default_factory=dict[object, int])

    def unknown_writers(self, most: int) -> list[Who]:
        """Lanes that store what is not known where others store too."""
        found: dict[Who, None] = {}
        for there in self.places.values():
            by = {e.who: e for e in there if e.writes}
            if len(by) > 1:
                found.update((e.who, None) for e in by.values() if e.value is None)
            if len(found) >= most:
                break
        return list(found)

    def fill(self, who: Who, events: Sequence[Access]) -> None:
        """What a lane stores, now that it is known what that is made of."""
        known = {(e.pointer, e.cell, e.operation, e.interval): e.value for e in events}
        for place in {(e.pointer, e.cell) for e in events}:
            there = self.places.get(place, [])
            for i, e in enumerate(there):
                if e.who == who:  # the time is that of the lane's first walk, as of its atomics
                    value = known.get((e.pointer, e.cell, e.operation, e.interval))
                    there[i] = replace(e, value=value)

    def add(self, events: Sequence[Access]) -> None:
        for e in events:
            key = (e.pointer, e.cell, e.operation, e.group, e.interval, e.value)
            count = self._seen[key] = self._seen.get(key, 0) + 1
            if count <= _ALIKE:
                self.places.setdefault((e.pointer, e.cell), []).append(e)


def follow(
    kernel: Operation, plan: LaunchPlan, launch: Launch, pointers: frozenset[Value],
    values: Values, several: bool, few: bool, most: int = _MORE_STEPS,
) -> Followed:  # fmt: skip
    """The accesses of lanes of a launch to arrays. ``several``: lanes of more than one group;
    ``few``: those at the ends only; ``most``: operations of the other lanes."""
    views = {o.result: o for o in kernel.walk() if o.name == "tile.view"}
    found = Followed()
    ready = steps_of(followed_operations(kernel, lambda o: _pointer_of(o, views) in pointers))

    def one(group: int, lane: int, effort: Effort, made_of: Values | None = None) -> int:
        pause()
        there = replace(launch, group=group)
        watch = _Watch(views, pointers, made_of, there, lane)
        before = effort.left
        traced = trace_lane(kernel, there, lane, effort, watch=watch, ready=ready)
        found.add(watch.events)
        found.unseen |= watch.unseen if traced.ends else pointers
        found.syncs[group, lane] = traced.syncs
        found.last[group, lane] = traced.last
        found.whole &= effort.left > 0
        found.outside |= watch.outside
        found.steps += before - effort.left
        return before - effort.left

    effort, longest = Effort(_STEPS), 1
    ends = _ends(plan, launch, several)
    for group, lane in ends[:2] + ends[-1:] if few else ends:
        longest = max(longest, one(group, lane, effort, values))
    if few:
        return found
    effort = Effort(most)
    for group, lane in _others(plan, launch, several):
        if (group, lane) in found.syncs:
            continue
        if effort.left <= longest:
            found.whole = False
            break
        one(group, lane, effort)
    effort = Effort(_STEPS)
    for group, lane in found.unknown_writers(_MOST_AGAIN):
        there = replace(launch, group=group)
        watch = _Watch(views, pointers, values, there, lane)
        trace_lane(kernel, there, lane, effort, watch=watch, ready=ready)
        found.fill((group, lane), watch.events)
    return found


def _ends(plan: LaunchPlan, launch: Launch, several: bool) -> list[Who]:
    """Groups and lanes at the ends and in the middle."""
    lanes, groups = prod(plan.group), prod(launch.groups)
    last = lanes - 1
    found = [(0, lane) for lane in (0, 1, 2, lanes // 2, 32) if lane < lanes]
    if several and groups > 1:
        found += [(1, lane) for lane in (0, 1, last) if lane < lanes] + [(groups - 1, last)]
    return list(dict.fromkeys((*found, (0, last))))


def _others(plan: LaunchPlan, launch: Launch, several: bool) -> Iterator[Who]:
    """All lanes of the first group, the first lane of all groups, then all of one after another."""
    lanes, groups = prod(plan.group), prod(launch.groups)
    yield from ((0, lane) for lane in range(lanes))
    if several:
        yield from ((group, 0) for group in range(1, groups))
        for group in dict.fromkeys((groups - 1, *range(1, groups - 1))) if groups > 1 else ():
            yield from ((group, lane) for lane in range(1, lanes))


@dataclass(slots=True)
class ArrayOrders:
    """Orders that atomics and fences may make, besides barriers. ``possible``: whether the kernel
    has any that could. ``known``: by group and interval. ``doubted``: arrays where accesses meet
    that may be ordered so."""

    followed: Followed
    lanes: int
    possible: bool
    known: dict[tuple[int, int], Orders] = field(default_factory=dict[tuple[int, int], Orders])
    doubted: set[Value] = field(default_factory=set[Value])
    _gives: dict[int, bool] = field(default_factory=dict[int, bool])
    _gets: dict[int, bool] = field(default_factory=dict[int, bool])
    _groups: dict[int, list[tuple[Who, list[Sync]]]] = field(
        default_factory=dict[int, "list[tuple[Who, list[Sync]]]"]
    )

    def may_order(self, a: Access, b: Access) -> bool:
        found = self.possible and self._may_order(a, b)
        if found:
            self.doubted.add(a.pointer)
        return found

    def _may_order(self, a: Access, b: Access) -> bool:
        if a.group != b.group:
            return self._between_groups(a, b) or self._between_groups(b, a)
        orders = self._inside(a.group, a.interval)
        return orders.may_order(a.who, a.time, b.who, b.time) or orders.may_order(
            b.who, b.time, a.who, a.time
        )

    def _orders(self, group: int, interval: int) -> Orders:
        mine = {who: s for who, s in self.followed.syncs.items() if who[0] == group}
        if len(mine) < self.lanes:
            return Orders(None)
        return Orders({w: [s for s in found if s.interval in (interval, -1)]
                       for w, found in mine.items()})  # fmt: skip

    def _between_groups(self, first: Access, second: Access) -> bool:
        """Something is released after the one, and something acquired before the other: of which
        element, and by way of which groups, is not asked."""
        gives = self._gives.get(id(first))
        if gives is None:  # of one access, whatever it is compared with
            gives = self._gives[id(first)] = self._hands_over(first)
        if not gives:
            return False
        gets = self._gets.get(id(second))
        if gets is None:
            gets = self._gets[id(second)] = self._takes_over(second)
        return gets

    def _hands_over(self, access: Access) -> bool:
        """Something that all groups see is released behind an access, by its lane, behind a
        barrier, or by a lane of its group that took over from it."""
        if self._in_part(access.group) and access.interval < self.followed.last[access.who]:
            return True
        own = self.followed.syncs[access.who]
        narrow = any(s.scope == 1 and s.writes and s.time >= access.time for s in own)
        orders = self._inside(access.group, access.interval) if narrow else None
        for who, s in self._in_group(access.group):
            for at in self._releases(who, s) if s.scope > 1 and s.writes else ():
                if self._after(access, who, at):
                    return True
                if orders and orders.may_order(access.who, access.time, who, at.time):
                    return True
        return narrow and self._in_part(access.group)

    def _takes_over(self, access: Access) -> bool:
        """The same of what is acquired before an access."""
        if self._in_part(access.group) and access.interval > 0:
            return True
        own = self.followed.syncs[access.who]
        narrow = any(s.scope == 1 and s.reads and s.time <= access.time for s in own)
        orders = self._inside(access.group, access.interval) if narrow else None
        for who, s in self._in_group(access.group):
            if s.scope > 1 and (s.fence or (s.reads and s.order in ("acquire", "acq_rel"))):
                if self._after_is(access, who, s):
                    return True
                if orders and orders.may_order(who, s.time, access.who, access.time):
                    return True
        return narrow and self._in_part(access.group)

    def _in_part(self, group: int) -> bool:
        """Whether some lane of a group was not followed, which may do any atomic of the kernel."""
        return len(self._of_group(group)) < self.lanes

    def _of_group(self, group: int) -> list[tuple[Who, list[Sync]]]:
        if not self._groups:
            for who, syncs in self.followed.syncs.items():
                self._groups.setdefault(who[0], []).append((who, syncs))
        return self._groups.get(group, [])

    def _inside(self, group: int, interval: int) -> Orders:
        found = self.known.get((group, interval))
        if found is None:
            found = self.known[group, interval] = self._orders(group, interval)
        return found

    def _in_group(self, group: int) -> Iterator[tuple[Who, Sync]]:
        for who, syncs in self._of_group(group):
            yield from ((who, s) for s in syncs)

    def _releases(self, who: Who, sync: Sync) -> list[Sync]:
        """What an atomic that writes hands over: all behind which it comes, or a fence before."""
        if sync.order in ("release", "acq_rel"):
            return [sync]
        return [
            s for s in self.followed.syncs[who] if s.fence and s.scope > 1 and s.time <= sync.time
        ]

    def _after(self, access: Access, who: Who, sync: Sync) -> bool:
        """Whether the atomic comes behind an access: in its lane, or behind a barrier."""
        if sync.interval == -1:
            return True
        return sync.interval > access.interval or (who == access.who and sync.time >= access.time)

    def _after_is(self, access: Access, who: Who, sync: Sync) -> bool:
        """Whether an access comes behind the atomic."""
        if sync.interval == -1:
            return False
        return access.interval > sync.interval or (who == access.who and sync.time <= access.time)
