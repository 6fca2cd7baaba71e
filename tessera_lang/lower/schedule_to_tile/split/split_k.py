"""A contraction in parts: one more axis of the grid, and sums that are combined behind it.

``in_parts`` makes of a kernel with ``split`` one whose grid has an axis of parts in front; with
``stream`` besides only tiles that make no wave have parts (``shares``). Must not know when it is
worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Program, Region, Value
from tessera_lang.lower.schedule_to_lanes.def_use import Source
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured, NotTiled
from tessera_lang.lower.schedule_to_tile.common.schedule_ir_builder import Line
from tessera_lang.lower.schedule_to_tile.common.tile_counts import tile_counts
from tessera_lang.lower.schedule_to_tile.split.split_common import Parting, Share
from tessera_lang.lower.schedule_to_tile.split.stream_k import dealt
from tessera_lang.opt.schedule.cost.split_k_cost import parts_of, stream_of
from tessera_lang.opt.schedule.query.kernel_facts import facts_of
from tessera_lang.opt.schedule.query.splittable_reductions import sums_of
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.shape import Dim, dim_op


def in_parts(program: Program, plan: LaunchPlan) -> tuple[Program, LaunchPlan]:
    """Itself where nothing is to be split. Raises NotHonoured where it cannot be."""
    (kernel,) = program.operations
    parts, groups = parts_of(kernel), stream_of(kernel)
    if parts < 2:
        return program, plan
    facts = facts_of(kernel)
    found = sums_of(facts)
    try:
        if found.loop is None or facts.grid is None:
            raise NotTiled(found.reason)
        counts = tile_counts(facts.grid, Numbers(Source(kernel), plan))
    except NotTiled as reason:
        raise NotHonoured("split", reason.reason, reason.span) from None
    tiles: Dim = 1
    for count in counts:
        tiles = dim_op("*", tiles, count)
    parting = Parting(facts, facts.grid, found.loop)
    if groups:
        return dealt(parting, plan, tiles, parts, groups)
    made = _grid(parting, parts)
    return parting.whole(plan, made, tiles, dim_op("*", tiles, parts))


def _grid(parting: Parting, parts: int) -> list[Operation]:
    line, grid = Line(), parting.grid
    bounds = parting.grid_bounds()
    first = (line.constant(0), line.constant(parts), line.constant(1))
    operands = tuple(v for n, b in zip(first, bounds, strict=True) for v in (n, *b))
    attributes: dict[str, Attribute] = {
        **grid.attributes,
        "axes": ("part", *grid.strings("axes")),
        "mapping": ("grid", *grid.strings("mapping")),
    }
    (region,) = grid.regions
    part, inside = Value(INDEX, "part"), Line()
    place = _place(inside, region, bounds)
    count = inside.constant(parts)
    iterations = inside.iterations(*parting.bounds)
    begin, end = (
        inside.binary("floordiv", inside.binary("mul", iterations, number), count)
        for number in (part, inside.binary("add", part, inside.constant(1)))
    )
    first = inside.binary("mul", place, count)
    share = Share(begin, end, place, first, part, count)
    body = Region((part, *region.arguments), parting.tile(inside, share))
    made = replace(grid, operands=operands, attributes=attributes, regions=(body,))
    return [*line.operations, made]


def _place(line: Line, region: Region, bounds: Sequence[Sequence[Value]]) -> Value:
    """The number of a tile: the last axis of the grid fastest."""
    place = line.constant(0)
    for variable, lower, upper, step in zip(region.arguments, *bounds, strict=True):
        number = line.binary("floordiv", line.binary("sub", variable, lower), step)
        place = line.binary("mul", place, line.iterations(lower, upper, step))
        place = line.binary("add", place, number)
    return place
