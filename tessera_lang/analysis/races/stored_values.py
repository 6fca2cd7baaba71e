"""What a stored value is made of, as something that can be compared between lanes.

Two lanes whose values are made of the same are given the same number; of others that is not so
but by chance. What is read of shared memory or comes from other lanes is not known. Must not know
what it is compared for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from tessera_lang.analysis.lanes.concrete_lane import Trace, whole_float
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.ir.definitions import GROUP_IDS, LANE_IDS
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.types.dtype import DType

_MOST = 200  # operations of one value
_MADE = ("none", "fault")
_INSIDE = ("none", "fault", "exit")


class _NotKnown(Exception):
    """The value is made of something that is not followed."""


class Values:
    """``definitions`` has what makes each value of the kernel, ``arguments`` are the kernel's."""

    def __init__(self, definitions: Mapping[Value, Operation], arguments: Iterable[Value]) -> None:
        self._definitions = definitions
        self._arguments = frozenset(arguments)
        self._free: dict[Operation, tuple[Value, ...] | None] = {}
        self._ids: dict[Operation, tuple[bool, bool]] = {}
        self._shown: dict[Operation, tuple[tuple[str, str], ...]] = {}
        self._left = 0

    def of(self, value: Value, trace: Trace) -> object:
        """What a value is made of where the lane is now, None if that is not known."""
        self._left = _MOST
        try:
            return self._of(value, trace)
        except _NotKnown:
            return None

    def _of(self, value: Value, trace: Trace) -> object:
        known = trace.values.get(value)
        if known is not None:
            return known
        if value in self._arguments:
            return ("argument", id(value))
        operation = self._definitions.get(value)
        self._left -= 1
        if operation is None or self._left < 0:
            raise _NotKnown
        if operation.regions:
            return self._of_control(operation, value, trace)
        if not _is_followed(operation, _MADE):
            raise _NotKnown
        parts = tuple(id(v) if is_view(v) else self._of(v, trace) for v in operation.operands)
        if operation.name == "tile.cast" and (whole := whole_float(operation, parts[0])):
            return whole
        if (exact := _exact_float(operation, parts)) is not None:
            return exact
        shown = self._shown.get(operation)
        if shown is None:
            named = ((k, str(v)) for k, v in operation.attributes.items() if k != "site")
            shown = self._shown[operation] = tuple(sorted(named))
        return operation.name, shown, parts

    def _of_control(self, operation: Operation, value: Value, trace: Trace) -> object:
        """An ``if`` whose way is known gives what that way does; else all that goes in counts."""
        if operation.name == "tile.if":
            condition = trace.number(operation.operands[0])
            if condition is not None:
                end = operation.regions[0 if condition else 1].terminator
                if end.name == "tile.yield":
                    return self._of(end.operands[operation.results.index(value)], trace)
        free = self._free_of(operation)
        if free is None:
            raise _NotKnown
        ids = self._ids.get(operation)
        if ids is None:
            ids = self._ids[operation] = operation.holds(LANE_IDS), operation.holds(GROUP_IDS)
        lane = trace.lane if ids[0] else -1
        group = trace.launch.group if ids[1] else -1
        return id(value), lane, group, tuple([self._of(v, trace) for v in free])

    def _free_of(self, operation: Operation) -> tuple[Value, ...] | None:
        """The values from outside that an operation with regions uses; None where it does more
        than compute and read arrays."""
        if operation not in self._free:
            inside: set[Value] = set()
            used: dict[Value, None] = {}
            followed = True
            for o in operation.walk():
                followed &= bool(o.regions) or _is_followed(o, _INSIDE)
                inside.update(o.results if o is not operation else ())
                inside.update(v for r in o.regions for v in r.arguments)
                used.update(dict.fromkeys(v for v in o.operands if not is_view(v)))
            free = tuple(v for v in used if v not in inside)
            self._free[operation] = free if followed else None
        return self._free[operation]


def _exact_float(operation: Operation, parts: tuple[object, ...]) -> str | None:
    """A sum, a difference, a product or the negative of known floats, written as a literal is,
    where f32 has it exactly: then it is that in every order of rounding."""
    dtype = operation.result.type
    if not isinstance(dtype, DType) or not dtype.is_float or dtype.bits < 32:
        return None
    numbers = [float(part) for part in parts if isinstance(part, str)]
    near = all(n == 0 or _LEAST <= abs(n) <= _LARGEST for n in numbers)
    if len(numbers) < len(parts) or not near:
        return None
    match operation.name:
        case "tile.add":
            result = numbers[0] + numbers[1]
        case "tile.sub":
            result = numbers[0] - numbers[1]
        case "tile.mul":
            result = numbers[0] * numbers[1]
        case "tile.neg":
            result = -numbers[0]
        case _:
            return None
    (rounded,) = struct.unpack("f", struct.pack("f", result))
    return repr(result) if rounded == result else None


_LEAST, _LARGEST = 2.0**-20, 2.0**24  # of what a double has the sum and the product exactly


def is_view(value: Value) -> bool:
    """Whether a value is an array or a buffer, not a number."""
    return not isinstance(value.type, DType)


def _is_followed(operation: Operation, effects: tuple[str, ...]) -> bool:
    if operation.name == "tile.load":
        return not isinstance(operation.operands[0].type, BufferType)
    return TILE_OPS[operation.name].effect in effects
