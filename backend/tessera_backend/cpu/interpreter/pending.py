"""What a strand has issued: copies, products and stores in groups, and what they do at last.

Must not know clocks: the count of finished groups is what others learn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera_backend.cpu.interpreter.element_arithmetic import Array
from tessera_backend.cpu.interpreter.happens_before import AccessRecord, Key
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass, field


@dataclass(slots=True, eq=False)
class Issued:
    """A product on its way."""

    operation: Operation
    compute: Callable[[], Array]
    shape: tuple[int, ...]
    dtype: Any
    found: Array | None = None

    def value(self) -> Array:
        if self.found is None:
            self.found = self.compute()
        return self.found


@dataclass(slots=True, eq=False)
class Late:
    """Something issued, and what happens when it is over: of a copy by lanes, ``access`` is how it
    is known and ``fill`` its part that moves data."""

    operation: Operation
    happen: Callable[[], object]
    access: AccessRecord | None = None
    fill: Callable[[], None] | None = None


@dataclass(slots=True, eq=False)
class Agent:
    """Groups of what was issued: ``key`` names the agent, ``done`` counts its finished groups."""

    key: Key
    open: list[Late] = field(default_factory=list[Late])
    groups: list[list[Late]] = field(default_factory=list[list[Late]])
    done: int = 0

    @property
    def count(self) -> int:
        """The number of the group that is open."""
        return self.done + len(self.groups) + 1

    def issue(self, operation: Operation, happen: Callable[[], object]) -> None:
        self.open.append(Late(operation, happen))

    def copy(
        self, access: AccessRecord, fill: Callable[[], None], happen: Callable[[], None]
    ) -> None:
        self.open.append(Late(access.operation, happen, access, fill))

    def taken(self) -> list[Late]:
        """What is open, which is no part of a group any more."""
        found, self.open = self.open, []
        return found

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int) -> None:
        """All but the last ``pending`` groups happen."""
        while len(self.groups) > pending:
            for late in self.groups.pop(0):
                late.happen()
            self.done += 1

    def left(self) -> list[Operation]:
        return [late.operation for group in (*self.groups, self.open) for late in group]
