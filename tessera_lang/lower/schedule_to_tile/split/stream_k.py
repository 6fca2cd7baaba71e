"""Stream-K: persistent thread blocks get whole tiles, and parts of those in the partial wave.

``dealt`` makes of the grid one of as many groups as run at once. Each has as many whole tiles as
the others; the tiles that are left, counted in the order of the walk, are computed in parts, which
are dealt out: the first parts of all, then the second ones. So groups that read the same lines
read them at the same time, which the cache joins, and groups next to each other have tiles next to
each other. Must not know when it is worth it, or in how many parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Program, Region, Value
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.schedule_ir_builder import Line
from tessera_lang.lower.schedule_to_tile.common.tile_order import places
from tessera_lang.lower.schedule_to_tile.split.split_common import Parting, Share
from tessera_lang.opt.schedule.query.kernel_facts import FOR
from tessera_lang.opt.schedule.query.splittable_reductions import Bounds, even_iterations
from tessera_lang.record import dataclass, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import INDEX, U32
from tessera_lang.types.shape import Dim, dim_op


def dealt(
    parting: Parting, plan: LaunchPlan, tiles: Dim, parts: int, groups: int
) -> tuple[Program, LaunchPlan]:
    """Raises NotTiled where tiles have iterations of their own."""
    bounds = even_iterations(parting.facts, parting.loop)
    if bounds is None:
        raise NotTiled("how often its loop runs differs from tile to tile")
    line = Line()
    dealing = _dealing(line, parting, bounds, parts, groups)
    group = Value(INDEX, "group")
    body = Region((group,), _group(parting, dealing, group))
    operands = (line.constant(0), line.constant(groups), line.constant(1))
    attributes: dict[str, Attribute] = {"axes": ("group",), "mapping": ("grid",)}
    grid = Operation(FOR, operands, (), attributes, (body,), parting.grid.span)
    left = dim_op("min", tiles, groups)
    program, plan = parting.whole(plan, [*line.operations, grid], left, dim_op("*", left, parts))
    return _in_own_order(program), plan


def _in_own_order(program: Program) -> Program:
    """The order of tiles is that of what a group does: the grid has one axis."""
    (kernel,) = program.operations
    kept = {n: v for n, v in kernel.attributes.items() if n not in ("group_rows", "order")}
    return replace(program, operations=(replace(kernel, attributes=kept),))


@dataclass(frozen=True, slots=True, eq=False)
class _Dealing:
    """Numbers of the whole launch: ``iterations`` of a tile (an index), and (u32) tiles along each
    axis, the ``groups`` there are, how many ``whole`` tiles each has, and the tiles that are
    ``left``, each in ``parts``."""

    iterations: Value
    counts: Sequence[Value]
    groups: Value
    whole: Value
    left: Value
    parts: Value


def _dealing(line: Line, parting: Parting, bounds: Bounds, parts: int, groups: int) -> _Dealing:
    line.operations += bounds.operations
    counts = [line.cast(line.iterations(*b), U32) for b in zip(*parting.grid_bounds(), strict=True)]
    size, tiles = line.constant(groups, U32), counts[0]
    for count in counts[1:]:
        tiles = line.binary("mul", tiles, count)
    whole = line.binary("floordiv", tiles, size)
    left = line.binary("sub", tiles, line.binary("mul", whole, size))
    iterations = line.iterations(*bounds.values)
    return _Dealing(iterations, counts, size, whole, left, line.constant(parts, U32))


def _group(parting: Parting, d: _Dealing, group: Value) -> tuple[Operation, ...]:
    """What one group does: a loop over whole tiles, then over parts."""
    line = Line()
    number, one = line.cast(group, U32), line.constant(1, U32)
    behind = line.binary("sub", line.binary("sub", d.groups, one), number)
    dealt = line.binary("mul", d.left, d.parts)
    mine = line.binary("floordiv", line.binary("add", dealt, behind), d.groups)
    upper = line.cast(line.binary("add", d.whole, mine), INDEX)
    item = Value(INDEX, "item")
    body = Region((item,), _item(parting, d, number, item))
    attributes: dict[str, Attribute] = {
        "axes": ("item",), "mapping": ("loop",), "independent": ("item",),
    }  # fmt: skip
    operands = (line.constant(0), upper, line.constant(1))
    line.operations.append(Operation(FOR, operands, (), attributes, (body,), parting.grid.span))
    line.operations.append(Operation("tile.yield", span=parting.grid.span))
    return tuple(line.operations)


def _item(parting: Parting, d: _Dealing, group: Value, item: Value) -> tuple[Operation, ...]:
    """One tile of a group, or a part of one."""
    line = Line()
    place = line.cast(item, U32)
    zero, one = line.constant(0, U32), line.constant(1, U32)
    is_whole = line.less(place, d.whole)
    number = line.binary("sub", place, d.whole)
    number = line.binary("add", line.binary("mul", number, d.groups), group)
    part = line.binary("floordiv", number, line.binary("max", d.left, one))
    left = line.binary("sub", number, line.binary("mul", part, d.left))
    part, count = line.select(is_whole, zero, part), line.select(is_whole, one, d.parts)
    before = line.binary("mul", line.select(is_whole, place, d.whole), d.groups)
    tile = line.binary("add", before, line.select(is_whole, group, left))
    wide = line.cast(count, INDEX)
    begin, end = (
        line.binary("floordiv", line.binary("mul", line.cast(n, INDEX), d.iterations), wide)
        for n in (part, line.binary("add", part, one))
    )
    first = line.cast(line.binary("mul", left, d.parts), INDEX)
    share = Share(begin, end, line.cast(left, INDEX), first, line.cast(part, INDEX), wide)
    variables = _variables(line, parting, d, tile)
    operations = parting.tile(Line(), share)
    (region,) = parting.grid.regions
    bound = dict(zip(region.arguments, variables, strict=True))
    return (*line.operations, *replace_values(operations, bound))


def _variables(line: Line, parting: Parting, d: _Dealing, tile: Value) -> list[Value]:
    """The variables of the grid for the tile with this number."""
    rows = parting.facts.kernel.attributes.get("group_rows", 1)
    height = line.constant(rows, U32) if isinstance(rows, int) and rows > 1 else None
    lowers, _, steps = parting.grid_bounds()
    return [
        line.binary("add", lower, line.binary("mul", line.cast(number, INDEX), step))
        for lower, step, number in zip(
            lowers, steps, places(line, tile, d.counts, height), strict=True
        )
    ]
