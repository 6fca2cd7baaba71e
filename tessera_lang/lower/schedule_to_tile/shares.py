"""A contraction whose turns are dealt out: every group gets as many, wherever tiles begin and end.

``dealt`` makes of the grid one of as many groups as run at once. Each has as many whole tiles as
the others; the turns of the tiles that are left, counted in the order of the walk, are dealt: a
share is turns in a row, tile after tile, and a tile of several shares is combined by whoever comes
last. Where two or more groups are there for each of these tiles, each has as many parts as the
others: groups that read the same lines then read them at the same time, for which the cache is
made, and those next to each other have tiles next to each other. Every share has turns, so that who
has a part of a tile is arithmetic, and parts have numbers in the order of turns: that of the tile
and that of the share, added. Must not know when it is worth it.
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
    group = Value(INDEX, "group")
    body = Region((group,), _group(parting, dealing, group))
    operands = (line.constant(0), line.constant(groups), line.constant(1))
    attributes: dict[str, Attribute] = {"axes": ("group",), "mapping": ("grid",)}
    grid = Operation(FOR, operands, (), attributes, (body,), parting.grid.span)
    most = dim_op("min", tiles, groups)
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
    """Numbers of the whole launch (u32): tiles along each axis; steps of a tile, each ``turns``
    turns of the loop (an index); the ``groups`` there are, and how many ``whole`` tiles each has;
    behind these, ``tiles`` whose steps are dealt, ``total`` of them, in ``shares``: ``parts`` of
    each tile where that is more than one."""

    counts: Sequence[Value]
    turns: Value
    steps: Value
    groups: Value
    whole: Value
    tiles: Value
    total: Value
    shares: Value
    parts: Value


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
    whole = line.binary("floordiv", tiles, size)
    left = line.binary("sub", tiles, line.binary("mul", whole, size))
    total = line.binary("mul", left, steps)
    parts = line.binary("floordiv", size, line.binary("max", left, one))
    parts = line.binary("min", parts, steps)
    several = line.less(one, parts)
    shares = line.select(several, line.binary("mul", parts, left), line.binary("min", size, total))
    return _Dealing(counts, each, steps, size, whole, left, total, shares, parts)


def _group(parting: Parting, d: _Dealing, group: Value) -> tuple[Operation, ...]:
    """What one group does: a loop over its tiles."""
    line = Line()
    zero, one = line.constant(0, U32), line.constant(1, U32)
    number = line.cast(group, U32)
    share = _share(line, d, number)
    none = line.less(number, d.shares)
    divisor = line.binary("max", d.shares, one)
    begin, end = (
        line.binary("floordiv", line.binary("mul", n, d.total), divisor)
        for n in (share, line.binary("add", share, one))
    )  # fmt: skip
    first = line.binary("floordiv", begin, d.steps)
    last = line.binary("floordiv", line.binary("sub", end, one), d.steps)
    tiles = line.binary("add", line.binary("sub", last, first), one)
    tiles = line.select(none, tiles, zero)
    item = Value(INDEX, "item")
    own = _Own(number, share, begin, end, first)
    body = Region((item,), _item(parting, d, own, item))
    attributes: dict[str, Attribute] = {
        "axes": ("item",), "mapping": ("loop",), "independent": ("item",),
    }  # fmt: skip
    upper = line.cast(line.binary("add", d.whole, tiles), INDEX)
    operands = (line.constant(0), upper, line.constant(1))
    line.operations.append(Operation(FOR, operands, (), attributes, (body,), parting.grid.span))
    line.operations.append(Operation("tile.yield", span=parting.grid.span))
    return tuple(line.operations)


def _share(line: Line, d: _Dealing, group: Value) -> Value:
    """Which share is a group's: where tiles have as many parts, the first parts of all come first,
    then the second ones."""
    one = line.constant(1, U32)
    part = line.binary("floordiv", group, line.binary("max", d.tiles, one))
    tile = line.binary("sub", group, line.binary("mul", part, d.tiles))
    turned = line.binary("add", line.binary("mul", tile, d.parts), part)
    return line.select(line.less(one, d.parts), turned, group)


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """Of a group: its number, that of its share, the steps that are in it, and the first of its
    tiles among those that are dealt."""

    number: Value
    share: Value
    begin: Value
    end: Value
    first: Value


def _item(parting: Parting, d: _Dealing, own: _Own, item: Value) -> tuple[Operation, ...]:
    """One tile of a group: a whole one, or behind those the steps of its share."""
    line = Line()
    place = line.cast(item, U32)
    zero, one = line.constant(0, U32), line.constant(1, U32)
    is_whole = line.less(place, d.whole)
    number = line.binary("sub", place, d.whole)
    tile = line.binary("add", own.first, number)
    start = line.binary("mul", tile, d.steps)
    stop = line.binary("add", start, d.steps)
    low = line.binary("sub", line.binary("max", own.begin, start), start)
    high = line.binary("sub", line.binary("min", own.end, stop), start)
    owner = _owner(line, d, start)
    until = _owner(line, d, line.binary("sub", stop, one))
    count = line.binary("add", line.binary("sub", until, owner), one)
    begin, end = line.select(is_whole, zero, low), line.select(is_whole, d.steps, high)
    part = line.select(is_whole, zero, line.binary("sub", own.share, owner))
    share = Share(
        *(line.binary("mul", line.cast(n, INDEX), d.turns) for n in (begin, end)),
        *(line.cast(n, INDEX) for n in (
            tile, line.binary("add", tile, owner), part, line.select(is_whole, one, count),
            line.select(is_whole, zero, number),
        )),
    )  # fmt: skip
    behind = line.binary("add", line.binary("mul", d.whole, d.groups), tile)
    whole = line.binary("add", line.binary("mul", place, d.groups), own.number)
    variables = _variables(line, parting, d, line.select(is_whole, whole, behind))
    operations = parting.tile(Line(), share)
    (region,) = parting.grid.regions
    bound = dict(zip(region.arguments, variables, strict=True))
    return (*line.operations, *replace_values(operations, bound))


def _owner(line: Line, d: _Dealing, step: Value) -> Value:
    """The share that has a step: the last that begins no later."""
    one = line.constant(1, U32)
    reached = line.binary("mul", line.binary("add", step, one), d.shares)
    total = line.binary("max", d.total, one)
    return line.binary("floordiv", line.binary("sub", reached, one), total)


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
