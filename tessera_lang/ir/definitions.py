"""Every operation of both tables, and the sets of them that passes ask for.

A pass asks for a trait or an effect, so that an operation that is added to a table is known
everywhere. Owns the sets. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation
from tessera_lang.ir.schedule.ops import SCHEDULE_OPS
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.table import Effect, OpDef, Trait

DEFINITIONS: Mapping[str, OpDef] = {**SCHEDULE_OPS, **TILE_OPS}


def with_trait(trait: Trait) -> frozenset[str]:
    """The names of the operations that have a trait."""
    return frozenset(name for name, one in DEFINITIONS.items() if trait in one.traits)


def with_effect(*effects: Effect) -> frozenset[str]:
    """The names of the operations that have one of these effects."""
    return frozenset(name for name, one in DEFINITIONS.items() if one.effect in effects)


LOOPS = with_trait("loop")
"""Loops of both levels; see ``carried_from``."""
LANE_IDS = with_trait("lane id")
GROUP_IDS = with_trait("group id")
ALLOCATIONS = with_trait("allocation")
COMMUTATIVE = with_trait("commutative")
ELEMENT_WISE = with_trait("element-wise")
"""Operations on scalars that tiles have too, element by element."""
BARRIERS = with_trait("barrier")
"""Operations that begin with a barrier of the whole group."""

LEAVES = with_trait("leaves")
"""Exits that leave a construct before its end; ``tile.yield`` and ``tile.condition`` end it."""

WRITES = with_effect("write", "update") - ALLOCATIONS
"""Operations that write memory."""
READS = with_effect("read", "update")
"""Operations that read memory."""
REPORTS = frozenset(("tile.assert", "tile.print"))
"""Operations whose effect a user sees, beside memory."""


def effect_of(operation: Operation) -> Effect:
    """What an operation does beside giving its results."""
    return DEFINITIONS[operation.name].effect


def carried_from(operation: Operation) -> int:
    """How many operands of a loop stand in front of the values that it carries."""
    return len(operation.operands) - len(operation.results)
