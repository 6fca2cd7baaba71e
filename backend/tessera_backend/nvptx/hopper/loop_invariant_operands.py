"""Asynchronous products in loops whose first operand is in registers, the same in every iteration.

What makes such an operand may stand in front of the loop or be moved there; ptxas 13.0 then loses
it, so that these products are emitted with copies. Must not know how.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import DEFINITIONS, LOOPS

_PRODUCT = "tile.mma.async"


def unchanging(kernel: Operation) -> frozenset[Operation]:
    """The products of a kernel of which that may be so."""
    found: set[Operation] = set()
    for region in kernel.regions:
        _visit(region, None, found)
    return frozenset(found)


def _visit(region: Region, changing: set[Value] | None, found: set[Operation]) -> None:
    """``changing``: what may differ from one iteration of the innermost loop to the next; None
    outside of loops."""
    if changing is not None:
        changing.update(region.arguments)
    for op in region.operations:
        for inner in op.regions:
            _visit(inner, set() if op.name in LOOPS else changing, found)
        if changing is None:
            continue
        if op.name == _PRODUCT and isinstance(op.operands[1].type, TileType):
            if op.operands[1] not in changing:
                found.add(op)
        if op.regions or not _stays(op) or not changing.isdisjoint(op.operands):
            changing.update(op.results)


def _stays(op: Operation) -> bool:
    """Whether equal operands give equal results, wherever it stands."""
    return DEFINITIONS[op.name].effect in ("none", "fault")
