"""Warp groups that take turns at issuing products must not meet while one has its turn.

A warp group waits for its turn, issues the products of an iteration, and passes the turn on. An
operation at which all warps of the role meet, between the two, would wait for a group that waits
for its turn: nobody would go on. Owns that check. Must not know why products are ordered.
"""

from __future__ import annotations

from tessera_lang.ir.core import BufferType, Operation, Region
from tessera_lang.ir.definitions import BARRIERS
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured

_REASON = "all warps exchange a tile between the products of an iteration"


def check_turns(role: Region) -> None:
    """Raises NotHonoured where all warps of a role meet while one group has its turn."""
    _walk(role, has_turn=False)


def _walk(region: Region, has_turn: bool) -> bool:
    """Whether a group has its turn behind a region, given whether it has before it."""
    for operation in region.operations:
        if operation.name == "tile.ordered_barrier":
            has_turn = operation.attributes["step"] == "wait"
        elif has_turn and _all_meet(operation):
            raise NotHonoured("pingpong", _REASON, operation.span)
        behind = [_walk(inner, has_turn) for inner in operation.regions]
        has_turn = has_turn or any(behind)
    return has_turn


def _all_meet(operation: Operation) -> bool:
    """Whether an operation holds a barrier of all warps of its role: those that go through shared
    memory, and barriers themselves."""
    if operation.name == "tile.named_barrier":
        return operation.attributes.get("each", "role") == "role"
    through_memory = any(isinstance(v.type, BufferType) for v in operation.operands)
    return operation.name in BARRIERS and (through_memory or not operation.results)
