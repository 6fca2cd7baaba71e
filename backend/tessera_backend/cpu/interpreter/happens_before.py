"""The asynchronous model: what orders two accesses of one place (docs/ir.md, of that name).

Owns clocks of strands, accesses and the question ``meet``. A *strand* is the lanes of a role, or
of a group outside of roles. Its time counts its barriers: what its lanes did before its last
barrier is ordered before what any of them does now, and before what others do that have learned
of that time. What is issued runs on an agent of its own: copies on that of their barrier's slot,
products and stores on that of who issued them; it is over for a strand that has learned of a
count of that agent. Must not know operations or memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass, field

Key = tuple[object, ...]
Interval = tuple[int, int, int]
Owners = Callable[[], "np.ndarray[Any, Any]"]
"""For each element of a box the warp group that touches it, -1 where several do."""


def learn(known: dict[Key, int], more: Mapping[Key, int]) -> None:
    for key, count in more.items():
        if known.get(key, -1) < count:
            known[key] = count


@dataclass(slots=True, eq=False)
class Clock:
    """What a strand has done and knows. ``parts``: warp groups whose barriers of their own count;
    ``learned``: what one elected lane knows and the others do not yet, by its number."""

    key: Key
    parts: int = 1
    time: int = 1
    whole: int = 1  # the time of the last barrier of all lanes
    part: int = 1  # that of the last one at least within each warp group
    known: dict[Key, int] = field(default_factory=dict[Key, int])
    known_in_part: dict[Key, int] = field(default_factory=dict[Key, int])
    learned: dict[int, dict[Key, int]] = field(default_factory=dict[int, dict[Key, int]])
    ended: dict[Key, int] = field(default_factory=dict[Key, int])  # known behind a barrier

    def barrier(self, whole: bool = True) -> None:
        self.time += 1
        self.part = self.time
        told = self.known_in_part
        for more in self.learned.values():
            learn(told, more)
        self.learned.clear()
        if whole or self.parts == 1:
            self.whole = self.time
            learn(self.known, told)
            learn(self.known, self.ended)
            self.known_in_part, self.ended = {}, {}

    def learn(self, more: Mapping[Key, int], leader: int | None) -> None:
        learn(self.known if leader is None else self.learned.setdefault(leader, {}), more)

    def knows(self, key: Key, leader: int | None) -> int:
        found = self.known.get(key, -1)
        if leader is not None:
            mine = self.learned.get(leader, {}).get(key, -1)
            return max(found, mine, self.known_in_part.get(key, -1))
        return found

    def told(self, leader: int | None) -> dict[Key, int]:
        """What whoever waits for an arrival of this strand learns by it."""
        out = dict(self.known)
        learn(out, self.known_in_part)
        if leader is not None:
            learn(out, self.learned.get(leader, {}))
        out[self.key] = self.part if leader is None or self.parts == 1 else self.whole
        return out


@dataclass(slots=True, eq=False)
class AccessRecord:
    """One read or write of a box. ``lanes``: equal where every lane touches the same elements;
    ``agent``: what runs it, with its ``count``, where it is asynchronous; ``fenced``: the time of
    the fence behind a write by lanes; ``fenced_by``: the strands that have waited for a copy by
    lanes and then passed a fence of their own."""

    kind: Literal["read", "write"]
    operation: Operation
    clock: Clock
    box: tuple[Interval, ...]
    frame: tuple[int, ...] = ()
    lanes: object = None
    leader: int | None = None
    agent: Key | None = None
    count: int = 0
    owners: Owners | int | None = None
    proxy: Literal["lanes", "async"] = "lanes"
    time: int = 0
    fenced: int | None = None
    fenced_by: set[Key] = field(default_factory=set[Key])

    def __post_init__(self) -> None:
        self.time = self.clock.time

    def is_like(self, other: AccessRecord) -> bool:
        """Whether what orders ``other`` before a third access orders this one, too."""
        return (
            self.clock is other.clock and self.agent == other.agent and self.lanes == other.lanes
            and self.leader == other.leader and self.count <= other.count
        )  # fmt: skip


def meet(old: AccessRecord, new: AccessRecord, box: tuple[Interval, ...] | None) -> None:
    """Raise AsynchronousFault unless something orders ``old`` before ``new`` in a box."""
    missing = _missing(old, new, box)
    if missing:
        verb = "reads" if new.kind == "read" else "writes"
        done = "written" if old.kind == "write" else "read"
        raise AsynchronousFault(
            f"{new.operation.name} {verb} what {old.operation.name} has {done}: {missing}",
            new.operation, old.operation,
        )  # fmt: skip


def _missing(old: AccessRecord, new: AccessRecord, box: tuple[Interval, ...] | None) -> str:
    clock = new.clock
    if old.agent is not None:
        if not _over(old, new, box):
            return "nobody has waited for its completion"
        copied = old.kind == "write" and old.proxy == "lanes"
        if copied and new.proxy == "async" and clock.key not in old.fenced_by:
            return "there is no fence_async behind the wait for its completion"
        return ""
    time = old.time
    if new.proxy == "async" and old.kind == "write" and old.proxy == "lanes":
        if old.fenced is None:
            return "there is no fence_async behind the write"
        time = old.fenced
    if old.clock is not clock:
        known = clock.knows(old.clock.key, new.leader)
        return "" if time < known else "no barrier orders the two roles"
    if old.leader is not None and old.leader == new.leader:
        return ""
    if new.proxy == "lanes" and old.lanes is not None and old.lanes == new.lanes:
        return ""
    if time < clock.whole or (time < clock.part and _same_part(old, new, box)):
        return ""
    return "no barrier stands between lanes"


def _over(old: AccessRecord, new: AccessRecord, box: tuple[Interval, ...] | None) -> bool:
    assert old.agent is not None
    if new.agent == old.agent and old.kind == "write" == new.kind and old.count < 0:
        return True  # reductions into memory
    if new.clock.knows(old.agent, new.leader) >= old.count >= 0:
        return True
    known = new.clock.known_in_part.get(old.agent, -1)
    return known >= old.count >= 0 and _same_part(old, new, box)


def _same_part(old: AccessRecord, new: AccessRecord, box: tuple[Interval, ...] | None) -> bool:
    """Whether one warp group touches each element of the box, both times."""
    if new.clock.parts == 1:
        return True
    a, b = _owners_in(old, box), _owners_in(new, box)
    return bool(np.all((a == b) & (a >= 0)))


def _owners_in(access: AccessRecord, box: tuple[Interval, ...] | None) -> Any:
    """The warp groups of the elements of a box; one number where it is one for all."""
    owners = access.owners
    if owners is None or isinstance(owners, int):
        return np.int64(-1 if owners is None else owners)
    found = owners()
    if box is not None:
        if all(step == mine[2] for (_, _, step), mine in zip(box, access.box, strict=True)):
            return found[tuple(
                slice((low - start) // step, (high - 1 - start) // step + 1)
                for (low, high, step), (start, _, _) in zip(box, access.box, strict=True)
            )]  # fmt: skip
    return np.int64(found.flat[0] if np.all(found == found.flat[0]) else -1)
