"""What a product multiplies: tiles that are read from an array as they are, or computed ones.

Owns the walk from an operand back to its load. Must not know how either is moved.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import IN_PLACE, PERMUTES
from tessera_lang.opt.schedule.query.scalar_facts import (
    Facts,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass

LOAD, DOT = "tessera.schedule.load", "tessera.schedule.dot"
_PASSING = PERMUTES | IN_PLACE


@dataclass(frozen=True, slots=True)
class Operand:
    """``load``: what reads it, None where it is computed; ``swapped``: its two axes are those of
    the load in the other order; ``path``: what stands between, which moves no data."""

    value: Value
    load: Operation | None = None
    swapped: bool = False
    path: tuple[Operation, ...] = ()


def operand_of(facts: Facts, value: Value) -> Operand:
    """Where ``value`` comes from."""
    at, swapped, path = value, False, list[Operation]()
    while (operation := facts.operation(at)) is not None:
        if operation.name == LOAD:
            return Operand(value, operation, swapped, tuple(path))
        if operation.name not in _PASSING:
            break
        if operation.name == "tessera.schedule.transpose":
            if operation.integers("permutation") != (1, 0):
                break
            swapped = not swapped
        if operation.name == "tessera.schedule.mask" and not _does_nothing(facts, operation):
            break
        path.append(operation)
        at = operation.operands[0]
    return Operand(value)


def _does_nothing(facts: Facts, mask: Operation) -> bool:
    """Whether a mask puts zeros only where the load behind it gave zeros."""
    value, fill, *extents = mask.operands
    source = facts.operation(fill)
    if source is None or source.name != "tile.constant" or source.attributes["value"] != 0:
        return False
    behind = operand_of(facts, value)
    if behind.load is None:
        return False
    known = access_of(behind.load).extents
    if behind.swapped:
        known = tuple(reversed(known))
    capacity = value.tile_type.sizes
    return all(
        facts.same(have, wanted) or facts.is_full(wanted, size)
        for have, wanted, size in zip(known, extents, capacity, strict=True)
    )


def products_of(kernel: Operation) -> list[Operation]:
    return kernel.nested(DOT)


def needed_in_registers(facts: Facts, kernel: Operation, staged: set[Value]) -> set[Value]:
    """Of the values between staged loads and products, those that something else reads.

    ``staged``: operands of products that are read from buffers.
    """
    between: dict[Value, Operation] = {}
    for value in staged:
        operand = operand_of(facts, value)
        for operation in (*operand.path, *((operand.load,) if operand.load else ())):
            between[operation.result] = operation
    needed: set[Value] = set()
    waiting: list[Value] = []
    for value, _ in between.items():
        for user in facts.used_by(value):
            passes = bool(user.results) and user.results[0] in between
            if not passes and not _reads_buffer(user, value, staged):
                waiting.append(value)
    while waiting:
        value = waiting.pop()
        if value in needed:
            continue
        needed.add(value)
        operation = between[value]
        if operation.name != LOAD:
            waiting.append(operation.operands[0])
    return needed


def _reads_buffer(user: Operation, value: Value, staged: set[Value]) -> bool:
    return user.name == DOT and value in staged and value is not user.operands[2]
