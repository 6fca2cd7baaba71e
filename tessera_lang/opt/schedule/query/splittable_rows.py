"""Rows whose parts can be worked on apart: one axis, and every operation on it is local.

Must not know how many parts there are, nor a machine.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, TileType
from tessera_lang.ir.definitions import COPIES, GENERATES, REPORTS, WRITES
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.kernel_facts import Facts

_REDUCE, _MASK = PREFIX + "reduce", PREFIX + "mask"
_SHARED_KINDS = ("add", "mul", "max", "min")


def local_row(facts: Facts, grid: Operation) -> int | None:
    """The size of the one axis that all tiles have, where every operation on them can be done
    part by part; None where that is not so."""
    values = [v for o in facts.kernel.walk() for v in o.results]
    sizes = {v.type.shape for v in values if isinstance(v.type, TileType)}
    if len(sizes) != 1:
        return None
    (shape,) = sizes
    top = facts.kernel.regions[0].operations
    body = grid.regions[0].operations
    if len(shape) != 1 or any(o.regions for o in top if o is not grid):
        return None
    if any(has_tile(o) for o in top) or not all(map(_is_local, body)):
        return None
    return int(shape[0])


def has_tile(operation: Operation) -> bool:
    """Whether a tile goes in or comes out of an operation."""
    return any(isinstance(v.type, TileType) for v in (*operation.operands, *operation.results))


def _is_local(operation: Operation) -> bool:
    """Whether an operation does the same to a part of a row as to the whole. A condition or loop
    does where it computes numbers alone, which are the same for all parts."""
    inside = [x for region in operation.regions for o in region.operations for x in o.walk()]
    if inside:
        local = all(_is_local(x) for x in inside if not x.regions)
        return local and not any(map(has_tile, (operation, *inside)))
    if operation.name == _REDUCE:
        t = operation.result.type
        kind = operation.attributes["kind"] in _SHARED_KINDS
        return kind and not isinstance(t, TileType) and getattr(t, "bits", 0) >= 32
    if operation.name in COPIES:
        return True
    if operation.name in WRITES | REPORTS:
        return False
    if operation.name.startswith(PREFIX):
        return operation.name in GENERATES or operation.name == _MASK
    return True
