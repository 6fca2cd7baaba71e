"""What lanes of a run have done, and which accesses of two lanes conflict.

Must not know how they are run, nor what orders them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tessera_lang.analysis.lanes.access_records import DoneAccess, DoneSync
from tessera_lang.analysis.lanes.clocks import Who
from tessera_lang.analysis.lanes.shared_access_log import Kind
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import WRITES
from tessera_lang.record import dataclass

Cell: TypeAlias = tuple[Value, int, int]
"""A buffer or the pointer of an array, the group (-1: of all), and the number of the element."""


@dataclass(slots=True, eq=False)
class Done(DoneAccess):
    """An access. ``value``: what a store puts, None if that is not known; ``time`` by the clock of
    the lane, ``interval`` by barriers of the group."""

    who: Who
    operation: Operation
    root: Value
    place: tuple[int, ...]
    value: object
    time: int
    interval: int


@dataclass(slots=True, eq=False)
class Synced(DoneSync):
    """An atomic or a fence that a lane has come to."""

    who: Who
    operation: Operation
    time: int
    interval: int

    @property
    def writes(self) -> bool:
        return self.operation.name in WRITES

    @property
    def narrow(self) -> bool:
        return self.operation.attributes["scope"] in ("tile", "group")

    @property
    def name(self) -> str:
        """As in the source."""
        kind = self.operation.attributes.get("kind")
        return f"atomic_{kind}" if kind else self.operation.name.removeprefix("tile.")


@dataclass(frozen=True, slots=True)
class Meeting:
    """``first`` came first in the run. ``given``: what lanes of its group did afterwards that could
    hand it over, ``taken``: what those of the group of ``second`` did before it."""

    first: Done
    second: Done
    given: tuple[Synced, ...]
    taken: tuple[Synced, ...]

    @property
    def by_scope(self) -> bool:
        return self.first.kind == self.second.kind == "atomic"

    @property
    def both_write(self) -> bool:
        return self.first.kind == self.second.kind == "write"


@dataclass(frozen=True, slots=True)
class Late:
    """A lane, and the loop in which it waits."""

    who: Who
    loop: Operation


def conflicting(done: Done, seen: Mapping[str, Mapping[Who, Done]]) -> Iterator[Done]:
    """Accesses of other lanes to the same element, of which one changes it. ``narrow`` are those of
    the atomics that other groups do not see."""
    if done.kind == "atomic":
        for d in seen["atomic" if done.narrow else "narrow"].values():
            if d.who[0] != done.who[0]:
                yield d
    for kind in _CONFLICTING[done.kind]:
        for d in seen[kind].values():
            if d.who != done.who and (d.changes or done.changes) and not are_alike(d, done):
                yield d


def may_conflict(earlier: Done, done: Done) -> bool:
    """The same of two accesses of which one may not happen."""
    if earlier.who == done.who or not (earlier.changes or done.changes):
        return False
    if earlier.kind == done.kind == "atomic":
        return earlier.who[0] != done.who[0] and (earlier.narrow or done.narrow)
    return not are_alike(earlier, done)


_CONFLICTING: Mapping[Kind, tuple[Kind, ...]] = {
    "read": ("write", "atomic"), "write": ("read", "write", "atomic"), "atomic": ("read", "write"),
}  # fmt: skip


def are_alike(a: Done, b: Done) -> bool:
    """Two stores of one value: nobody sees which comes first."""
    return a.kind == b.kind == "write" and a.value is not None and a.value == b.value
