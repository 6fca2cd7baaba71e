"""Element-wise work on a result before it is stored: what of it can be done part by part.

A part of a tile is some of its columns. An operation belongs to the work where its part is made of
parts of its operands along one axis; what it reads of arrays is read part by part too. Must not
decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import is_pure
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.kernel_facts import LOAD, STORE, TRANSPOSE, Facts
from tessera_lang.opt.schedule.query.producer_lane_copies import is_written
from tessera_lang.record import dataclass

_EXPAND, _BROADCAST, _FULL = PREFIX + "expand", PREFIX + "broadcast", PREFIX + "full"
_CUT = 1
"""The axis of a stored tile along which it leaves in parts."""


@dataclass(frozen=True, slots=True, eq=False)
class EpilogueWork:
    """``operations`` in order, none where the tile comes from elsewhere or others read it;
    ``reads``: the loads among them; ``sources``: the tiles that the work begins with, each with the
    axis along which it is cut; ``region``: where all of it stands."""

    store: Operation
    operations: tuple[Operation, ...]
    reads: tuple[Operation, ...]
    sources: Mapping[Value, int]
    region: Region


def epilogue_work(store: Operation, facts: Facts) -> EpilogueWork:
    """The work before a store."""
    source, region = store.operands[0], _region_of(store, facts)
    users = facts.users[source]
    wanted, inside = {source: _CUT}, set(map(id, users))
    operations: list[Operation] = []
    here = any(source in o.results for o in region.operations)
    if not here or any(u.name != STORE for u in users):
        return EpilogueWork(store, (), (), wanted, region)
    before = region.operations[: next(i for i, o in enumerate(region.operations) if o is store)]
    for o in reversed(before):
        if len(o.results) != 1 or o.result not in wanted:
            continue
        operands = _operands(o, wanted[o.result], facts)
        used_outside = any(id(u) not in inside for u in facts.users.get(o.result, ()))
        if operands is None or used_outside:
            continue
        if any(wanted.get(v, a) != a for v, a in operands.items()):
            continue
        inside.add(id(o))
        operations.insert(0, o)
        wanted |= operands
    made = {o.result for o in operations}
    sources = {v: axis for v, axis in wanted.items() if v not in made}
    reads = tuple(o for o in operations if o.name == LOAD)
    return EpilogueWork(store, tuple(operations), reads, sources, region)


def _region_of(operation: Operation, facts: Facts) -> Region:
    regions = (r for o in (facts.kernel, *facts.kernel.walk()) for r in o.regions)
    return next(r for r in regions if any(x is operation for x in r.operations))


def _operands(o: Operation, axis: int, facts: Facts) -> dict[Value, int] | None:
    """The tiles of which an operation needs the same part, and along which axis; None where it is
    no function of such parts."""
    result = o.result.type
    if not isinstance(result, TileType) or o.regions:
        return None
    tiles = [v for v in o.operands if isinstance(v.type, TileType)]
    if o.name == LOAD:
        moved = o.attributes.get("stage") == "shared" or "ahead" in o.attributes
        return None if moved or is_written(o, facts) else {}
    if o.name == _FULL:
        return {}
    if o.name == _EXPAND:
        new = o.integer("axis")
        return {} if new == axis else {tiles[0]: axis - (new < axis)}
    if o.name == _BROADCAST:
        small = tiles[0].tile_type
        return {tiles[0]: axis} if small.sizes[axis] == result.sizes[axis] else {}
    if o.name == TRANSPOSE:
        return {tiles[0]: o.integers("permutation")[axis]}
    if o.name.startswith(PREFIX) or not is_pure(o):
        return None
    same = all(isinstance(v.type, TileType) and v.type.sizes == result.sizes for v in tiles)
    return dict.fromkeys(tiles, axis) if same else None
