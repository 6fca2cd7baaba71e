"""How wide the asynchronous copies of lanes may be, so that a tile needs no registers on its way.

Must not decide that they do.
"""

from __future__ import annotations

from tessera_lang.analysis.resources.register_layouts import gathered, vector_width
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.opt.schedule.query.kernel_facts import GATHER, Load
from tessera_lang.opt.schedule.query.scalar_facts import Facts, is_tile
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.arch.isa_constants import COPY_BYTES
from tessera_lang.target.machine import Machine


def piece_bytes(
    read: Load, layout: SharedLayout, facts: Facts, machine: Machine, warps: int
) -> int:
    """Bytes of the pieces in which lanes of ``warps`` warps copy a tile to a buffer of this layout;
    0 where it goes through registers."""
    access = access_of(read.operation)
    rank, unit = len(access.dims), facts.tile_unit_axis(access)
    if not machine.has("cp_async") or rank != 2 or unit is None or unit != layout.major:
        return 0
    vector = facts.vector_bytes(access)
    if read.operation.name != GATHER:
        return vector if vector >= COPY_BYTES else 0
    rows = [access.dims.index(d) for d, v in enumerate(access.starts) if is_tile(v)]
    if vector < COPY_BYTES or len(rows) != 1 or not facts.is_whole(access, vector):
        return 0
    width = vector // read.tile.dtype.bytes
    held, _ = gathered(read.tile.sizes, width, warps, rows[0])
    return vector if vector_width(held, unit, 2, width) == width else 0
