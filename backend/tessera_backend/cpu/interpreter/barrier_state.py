"""Transaction barriers, named barriers and barriers of a cluster: counters, and what is learned.

Must not know who arrives.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.happens_before import Key, learn
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass, field


@dataclass(slots=True, eq=False)
class Slot:
    """One transaction barrier. ``told``: what whoever waits for a complete phase learns;
    ``telling``: the same of the phase that is open."""

    key: Key
    arrivals: int
    complete: int = 0
    missing: int = 0
    bytes: int = 0
    told: dict[Key, int] = field(default_factory=dict[Key, int])
    telling: dict[Key, int] = field(default_factory=dict[Key, int])

    def __post_init__(self) -> None:
        self.missing = self.arrivals

    @property
    def open(self) -> int:
        """The number of the phase that is open."""
        return self.complete + 1

    def arrive(self, operation: Operation, told: Mapping[Key, int]) -> None:
        if self.missing == 0:
            raise AsynchronousFault("more arrivals than the barrier takes in a phase", operation)
        learn(self.telling, told)
        self.missing -= 1
        self._close()

    def expect(self, size: int) -> None:
        self.bytes += size

    def land(self, size: int) -> None:
        self.bytes -= size
        self._close()

    def _close(self) -> None:
        if self.missing == 0 and self.bytes == 0:
            self.complete += 1
            self.missing = self.arrivals
            learn(self.told, self.telling)
            self.told[self.key] = self.complete
            self.telling = {}

    def passed(self, phase: int) -> bool:
        return self.complete % 2 != phase % 2


@dataclass(slots=True, eq=False)
class Meeting:
    """A barrier of so many lanes, again and again."""

    lanes: int
    arrived: int = 0
    turn: int = 0
    told: dict[Key, int] = field(default_factory=dict[Key, int])
    telling: dict[Key, int] = field(default_factory=dict[Key, int])

    def arrive(self, operation: Operation, lanes: int, told: Mapping[Key, int]) -> int:
        """The turn that this arrival is for."""
        mine = self.turn
        self.arrived += lanes
        learn(self.telling, told)
        if self.arrived > self.lanes:
            raise AsynchronousFault("more lanes than the barrier takes", operation)
        if self.arrived == self.lanes:
            self.told, self.telling = self.telling, {}
            self.arrived = 0
            self.turn += 1
        return mine
