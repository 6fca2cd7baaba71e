"""The grid: a loop of independent iterations becomes groups.

All axes are flattened to one, the last axis fastest; ``group_rows`` walks over the last two in
blocks of that many rows, so that neighbours read the same lines of arrays. Where a trip count
is no size of the launch, or groups stay, a group takes iteration after iteration. Owns
numbers of groups and the variables of a group. Must not know what is done there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import REPORTS, WRITES
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.tile_order import places
from tessera_lang.opt.schedule.query.kernel_facts import is_grid
from tessera_lang.opt.schedule.query.scalar_facts import FOR, axes_of
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import INDEX, U32
from tessera_lang.types.shape import Dim, dim_op

_APART = "write a kernel for each of them, and call one after the other"


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """``loop``: whose iterations are groups; ``groups``: their number; ``persistent``: whether a
    group takes one iteration after the other."""

    loop: Operation
    groups: Dim
    persistent: bool
    group_rows: int


def grid_of(kernel: Operation, numbers: Numbers) -> Grid | None:
    """The grid of a kernel; None where one group does everything. Where a launch does not know how
    many tiles there are, the schedule says how many groups walk over them (``groups``)."""
    loops = [o for o in kernel.regions[0].operations if o.name == FOR and is_grid(o)]
    if not loops:
        return None
    if len(loops) > 1:
        raise NotTiled("several loops become groups", loops[1].span, _APART)
    (loop,) = loops
    if loop.results:
        raise NotTiled("a loop over groups hands values on", loop.span)
    for other in kernel.regions[0].operations:
        if other is not loop and other.holds(WRITES | REPORTS):
            raise NotTiled("something is written outside the loop over groups", other.span, _APART)
    total = _total(loop, numbers)
    rows = kernel.attributes.get("group_rows", 1)
    persistent = bool(kernel.attributes.get("persistent"))
    if total is None and not persistent:
        raise NotTiled("the number of its groups is not known at the launch", loop.span)
    groups = total
    if groups is None:
        said = kernel.attributes.get("groups")
        if not isinstance(said, int):
            raise NotTiled("the schedule does not say how many groups stay", loop.span)
        groups = said
    return Grid(loop, groups, persistent, rows if isinstance(rows, int) else 1)


def _total(loop: Operation, numbers: Numbers) -> Dim | None:
    axes, total = axes_of(loop), 1
    found: Dim = total
    for axis in range(axes):
        lower, upper, step = (numbers.dim(loop.operands[axis + part * axes]) for part in range(3))
        if lower is None or upper is None or not isinstance(step, int):
            return None
        gap = upper if lower == 0 else dim_op("max", dim_op("-", upper, lower), 0)
        found = dim_op("*", found, dim_op("ceil_div", gap, step))
    return found


def build_grid(
    builder: Builder, grid: Grid, scalar: Callable[[Value], Value],
    inside: Callable[[Sequence[Value]], None],
) -> None:  # fmt: skip
    """The iterations of one group; ``inside`` builds one for given variables."""
    if not grid.persistent:
        inside(_variables(builder, grid, _bounds(grid, scalar), builder.group_linear()))
        return
    total, variables = walked(builder, grid, scalar)
    with builder.region(("tile", total.type)) as made:
        inside(variables(made.arguments[0]))
        builder.yield_()
    builder.for_(builder.group_linear(), total, builder.group_count(), (), made.region)


def _bounds(grid: Grid, scalar: Callable[[Value], Value]) -> list[tuple[Value, ...]]:
    axes = axes_of(grid.loop)
    return [
        tuple(scalar(grid.loop.operands[axis + part * axes]) for part in range(3))
        for axis in range(axes)
    ]


def walked(
    builder: Builder, grid: Grid, scalar: Callable[[Value], Value]
) -> tuple[Value, Callable[[Value], list[Value]]]:
    """The number of iterations of all groups, and the variables of one by its number."""
    bounds = _bounds(grid, scalar)
    counts = [_count(builder, *b) for b in bounds]
    total = counts[0]
    for count in counts[1:]:
        total = builder.binary("mul", total, count)
    return total, lambda number: _variables(builder, grid, bounds, number)


def _count(builder: Builder, lower: Value, upper: Value, step: Value) -> Value:
    gap = builder.binary("max", builder.binary("sub", upper, lower), builder.index(0))
    up = builder.binary("sub", builder.binary("add", gap, step), builder.index(1))
    return builder.binary("floordiv", up, step)


def _variables(
    builder: Builder, grid: Grid, bounds: Sequence[tuple[Value, ...]], number: Value
) -> list[Value]:
    """The loop variables of iteration ``number``. Where each group has one, 32 bits hold it, and
    the counts that it is divided by."""
    counts = [_count(builder, *b) for b in bounds]
    dtype = INDEX if grid.persistent else U32
    height = builder.constant(grid.group_rows, dtype) if grid.group_rows > 1 else None
    narrow = [builder.cast(v, dtype) for v in (number, *counts)]
    found = places(builder, narrow[0], narrow[1:], height)
    return _at(builder, bounds, [builder.cast(v, INDEX) for v in found])


def _at(
    builder: Builder, bounds: Sequence[tuple[Value, ...]], places: Sequence[Value]
) -> list[Value]:
    found: list[Value] = []
    for (lower, _, step), place in zip(bounds, places, strict=True):
        found.append(builder.binary("add", lower, builder.binary("mul", place, step)))
    return found
