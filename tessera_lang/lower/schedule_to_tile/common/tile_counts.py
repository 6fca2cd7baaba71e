"""The number of tiles of a grid as a size of the launch plan.

Must not know how groups walk.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.opt.schedule.query.scalar_facts import axes_of
from tessera_lang.types.shape import Dim, dim_op


def tile_counts(grid: Operation, numbers: Numbers) -> tuple[Dim, ...]:
    """Tiles along each axis of a grid. Raises NotTiled where they are no sizes of the call."""
    axes = axes_of(grid)
    out: list[Dim] = []
    for axis in range(axes):
        lower, upper, step = (numbers.dim(grid.operands[axis + part * axes]) for part in range(3))
        if lower is None or upper is None or step is None:
            raise NotTiled("the number of tiles is not known at the launch", grid.span)
        span = dim_op("-", upper, lower)
        out.append(dim_op("max", dim_op("ceil_div", span, step), 0))
    return tuple(out)
