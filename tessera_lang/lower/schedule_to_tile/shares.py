"""A contraction whose turns are dealt out: every group gets as many, wherever tiles begin and end.

``dealt`` makes of the grid one of as many groups as run at once. Of the tiles, counted in the
order of the walk, first come those whose turns are dealt: one tile and a part of one for each
group, or all where they are fewer; a group takes the turns from its first to its last, tile after
tile, and a tile of several groups is combined by whoever comes last. Then each group has as many
whole tiles as the others. Every group has turns, so that who has a part of a tile is arithmetic,
and parts have numbers in the order of turns: that of the tile and that of the group, added.
Must not know when it is worth it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Operation, Program, Region, Value
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.lower.schedule_to_tile.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.line import Line
from tessera_lang.lower.schedule_to_tile.parting import Parting, Share
from tessera_lang.lower.schedule_to_tile.places import places
from tessera_lang.opt.schedule.facts import FOR
from tessera_lang.opt.schedule.sums import even_turns
from tessera_lang.record import dataclass, replace
from tessera_lang.target.plan import LaunchPlan
from tessera_lang.types.dtype import INDEX, U32
from tessera_lang.types.shape import Dim, dim_op


def dealt(
    parting: Parting, plan: LaunchPlan, tiles: Dim, groups: int
) -> tuple[Program, LaunchPlan]:
    """Raises NotTiled where tiles have turns of their own."""
    line = Line()
    bounds = even_turns(parting.facts, parting.loop)
    if bounds is None:
        raise NotTiled("how often its loop runs differs from tile to tile")
    line.operations += bounds.operations
    dealing = _dealing(line, parting, bounds.values, groups)
    share = Value(INDEX, "share")
    body = Region((share,), _group(parting, dealing, share))
    operands = (line.constant(0), line.constant(groups), line.constant(1))
    attributes: dict[str, Attribute] = {"axes": ("share",), "mapping": ("grid",)}
    grid = Operation(FOR, operands, (), attributes, (body,), parting.grid.span)
    most = dim_op("min", tiles, 2 * groups)
    program, plan = parting.whole(
        plan, [*line.operations, grid], most, dim_op("+", most, groups), "stream"
    )
    return _in_own_order(program), plan


def _in_own_order(program: Program) -> Program:
    """The order of tiles is that of the shares: the grid has one axis."""
    (kernel,) = program.operations
    kept = {n: v for n, v in kernel.attributes.items() if n not in ("group_rows", "order")}
    return replace(program, operations=(replace(kernel, attributes=kept),))


_MOST = 1 << 14
"""Steps of a tile: their number, times that of all tiles that are dealt and of groups, is below
2^32."""


@dataclass(frozen=True, slots=True, eq=False)
class _Dealing:
    """Numbers of the whole launch (u32): tiles along each axis; steps of a tile; whole tiles of
    each group; tiles whose steps are dealt, and to how many ``groups``; all these steps (``none``
    counts as one, to be divided by). A step is ``turns`` turns of the loop (an index)."""

    counts: Sequence[Value]
    turns: Value
    steps: Value
    whole: Value
    tiles: Value
    groups: Value
    total: Value
    divisor: Value
    size: Value


def _dealing(
    line: Line, parting: Parting, bounds: tuple[Value, Value, Value], groups: int
) -> _Dealing:
    """A tile without turns has one all the same, which does nothing: its result is written."""
    one, size = line.constant(1, U32), line.constant(groups, U32)
    counts = [line.cast(line.turns(*b), U32) for b in zip(*parting.grid_bounds(), strict=True)]
    turns = line.binary("max", line.turns(*bounds), line.constant(1))
    least = line.binary("floordiv", turns, line.constant(_MOST))
    each = line.binary("add", least, line.constant(1))
    up = line.binary("sub", line.binary("add", turns, each), line.constant(1))
    steps = line.cast(line.binary("floordiv", up, each), U32)
    tiles = counts[0]
    for count in counts[1:]:
        tiles = line.binary("mul", tiles, count)
    waves = line.binary("floordiv", tiles, size)
    whole = line.binary("sub", line.binary("max", waves, one), one)
    tiles = line.binary("sub", tiles, line.binary("mul", whole, size))
    total = line.binary("mul", tiles, steps)
    most = line.binary("max", line.binary("min", size, total), one)
    divisor = line.binary("max", total, one)
    return _Dealing(counts, each, steps, whole, tiles, most, total, divisor, size)


def _group(parting: Parting, d: _Dealing, share: Value) -> tuple[Operation, ...]:
    """What one group does: a loop over its tiles."""
    line = Line()
    one = line.constant(1, U32)
    number = line.cast(share, U32)
    begin, end = (
        line.binary("floordiv", line.binary("mul", line.binary("min", n, d.groups), d.total),
                    d.groups)
        for n in (number, line.binary("add", number, one))
    )  # fmt: skip
    first = line.binary("floordiv", begin, d.steps)
    last = line.binary(
        "floordiv", line.binary("sub", line.binary("add", end, d.steps), one), d.steps
    )
    dealt = line.binary("sub", last, first)
    item = Value(INDEX, "item")
    body = Region((item,), _item(parting, d, _Own(number, begin, end, first, dealt), item))
    attributes: dict[str, Attribute] = {
        "axes": ("item",), "mapping": ("loop",), "independent": ("item",),
    }  # fmt: skip
    upper = line.cast(line.binary("add", dealt, d.whole), INDEX)
    operands = (line.constant(0), upper, line.constant(1))
    line.operations.append(Operation(FOR, operands, (), attributes, (body,), parting.grid.span))
    line.operations.append(Operation("tile.yield", span=parting.grid.span))
    return tuple(line.operations)


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """Of a group: its number, the steps it gets, and the first and the number of its tiles among
    those that are dealt."""

    number: Value
    begin: Value
    end: Value
    first: Value
    tiles: Value


def _item(parting: Parting, d: _Dealing, own: _Own, item: Value) -> tuple[Operation, ...]:
    """One tile of a group: its steps from ``begin`` to ``end``, or a whole one behind those."""
    line = Line()
    place = line.cast(item, U32)
    zero, one = line.constant(0, U32), line.constant(1, U32)
    is_dealt = line.less(place, own.tiles)
    behind = line.binary("mul", line.binary("sub", place, own.tiles), d.size)
    behind = line.binary("add", d.tiles, line.binary("add", behind, own.number))
    tile = line.select(is_dealt, line.binary("add", own.first, place), behind)
    start = line.binary("mul", tile, d.steps)
    stop = line.binary("add", start, d.steps)
    low = line.binary("sub", line.binary("max", own.begin, start), start)
    high = line.binary("sub", line.binary("min", own.end, stop), start)
    owner = _owner(line, d, start)
    until = _owner(line, d, line.binary("sub", stop, one))
    count = line.binary("add", line.binary("sub", until, owner), one)
    begin, end = line.select(is_dealt, low, zero), line.select(is_dealt, high, d.steps)
    part = line.select(is_dealt, line.binary("sub", own.number, owner), zero)
    share = Share(
        *(line.binary("mul", line.cast(n, INDEX), d.turns) for n in (begin, end)),
        *(line.cast(n, INDEX) for n in (
            tile, line.binary("add", tile, owner), part, line.select(is_dealt, count, one),
        )),
    )  # fmt: skip
    variables = _variables(line, parting, d, tile)
    operations = parting.tile(Line(), share)
    (region,) = parting.grid.regions
    bound = dict(zip(region.arguments, variables, strict=True))
    return (*line.operations, *replace_values(operations, bound))


def _owner(line: Line, d: _Dealing, step: Value) -> Value:
    """The group whose share has a step: the last whose share begins no later."""
    one = line.constant(1, U32)
    reached = line.binary("mul", line.binary("add", step, one), d.groups)
    return line.binary("floordiv", line.binary("sub", reached, one), d.divisor)


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
