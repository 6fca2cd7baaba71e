"""How far the lines of a tile in shared memory are swizzled, so that neither copies nor matrix
loads wait for banks.

With roles the copy engine swizzles, and products read it so; without them lanes copy lines and
read fragments. Must not decide anything.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation
from tessera_lang.opt.schedule.query.copy_rules import contiguous_axis, shared_layout
from tessera_lang.opt.schedule.query.kernel_facts import Facts, Load
from tessera_lang.opt.schedule.query.producer_lane_copies import is_by_lanes, lanes_layout
from tessera_lang.opt.schedule.query.scalar_facts import Facts as ScalarFacts
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.arch.isa_constants import SWIZZLES, VECTOR_BYTES


def widest_swizzle(line: int, most: int | None = None) -> int:
    """Bytes of the widest swizzle that a line of so many bytes has room for, 0 for none; at most
    ``most``."""
    fitting = (w for w in SWIZZLES if line % w == 0 and (most is None or w <= most))
    return next(fitting, 0)


def flow_swizzle(load: Operation, facts: ScalarFacts) -> int | None:
    """The swizzle of a tile that lanes copy and read in fragments: none where lines are padded;
    None where the tile is no matrix."""
    t = load.result.tile_type
    if len(t.shape) != 2:
        return None
    axis = facts.tile_unit_axis(access_of(load))
    line = t.sizes[1 if axis is None else axis] * t.dtype.bytes
    padding, said = (facts.kernel.attributes.get(n) for n in ("padding", "swizzle"))
    padded = isinstance(padding, int) and padding * t.dtype.bytes % VECTOR_BYTES == 0
    if padding and padded and line % VECTOR_BYTES == 0:
        return 0
    most = said if isinstance(said, int) and not isinstance(said, bool) else None
    return widest_swizzle(line, most)


def role_swizzle(read: Load, facts: Facts) -> int | None:
    """The same of a tile in a ring between two roles."""
    if is_by_lanes(read):
        layout = lanes_layout(read, facts)
    else:
        layout = shared_layout(read.tile, contiguous_axis(access_of(read.operation), facts))
    return layout.swizzle if layout is not None else None
