"""Arrays of which every element belongs to one group, and in which its lanes do not meet.

What one group alone touches is like its shared memory: barriers order its lanes, and the walk of
all lanes of a group compares what lies between two of them. Must not know what is reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.lanes.lane_walk import GivesUp, walk_lanes
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.races.lane_owned_arrays import ownership
from tessera_lang.analysis.uniformity.barriers import check_barriers
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import WRITES


def owned_arrays(
    kernel: Operation, uniform: Uniformity, several: bool, grid: Sequence[object]
) -> set[Value]:
    """The pointers of arrays in which no two lanes of a launch meet, by ids or by barriers.
    ``several``: whether there may be more than one group; ``grid``: groups along each axis, where
    they are numbers."""
    found = ownership(kernel, several=several, grid=grid)
    views = {o.result: o.operands[0] for o in kernel.walk() if o.name == "tile.view"}
    stored = {
        p for o in kernel.walk() if o.name in BUFFER_AT and o.name in WRITES
        if (p := views.get(o.operands[BUFFER_AT[o.name]])) is not None
    }  # fmt: skip
    open_ = (found.by_groups - found.by_lanes) & stored
    if not open_ or check_barriers(kernel, uniform):
        return found.by_lanes
    arrays = {view: pointer for view, pointer in views.items() if pointer in open_}
    try:
        memory = walk_lanes(kernel, uniform, found.known, arrays=arrays)
    except GivesUp:
        return found.by_lanes
    meeting = {
        arrays.get(s.second.operation.operands[BUFFER_AT[s.second.operation.name]])
        for s in memory.suspicions
    }
    return found.by_lanes | (open_ - meeting)
