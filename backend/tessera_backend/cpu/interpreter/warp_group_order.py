"""What waits for what, once more with every warp group by itself.

A strand runs all warps of a role at once, so warp groups that take turns at issuing products
(``tile.ordered_barrier``) never wait for each other there. ``Trace`` notes at which barriers
strands arrive and wait; ``replay`` goes through these notes with a strand for each warp group, in
any order that barriers allow, and raises AsynchronousFault where none can go on: on a GPU such a
kernel never ends. Values decide nothing here, since all warp groups of a role go the same way.
Must not know clocks or memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.cpu.interpreter.barrier_state import Meeting, Slot
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.happens_before import Key
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """One arrival or wait. ``part``: the warp group that comes to it, None for each of them."""

    kind: str
    operation: Operation
    part: int | None
    what: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Noted:
    """What one strand has come to: ``begins`` once another strand has forked it, else at once."""

    name: str
    parts: int
    lanes: int
    group: int
    forked: bool
    events: list[Event] = field(default_factory=list[Event])


@dataclass(slots=True, eq=False)
class Trace:
    """What all strands of a cluster have come to, each in its order."""

    strands: dict[Key, Noted] = field(default_factory=dict[Key, Noted])


@dataclass(slots=True, eq=False)
class _Agent:
    """A warp group on its way through the notes of its strand."""

    key: Key
    noted: Noted
    part: int
    at: int = 0
    waits: int | None = None  # the turn of a meeting in which it has arrived

    @property
    def event(self) -> Event | None:
        """The next one that is for this warp group."""
        events = self.noted.events
        while self.at < len(events) and events[self.at].part not in (None, self.part):
            self.at += 1
        return events[self.at] if self.at < len(events) else None


def replay(trace: Trace) -> None:
    """Raise AsynchronousFault where warp groups that run by themselves get stuck."""
    _Replay(trace).run()


class _Replay:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.agents = [_Agent(k, n, p) for k, n in trace.strands.items() for p in range(n.parts)]
        self.begun = {k for k, n in trace.strands.items() if not n.forked}
        self.slots: dict[Key, Slot] = {}
        self.meetings: dict[object, Meeting] = {}
        self.turns: dict[Key, dict[int, int]] = defaultdict(dict)
        self.all_lanes = sum(n.parts * n.lanes for n in trace.strands.values() if not n.forked)
        self.rules: dict[str, Callable[[_Agent, Event], bool]] = {
            "role": self._role, "named": self._named, "cluster": self._cluster,
            "turn": self._turn, "wait": self._wait, "arrive": self._arrive, "land": self._land,
            "fork": self._fork, "join": self._join,
        }  # fmt: skip

    def run(self) -> None:
        moved = True
        while moved:
            moved = False
            for agent in self.agents:
                moved = self._go(agent) or moved
        stuck = [(a, e) for a in self.agents if (e := a.event) is not None and e.kind != "join"]
        if stuck:
            names = ", ".join(f"warp group {a.part} of {a.noted.name}" for a, _ in stuck)
            first, second = (*(e.operation for _, e in stuck), None)[:2]
            raise AsynchronousFault(
                f"nothing can go on (deadlock): these wait: {names}", first, second
            )

    def _go(self, agent: _Agent) -> bool:
        """Whether a warp group has come any further."""
        moved = False
        while agent.key in self.begun and (event := agent.event) is not None:
            if not self.rules[event.kind](agent, event):
                return moved
            agent.at += 1
            agent.waits = None
            moved = True
        return moved

    # --- barriers of lanes ------------------------------------------------------------------

    def _meet(self, agent: _Agent, event: Event, which: object, lanes: int, wait: bool) -> bool:
        meeting = self.meetings.setdefault(which, Meeting(lanes))
        if agent.waits is None:
            agent.waits = meeting.arrive(event.operation, agent.noted.lanes, {})
        return not wait or meeting.turn > agent.waits

    def _role(self, agent: _Agent, event: Event) -> bool:
        noted = agent.noted
        return self._meet(agent, event, agent.key, noted.parts * noted.lanes, True)

    def _named(self, agent: _Agent, event: Event) -> bool:
        number, lanes, wait = event.what
        return self._meet(agent, event, (agent.noted.group, number), lanes, wait)

    def _cluster(self, agent: _Agent, event: Event) -> bool:
        return self._meet(agent, event, "cluster", self.all_lanes, True)

    def _turn(self, agent: _Agent, event: Event) -> bool:
        """A warp group waits until the one before it has passed the turn on."""
        given, parts, (step,) = self.turns[agent.key], agent.noted.parts, event.what
        if parts == 1:
            return True
        if step == "wait":
            if not given.get(agent.part, 0):
                return False
            given[agent.part] = 0
        elif step == "arrive" or agent.part == parts - 1:
            following = (agent.part + 1) % parts
            if given.get(following, 0):
                raise AsynchronousFault("a warp group passes its turn on twice", event.operation)
            given[following] = 1
        return True

    # --- transaction barriers ---------------------------------------------------------------

    def _slot(self, event: Event) -> Slot:
        key, arrivals = event.what[:2]
        return self.slots.setdefault(key, Slot(key, arrivals))

    def _wait(self, agent: _Agent, event: Event) -> bool:
        return self._slot(event).passed(event.what[2])

    def _arrive(self, agent: _Agent, event: Event) -> bool:
        """So many arrivals of this warp group, and bytes that are to come."""
        slot, (times, size) = self._slot(event), event.what[2:]
        slot.expect(size)
        for _ in range(times):
            slot.arrive(event.operation, {})
        return True

    def _land(self, agent: _Agent, event: Event) -> bool:
        self._slot(event).land(event.what[2])
        return True

    # --- roles ------------------------------------------------------------------------------

    def _fork(self, agent: _Agent, event: Event) -> bool:
        self.begun.update(event.what)
        return True

    def _join(self, agent: _Agent, event: Event) -> bool:
        return all(a.event is None for a in self.agents if a.key in event.what)


def noted_slot(slot: Slot, *more: int) -> Sequence[Any]:
    """How a transaction barrier is named in an event."""
    return (slot.key, slot.arrivals, *more)
