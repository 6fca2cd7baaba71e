"""In what ways the result of a kernel with roles can leave: asynchronously, by lines, by tiles.

A store that leaves in parts goes through two small buffers: by TMA where a tensor map can show the
array, else lanes write lines. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation
from tessera_lang.opt.schedule.query.array_dependence import MemoryAccess, Nest, accesses_in
from tessera_lang.opt.schedule.query.copy_rules import contiguous_axis, tma_reason
from tessera_lang.opt.schedule.query.def_use import arrays_of
from tessera_lang.opt.schedule.query.kernel_facts import FOR, LOAD, LOOPS, STORE, Facts, is_grid
from tessera_lang.opt.schedule.query.staging_rings import subtile_columns
from tessera_lang.opt.schedule.query.tile_access import (
    TileAccess,
    access_of,
)
from tessera_lang.target.arch.isa_constants import UNIT_ROWS, WARP


def way_of_store(store: Operation, inside: Sequence[Operation], facts: Facts) -> str:
    """``tma``, ``lines``, or ``tile``: lanes write the tile as they hold it."""
    if _can_leave(store, inside, facts):
        return "tma"
    return "lines" if _in_lines(store, facts) else "tile"


def _can_leave(store: Operation, inside: Sequence[Operation], facts: Facts) -> bool:
    """Whether a store may be asynchronous: it is done once a tile, and is the last to touch its
    array; or it was found to be before loops were taken apart."""
    if store.attributes.get("apart"):
        return store.attributes.get("leaves") == "tma"
    if store.name != STORE or any(o.name in LOOPS and not _is_apart(o) for o in inside):
        return False
    access = access_of(store)
    if not _is_matrix(access):
        return False
    if not _is_last(store, access, facts):
        return False
    return not tma_reason(access, facts, "")


def _is_apart(loop: Operation) -> bool:
    """Whether no iteration of a loop touches what another writes."""
    promised = loop.attributes.get("independent", ())
    return is_grid(loop) or (bool(promised) and promised == loop.attributes.get("axes"))


def _in_lines(store: Operation, facts: Facts) -> bool:
    """Whether lanes write lines: the rows of the tile are those of the array, next to each
    other, and no tensor map shows them."""
    access = access_of(store)
    tile, width = access.tile, subtile_columns(access.tile)
    if store.name != STORE or len(tile.shape) != 2 or width == 0 or width % WARP:
        return False
    if tile.sizes[0] % UNIT_ROWS or contiguous_axis(access, facts) != 1:
        return False
    return bool(tma_reason(access, facts, ""))


def _is_last(store: Operation, access: TileAccess, facts: Facts) -> bool:
    """Whether nothing of an iteration touches the array of a store behind it: other iterations
    are independent, so what is under way then meets nobody."""
    array = facts.definitions[access.view].operands[0]
    views = {v for v, d in facts.definitions.items()
             if d.name == "tile.view" and d.operands[0] is array}  # fmt: skip
    users = [o for o in facts.kernel.walk() if any(v in views for v in o.operands)]
    return users[-1] is store and all(o.name == LOAD for o in users[:-1])


def stores_apart(facts: Facts) -> dict[Operation, dict[str, Attribute]]:
    """Stores in loops of an iteration of the grid that never meet: no two runs of one touch one
    element, and nothing else of the kernel touches its array. They may be asynchronous."""
    arrays = arrays_of(facts.kernel)
    accesses = accesses_in(facts.kernel, arrays)
    found: dict[Operation, dict[str, Attribute]] = {}
    for store, inside in facts.stores:
        loops = [o for o in inside if o.name in LOOPS and not _is_apart(o)]
        own = [a for a in accesses if a.array is arrays.get(access_of(store).view)]
        if store.name != STORE or not loops or len(own) != 1:
            continue
        if all(_moves_on(loop, own[0], facts) for loop in loops):
            by_tma = _is_matrix(access_of(store)) and not tma_reason(access_of(store), facts, "")
            found[store] = {"apart": True, **({"leaves": "tma"} if by_tma else {})}
    return found


def _is_matrix(access: TileAccess) -> bool:
    """Whether a tile leaves in columns."""
    return len(access.tile.shape) == 2 and bool(subtile_columns(access.tile))


def _moves_on(loop: Operation, access: MemoryAccess, facts: Facts) -> bool:
    """Whether an access touches other elements in every iteration of a loop."""
    if loop.name != FOR:
        return False
    nest = Nest(loop, facts.definitions)
    return all(nest.disjoint(i, access, access) for i in range(len(loop.strings("axes"))))
