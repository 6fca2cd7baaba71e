"""Where the values of a Schedule program are defined and used.

Owns ``Source``: parents, users and the order of operations. Must not know what is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.definitions import LOOPS

Place = tuple[Operation, int]
"""A region: the operation that has it, and its number."""


def is_tile(value: Value) -> bool:
    return isinstance(value.type, TileType)


def tile_type(value: Value) -> TileType:
    if not isinstance(value.type, TileType):
        raise TypeError(f"a tile was expected, not {value.type}")
    return value.type


class Source:
    """One kernel, as it was given."""

    def __init__(self, kernel: Operation) -> None:
        self.kernel = kernel
        self.place: dict[Operation, Place] = {}
        self.index: dict[Operation, int] = {}
        self.users: dict[Value, list[Operation]] = {}
        self.definition: dict[Value, Operation] = {}
        self.argument_of: dict[Value, Place] = {}
        self.order: list[Operation] = []
        self._scan(kernel)

    def _scan(self, owner: Operation) -> None:
        for number, region in enumerate(owner.regions):
            for argument in region.arguments:
                self.argument_of[argument] = (owner, number)
            for at, op in enumerate(region.operations):
                self.place[op], self.index[op] = (owner, number), at
                self.order.append(op)
                for value in op.operands:
                    self.users.setdefault(value, []).append(op)
                for value in op.results:
                    self.definition[value] = op
                self._scan(op)

    def place_of(self, value: Value) -> Place:
        """The region in which a value is defined."""
        op = self.definition.get(value)
        return self.argument_of[value] if op is None else self.place[op]

    def index_in(self, op: Operation, place: Place) -> int | None:
        """Where ``op``, or what holds it, stands in a region; None where it is outside."""
        while op is not self.kernel:
            if self.place[op] == place:
                return self.index[op]
            op = self.place[op][0]
        return None

    def visible(self, value: Value, op: Operation) -> bool:
        """Whether ``op`` stands in the region of ``value`` or below, behind it."""
        at = self.index_in(op, self.place_of(value))
        definition = self.definition.get(value)
        return at is not None and (definition is None or self.index[definition] < at)

    def crosses_loop(self, value: Value, op: Operation) -> bool:
        """Whether a loop that ``value`` is outside of holds ``op``."""
        place = self.place_of(value)
        while op is not self.kernel and self.place[op] != place:
            op = self.place[op][0]
            if op.name in LOOPS:
                return True
        return False

    def is_last(self, op: Operation, value: Value, uses: Sequence[Operation]) -> bool:
        """Whether no use of ``value`` (a use stands in its region, or below) can run after ``op``
        is done. Uses in the other side of an ``if`` cannot, nor any where ``op`` stands outside
        of the region of ``value``, which is over then."""
        if self.index_in(op, self.place_of(value)) is None:
            return True
        return all(self._is_before(op, value, use) for use in uses)

    def _is_before(self, op: Operation, value: Value, use: Operation) -> bool:
        home = self.place_of(value)
        while op is not self.kernel:
            place = self.place[op]
            at = self.index_in(use, place)
            if at is not None:
                return at <= self.index[op] and not self._repeats(place, home)
            if place == home or place[0].name in LOOPS:
                return False
            op = place[0]
        return False

    def _repeats(self, place: Place, home: Place) -> bool:
        """Whether a loop inside of ``home`` runs what stands in ``place`` again."""
        while place != home:
            if place[0].name in LOOPS:
                return True
            place = self.place[place[0]]
        return False
