"""Powers of two that surely divide an integer: what alignment of an address follows from.

Owns one question per value, answered from its definition and from the kernel's ``divisors``.
Must not know targets.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.record import dataclass, field

MOST = 1 << 30
"""Stands for 0, which everything divides."""


def _of(number: int) -> int:
    return min(number & -number, MOST) if number else MOST


@dataclass(slots=True)
class Divisors:
    """Answers for the values of one kernel; each is worked out once."""

    kernel: Operation
    _definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    _arguments: dict[Value, tuple[Operation, int]] = field(
        default_factory=dict[Value, tuple[Operation, int]]
    )
    _known: dict[Value, int] = field(default_factory=dict[Value, int])
    _users: dict[Value, list[Operation]] = field(default_factory=dict[Value, list[Operation]])

    def __post_init__(self) -> None:
        for operation in self.kernel.walk():
            for result in operation.results:
                self._definitions[result] = operation
            for operand in operation.operands:
                self._users.setdefault(operand, []).append(operation)
            for region in operation.regions:
                self._enter(operation, region)

    def _enter(self, operation: Operation, region: Region) -> None:
        for number, argument in enumerate(region.arguments):
            self._arguments[argument] = (operation, number)

    def __call__(self, value: Value) -> int:
        """The largest power of two known to divide it (of a pointer: its address in bytes)."""
        found = self._known.get(value)
        if found is None:
            self._known[value] = 1  # what a loop carries is asked for while it is worked out
            found = self._known[value] = self._work_out(value)
        return found

    def _work_out(self, value: Value) -> int:
        if value in self._arguments:
            return self._argument(*self._arguments[value])
        operation = self._definitions.get(value)
        if operation is None:
            return 1
        name, operands = operation.name.removeprefix("tile."), operation.operands
        if name == "constant":
            number = operation.attributes["value"]
            return _of(number) if isinstance(number, int) else 1
        if name in ("add", "sub", "min", "max", "mod", "or"):
            return min(self(operands[0]), self(operands[1]))
        if name == "select":
            return min(self(operands[1]), self(operands[2]))
        if name == "mul":
            return min(self(operands[0]) * self(operands[1]), MOST)
        if name in ("cast", "neg"):
            return self(operands[0])
        if name == "and":
            return max(self(operands[0]), self(operands[1]))
        count = self.constant(operands[1]) if name in ("shl", "floordiv") else None
        if name == "shl" and count is not None:
            return min(self(operands[0]) << min(max(count, 0), 30), MOST)
        if name == "floordiv" and count is not None and count > 0 and count == _of(count):
            return max(self(operands[0]) // count, 1)
        if name == "if":
            return self._both_sides(operation, value)
        return 1

    def _both_sides(self, operation: Operation, value: Value) -> int:
        number = operation.results.index(value)
        sides = [r.terminator for r in operation.regions if r.terminator.name == "tile.yield"]
        return min((self(side.operands[number]) for side in sides), default=1)

    def _argument(self, operation: Operation, number: int) -> int:
        if operation is self.kernel:
            given = operation.attributes.get("divisors", ())
            found = given[number] if isinstance(given, tuple) and number < len(given) else 1
            return found if isinstance(found, int) and found > 0 else 1
        if operation.name == "tile.for" and number == 0:
            return min(self(operation.operands[0]), self(operation.operands[2]))
        return 1

    def definition(self, value: Value) -> Operation | None:
        """The operation that gives a value; None for arguments of regions."""
        return self._definitions.get(value)

    def users(self, value: Value) -> Sequence[Operation]:
        """The operations that a value is an operand of."""
        return self._users.get(value, ())

    def constant(self, value: Value) -> int | None:
        """The number of a ``tile.constant``."""
        operation = self._definitions.get(value)
        if operation is None or operation.name != "tile.constant":
            return None
        number = operation.attributes["value"]
        return number if isinstance(number, int) else None
