"""Where the tile of a later iteration lies, computed without running that iteration.

Owns the walk over what says it. Must not know who copies the tile, or how far ahead.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, ViewType
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.opt.schedule.query.scalar_facts import Facts, axes_of
from tessera_lang.types.dtype import DType


def address_of(facts: Facts, loop: Operation, load: Operation) -> list[Operation] | None:
    """Operations of the loop's body that say where a load lies, if they can run for another
    iteration: scalars that depend on nothing that is carried."""
    region = loop.regions[0]
    own = set(region.operations)
    carried = set(region.arguments[axes_of(loop) :])
    found: list[Operation] = []
    waiting = list(load.operands)
    while waiting:
        value = waiting.pop()
        if value in carried:
            return None
        operation = facts.operation(value)
        if operation is None or operation in found or not _within(facts, operation, loop):
            continue
        if operation not in own or operation.regions:
            return None
        if not isinstance(value.type, DType | ViewType) or not _repeats(operation):
            return None
        found.append(operation)
        waiting.extend(operation.operands)
    return found


def _within(facts: Facts, operation: Operation, loop: Operation) -> bool:
    up = facts.parent(operation)
    while up is not None and up is not loop:
        up = facts.parent(up)
    return up is loop


def _repeats(operation: Operation) -> bool:
    definition = TILE_OPS.get(operation.name)
    return definition is not None and definition.effect in ("none", "fault")
