"""Every operation of both tables, and the sets of them that passes ask for.

A pass asks for a trait or an effect, so that an operation that is added to a table is known
everywhere. Owns the sets. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation
from tessera_lang.ir.schedule.ops import SCHEDULE_OPS
from tessera_lang.ir.tile.op_definition import Effect, OpDef, Trait
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.types.dtype import DType

DEFINITIONS: Mapping[str, OpDef] = {**SCHEDULE_OPS, **TILE_OPS}


def with_trait(trait: Trait) -> frozenset[str]:
    """The names of the operations that have a trait."""
    return frozenset(name for name, one in DEFINITIONS.items() if trait in one.traits)


def with_effect(*effects: Effect) -> frozenset[str]:
    """The names of the operations that have one of these effects."""
    return frozenset(name for name, one in DEFINITIONS.items() if one.effect in effects)


LOOPS = with_trait("loop")
"""Loops of both levels; see ``carried_from``."""
COUNTED_LOOPS = LOOPS - {"tile.while"}
"""Those whose number of iterations is known before."""
LANE_IDS = with_trait("lane id")
GROUP_IDS = with_trait("group id")
ALLOCATIONS = with_trait("allocation")
COMMUTATIVE = with_trait("commutative")
ELEMENT_WISE = with_trait("element-wise")
"""Operations on scalars that tiles have too, element by element."""
BARRIERS = with_trait("barrier")
"""Operations that begin with a barrier of the whole group."""

EXITS = with_effect("exit")
"""Terminators."""
LEAVES = with_trait("leaves")
"""Exits that leave a construct before its end."""
LOOP_EXITS = with_trait("loop exit")
"""``break`` and ``continue``."""
OUTER_EXITS = LEAVES - LOOP_EXITS
"""Exits of a scope and of the kernel, which leave all loops in it."""
ENDS = EXITS - LEAVES
"""Exits at the end of a construct: ``tile.yield`` and ``tile.condition``."""
BLOCKS = with_trait("block")
"""Control flow that runs a region at most once."""

WRITES = with_effect("write", "update") - ALLOCATIONS
"""Operations that write memory."""
READS = with_effect("read", "update")
"""Operations that read memory."""
REPORTS = frozenset(("tile.assert", "tile.print"))
"""Operations whose effect a user sees, beside memory."""
BUFFERS = with_trait("buffer")
SHARED_ALLOCATIONS = with_trait("shared memory")
ELEMENT_ACCESSES = with_trait("element access")
ATOMICS = with_trait("atomic")
LANE_COPIES = with_trait("lane copy")
PER_LANE = with_trait("per lane")
"""What the lanes of a warp make together, and each has its own of."""
TILE_LOADS = with_trait("tile load")
"""Of Tile IR: memory into registers."""
DIVISIONS = with_effect("fault") & ELEMENT_WISE
"""What reports a divisor of 0, unless ``site`` is -1."""

# --- tiles as values: Schedule IR ---------------------------------------------------------------

ARRAY_READS = frozenset(n for n in READS - WRITES if n in SCHEDULE_OPS)
"""A part of an array as a tile: ``load``, ``gather``."""
ARRAY_WRITES = frozenset(n for n in WRITES if n in SCHEDULE_OPS and not SCHEDULE_OPS[n].regions)
"""A tile into an array: ``store``, ``scatter``, ``accumulate``."""
BOXES = with_trait("box")
"""Those on a part of an array with fixed steps: ``load``, ``store``, ``accumulate``."""
INDEXED = (ARRAY_READS | ARRAY_WRITES) - BOXES
"""Those that read from a tile where each element lies: ``gather``, ``scatter``."""
COPIES = BOXES - with_effect("update")
"""``load`` and ``store``: what moves a part of an array as it is."""
MOVES = with_trait("moves")
"""Every element of the result is one of the operand."""
PERMUTES = with_trait("permutes")
"""... and each is there once."""
IN_PLACE = with_trait("in place")
"""An element of the result is made of that at the same place."""
GENERATES = with_trait("generates")
"""Tiles made of no tile and of no memory."""
CONTRACTS = with_trait("contracts")
"""Sums and the like along an axis that the result has not."""
MIXES = with_trait("mixes")
"""An element of the result may be made of any of the operand."""
BOUNDED = with_trait("bounded")
"""What treats elements beyond an extent apart."""


def is_pure(operation: Operation) -> bool:
    """Whether an operation only computes: an unused one may go, and equal ones be merged."""
    if operation.name in DIVISIONS:
        return operation.attributes.get("site") == -1
    return DEFINITIONS[operation.name].pure


def is_number(operation: Operation) -> bool:
    """Whether an operation does nothing but compute numbers."""
    return is_pure(operation) and all(isinstance(v.type, DType) for v in operation.results)


def effect_of(operation: Operation) -> Effect:
    """What an operation does beside giving its results."""
    return DEFINITIONS[operation.name].effect


def carried_from(operation: Operation) -> int:
    """How many operands of a loop stand in front of the values that it carries."""
    return len(operation.operands) - len(operation.results)
