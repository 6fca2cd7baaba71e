"""``lower_to_lanes``: one kernel of Schedule IR as a ``tile.kernel``, with its launch plan.

Owns how axes of the grid become groups, or lanes. Must not know what is in a body.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import WARP
from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import REPORTS, WRITES
from tessera_lang.lower.schedule_to_lanes.buffers import Buffers
from tessera_lang.lower.schedule_to_lanes.combined_axes import trip_count, unflattened
from tessera_lang.lower.schedule_to_lanes.control import (
    FOR,
    lower_loop,
    lower_operation,
    release,
)
from tessera_lang.lower.schedule_to_lanes.def_use import Source
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_lanes.materialization_choice import Placement
from tessera_lang.lower.schedule_to_lanes.per_lane_buffers import per_lane_buffers
from tessera_lang.lower.schedule_to_lanes.state import Lowering
from tessera_lang.lower.schedule_to_lanes.tile_extents import Domains
from tessera_lang.opt.tile.shared_allocation import shared_bytes
from tessera_lang.record import dataclass, replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import LOOP_WARPS
from tessera_lang.types.shape import Dim, dim_op

_MOST_AXES = 3


@dataclass(frozen=True, slots=True)
class Grid:
    """The loop whose ``axes`` become groups, and how many groups there are along each."""

    loop: Operation
    axes: tuple[int, ...]
    counts: tuple[Dim, ...]


def lower_to_lanes(
    program: Program, plan: LaunchPlan, machine: Machine
) -> tuple[Program, LaunchPlan]:
    """The kernel as lane operations. Every size of a tile is chosen; ``accumulate`` is gone."""
    if any(o.attributes.get("across", 1) != 1 for o in program.operations[0].walk()):
        raise ValueError("loops of lanes have no axis that several groups share")
    made = _lowered(program, plan, machine, lean=False)
    if machine.target != "cpu" and shared_bytes(made[0].operations[0]) > machine.shared_limit:
        return _lowered(program, plan, machine, lean=True)
    return made


def _lowered(
    program: Program, plan: LaunchPlan, machine: Machine, *, lean: bool
) -> tuple[Program, LaunchPlan]:
    (kernel,) = program.operations
    source = Source(kernel)
    numbers = Numbers(source, plan)
    alone = kernel.attributes.get("iterations") == "lanes"
    group = 1 if machine.target == "cpu" else WARP * LOOP_WARPS
    lanes = 1 if alone else group
    s = Lowering(
        machine, source, numbers, Domains(source, numbers), Placement(source, lanes == 1, lean),
        Buffers(pad=group == 1), lanes,
    )  # fmt: skip
    grid = _grid(s, kernel.regions[0])
    if alone:
        return _by_lanes(s, kernel, plan, grid, group)
    rank = 1 if grid is None or len(grid.axes) > _MOST_AXES else len(grid.axes)
    body = _body(s, kernel, grid)
    s.b.kernel(
        str(kernel.attributes["sym_name"]), body, group=(lanes,), grid_rank=rank,
        parameters=kernel.strings("parameters"),
    )  # fmt: skip
    (made,) = s.b.program().operations
    lowered = Program("tile", (replace(made, span=kernel.span),))
    return lowered, replace(plan, group=(lanes,), grid=_groups(grid), cluster=(), persistent=False)


def _by_lanes(
    s: Lowering, kernel: Operation, plan: LaunchPlan, grid: Grid | None, group: int
) -> tuple[Program, LaunchPlan]:
    """A lane for each iteration: as for one lane, with memory of its own in the place of the
    group's."""
    if grid is None or len(grid.axes) != len(grid.loop.strings("axes")):
        raise ValueError("the launch knows how many iterations lanes take")
    body = per_lane_buffers(_body(s, kernel, grid, group), group)
    s.b.kernel(
        str(kernel.attributes["sym_name"]), body, group=(group,), grid_rank=1,
        parameters=kernel.strings("parameters"),
    )  # fmt: skip
    (made,) = s.b.program().operations
    total: Dim = 1
    for count in grid.counts:
        total = dim_op("*", total, count)
    lowered = Program("tile", (replace(made, span=kernel.span),))
    groups = (dim_op("ceil_div", total, group),)
    return lowered, replace(plan, group=(group,), grid=groups, cluster=(), persistent=False)


def _body(s: Lowering, kernel: Operation, grid: Grid | None, lanes: int = 0) -> Region:
    source = kernel.regions[0]
    with s.b.region(*((v.name, v.type) for v in source.arguments)) as region:
        s.values.update(zip(source.arguments, region.arguments, strict=True))
        for op in source.operations:
            with s.b.at(op.span):
                if grid is not None and op is grid.loop:
                    _deal(s, grid, lanes) if lanes else _spread(s, grid)
                else:
                    lower_operation(s, op)
            release(s, op)
    built = region.region
    return replace(built, operations=(*s.buffers.allocations, *built.operations))


# --- the grid --------------------------------------------------------------------------------


def _grid(s: Lowering, region: Region) -> Grid | None:
    """The only loop over the grid, where nothing else writes and its sizes are the launch's."""
    loops = [op for op in region.operations if op.name == FOR and _grid_axes(op)]
    if len(loops) != 1 or loops[0].results:
        return None
    (loop,) = loops
    others = (op for op in region.operations if op is not loop)
    if any(op.holds(WRITES | REPORTS) for op in others):
        return None
    axes: list[int] = []
    counts: list[Dim] = []
    n = len(loop.strings("axes"))
    for axis in _grid_axes(loop):
        lower, upper, step = (s.numbers.dim(loop.operands[axis + part * n]) for part in range(3))
        if lower is None or upper is None or not isinstance(step, int):
            continue  # the axis stays a loop in each group
        axes.append(axis)
        gap = upper if lower == 0 else dim_op("max", dim_op("-", upper, lower), 0)
        counts.append(dim_op("ceil_div", gap, step))
    return Grid(loop, tuple(axes), tuple(counts)) if axes else None


def _grid_axes(op: Operation) -> list[int]:
    mapping = op.strings("mapping")
    return [axis for axis, how in enumerate(mapping) if how == "grid"]


def _groups(grid: Grid | None) -> tuple[Dim, ...]:
    if grid is None:
        return (1,)
    if len(grid.axes) <= _MOST_AXES:
        return grid.counts
    total: Dim = 1
    for count in grid.counts:
        total = dim_op("*", total, count)
    return (total,)


def _spread(s: Lowering, grid: Grid) -> None:
    """The body of the loop over the grid for the variables of this group."""
    loop, n = grid.loop, len(grid.loop.strings("axes"))
    bounds = [
        tuple(s.scalar(loop.operands[axis + part * n]) for part in range(3)) for axis in grid.axes
    ]
    for axis, variable in _variables(s, grid, bounds).items():
        s.values[loop.regions[0].arguments[axis]] = variable
    lower_loop(s, loop, [axis for axis in range(n) if axis not in grid.axes])


def _deal(s: Lowering, grid: Grid, lanes: int) -> None:
    """The body of the loop over the grid for the variables of this lane, if there is one for it."""
    loop, n, b = grid.loop, len(grid.loop.strings("axes")), s.b
    triples = [(s.scalar(loop.operands[a]), s.scalar(loop.operands[a + n]),
                s.scalar(loop.operands[a + 2 * n])) for a in grid.axes]  # fmt: skip
    counts = [trip_count(s, *triple) for triple in triples]
    total = counts[0]
    for count in counts[1:]:
        total = b.binary("mul", total, count)
    number = b.binary("add", b.binary("mul", b.group_linear(), s.index(lanes)), b.lane_linear())
    with b.region() as then, s.inside():
        for axis, at in unflattened(s, number, grid.axes, triples, counts).items():
            s.values[loop.regions[0].arguments[axis]] = at
        lower_loop(s, loop, [])
        b.yield_()
    with b.region() as otherwise:
        b.yield_()
    b.if_(b.cmp("lt", number, total), then.region, otherwise.region)


def _variables(s: Lowering, grid: Grid, bounds: Sequence[tuple[Value, ...]]) -> dict[int, Value]:
    if len(grid.axes) <= _MOST_AXES:
        found: dict[int, Value] = {}
        for number, (axis, (lower, _, step)) in enumerate(zip(grid.axes, bounds, strict=True)):
            group = s.b.group_index(number)
            found[axis] = s.add(lower, s.b.binary("mul", group, step))
        return found
    triples = [(lower, upper, step) for lower, upper, step in bounds]
    counts = [trip_count(s, *triple) for triple in triples]
    return unflattened(s, s.b.group_linear(), grid.axes, triples, counts)
