"""Which accesses of lanes atomics and fences may bring into an order, as far as lanes are followed.

A lane hands over what it has done by a release (or a fence and an atomic that writes), another
takes it over by an acquire (or an atomic that reads, and a fence) of the same element. Whether the
one reads what the other wrote is not asked: an order that is possible is no certain fault. An
acquire that nothing waits for orders nothing surely, and does not count. Must not know what is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from tessera_lang.analysis.lanes.access_records import DoneSync
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import ATOMICS, effect_of
from tessera_lang.record import dataclass, field

_MOST = 60_000  # pairs of lanes that are looked at; more may be ordered
_SCOPES = ("tile", "group", "device", "mesh")
Who: TypeAlias = tuple[int, int]
"""A group and a lane in it."""


@dataclass(frozen=True, slots=True)
class Sync(DoneSync):
    """An atomic or a fence on the way of a lane.

    ``time`` and ``interval`` are as of its accesses, the interval -1 where the lane is not followed
    any more. ``element``: array and number, None for any. ``waits``: what follows may hang on its
    result.
    """

    time: int
    interval: int
    operation: Operation
    element: tuple[Value | None, int | None]
    waits: bool

    @property
    def scope(self) -> int:
        return _SCOPES.index(str(self.operation.attributes["scope"]))

    @property
    def writes(self) -> bool:
        return effect_of(self.operation) in ("write", "update")


def is_sync(operation: Operation) -> bool:
    return operation.name in ATOMICS or operation.name == "tile.fence"


def hands_over(kernel: Operation) -> bool:
    """Whether something in a kernel may order its lanes, or groups, besides barriers."""
    return any(
        is_sync(o) and o.attributes["scope"] != "tile" and o.attributes.get("order") != "relaxed"
        for o in kernel.walk()
    )


def decides(kernel: Operation) -> bool:
    """Whether a fence, or an atomic that is more than a relaxed update for its own sake, may order
    the lanes of a kernel or say what they do."""
    used = {v for o in kernel.walk() for v in o.operands}
    return any(
        is_sync(o) and (o.attributes.get("order") != "relaxed" or any(v in used for v in o.results))
        for o in kernel.walk()
    )


def element_of(
    operation: Operation, number: Callable[[Value], int | None]
) -> tuple[Value | None, int | None]:
    """The array of an atomic, and a number for its element; nothing for a fence."""
    if operation.name == "tile.fence":
        return None, None
    at = BUFFER_AT[operation.name]
    array, indices = operation.operands[at], operation.operands[at + 1 :]
    cell = 0
    for index in indices:
        found = number(index)
        if found is None:
            return array, None
        cell = cell * _WIDE + found
    return array, cell


_WIDE = 1 << 40
"""More than an axis has elements: a number for each place."""


@dataclass(slots=True)
class _Way:
    """What one lane hands over and takes over: when what came before is handed over, or what comes
    after is ordered; the element; the scope."""

    gives: list[tuple[int, Sync]] = field(default_factory=list["tuple[int, Sync]"])
    takes: list[tuple[int, Sync]] = field(default_factory=list["tuple[int, Sync]"])


def _way(syncs: Iterable[Sync]) -> _Way:
    way = _Way()
    fenced: Sync | None = None
    open_: list[Sync] = []
    waited = False
    for sync in syncs:
        waited |= sync.waits
        if sync.fence:
            fenced = sync
            way.takes.extend((sync.time, o) for o in open_)
            open_.clear()
            continue
        if sync.writes:
            if sync.order in ("release", "acq_rel"):
                way.gives.append((sync.time, sync))
            elif fenced is not None:
                way.gives.append((fenced.time, sync))
        if sync.reads and waited:
            if sync.order in ("acquire", "acq_rel"):
                way.takes.append((sync.time, sync))
            else:
                open_.append(sync)
    return way


class Orders:
    """``syncs``: what every lane that counts comes to, in order, None where that is not known."""

    def __init__(self, syncs: Mapping[Who, Sequence[Sync]] | None) -> None:
        self._left = _MOST
        self._ways = None if syncs is None else {who: _way(s) for who, s in syncs.items()}

    def may_order(self, first: Who, done: int, second: Who, begun: int) -> bool:
        """Whether what the one lane does at time ``done`` may surely come before what the other
        does at ``begun``."""
        if self._ways is None:
            return True
        reached: dict[Who, int] = {first: done}
        waiting = [first]
        while waiting:
            who = waiting.pop()
            way = self._ways.get(who)
            for given, sync in way.gives if way is not None else ():
                if given < reached[who]:
                    continue
                for other, theirs in self._ways.items():
                    self._left -= 1 + len(theirs.takes)
                    if self._left < 0:
                        return True
                    if other == who:
                        continue
                    for taken, by in theirs.takes:
                        wide = 1 if other[0] == who[0] else 2
                        if min(sync.scope, by.scope) < wide or not _meet(sync, by):
                            continue
                        if taken < reached.get(other, taken + 1):
                            reached[other] = taken
                            waiting.append(other)
        return second in reached and reached[second] <= begun


def _meet(a: Sync, b: Sync) -> bool:
    (x, i), (y, j) = a.element, b.element
    return x is y and (i is None or j is None or i == j)
