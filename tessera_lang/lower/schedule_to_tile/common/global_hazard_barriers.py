"""Barriers between accesses to global memory of which one group does both.

Lanes of a group read what others have written only behind a barrier. Owns what was read and
written since the last one; a barrier is placed before an access that some earlier one of the
same array could meet, unless each lane meets only what it touched itself. Must not know tiles.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tessera_lang.ir.core import Operation, Value, ViewType
from tessera_lang.ir.definitions import READS, WRITES
from tessera_lang.opt.schedule.query.scalar_facts import Facts

Places = dict[Value, set[Hashable]]
Held = tuple[Places, Places]


class Order:
    """Accesses since the last barrier, by array and by place."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._read: dict[Value, set[Hashable]] = {}
        self._written: dict[Value, set[Hashable]] = {}

    def array(self, view: Value) -> Value:
        """The pointer behind a view: arrays that are written overlap no other."""
        operation = self.facts.operation(view)
        return operation.operands[0] if operation and operation.operands else view

    def reads(self, view: Value, place: Hashable) -> bool:
        """Note a read; whether a barrier has to stand before it."""
        array = self.array(view)
        needed = bool(self._written.get(array, set[Hashable]()) - {place})
        if needed:
            self.barrier()
        self._read.setdefault(array, set()).add(place)
        return needed

    def writes(self, view: Value, place: Hashable) -> bool:
        """Note a write; whether a barrier has to stand before it."""
        array = self.array(view)
        met = self._written.get(array, set[Hashable]()) | self._read.get(array, set[Hashable]())
        needed = bool(met - {place})
        if needed:
            self.barrier()
        self._written.setdefault(array, set()).add(place)
        return needed

    def barrier(self) -> None:
        """Everything before it is ordered."""
        self._read.clear()
        self._written.clear()

    # --- control flow -------------------------------------------------------------------------

    def held(self) -> Held:
        """What is known now."""
        return tuple({v: set(p) for v, p in d.items()} for d in (self._read, self._written))  # type: ignore[return-value]

    def restore(self, held: Held) -> None:
        self._read, self._written = ({v: set(p) for v, p in d.items()} for d in held)

    def join(self, ways: Sequence[Held]) -> None:
        """Any of these may have happened."""
        self.barrier()
        for read, written in ways:
            for to, found in ((self._read, read), (self._written, written)):
                for array, places in found.items():
                    to.setdefault(array, set()).update(places)

    def enter_loop(self, operations: Sequence[Operation]) -> None:
        """An iteration may follow another: what the body touches counts as touched, at a place
        nobody knows, where something of it is written."""
        for outer in operations:
            for operation in outer.walk():
                if operation.name in READS | WRITES:
                    self._touch(operation)

    def _touch(self, operation: Operation) -> None:
        for value in operation.operands:
            if isinstance(value.type, ViewType):
                held = self._written if operation.name in WRITES else self._read
                held.setdefault(self.array(value), set()).add(object())
