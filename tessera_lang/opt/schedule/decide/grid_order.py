"""How the groups walk over the tiles: clusters, order, and whether groups are persistent.

Owns three decisions on the loop that became the grid. ``cluster``: neighbours along the rows
that read the same columns get them with one copy. ``order``: blocks of rows, so that what
neighbours read stays in the second-level cache. ``persistent``: a group takes tile after tile,
so that the end of one overlaps the beginning of the next; where every tile has a multiprocessor
of its own there is no next, and the walk would only be in the way. Where loops are longer in some
tiles than in others, and few tiles for each group even that out, the heaviest come first, and
groups do not stay.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program, Value
from tessera_lang.ir.definitions import LOOPS, REPORTS
from tessera_lang.opt.schedule.cost.split_k_cost import (
    best_parts,
    groups_of,
    parts_of,
    stream_of,
)
from tessera_lang.opt.schedule.cost.workload import work_of
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.copy_rules import (
    contiguous_axis,
    is_clipped,
    known_divisor,
    tma_reason,
)
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    overruled,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    FOR,
    STORE,
    Estimate,
    Facts,
    facts_of,
    is_grid,
    kernel_of,
)
from tessera_lang.opt.schedule.query.producer_slice import moved_by_lanes
from tessera_lang.opt.schedule.query.staging_rings import is_staged, subtile_columns, tile_bytes
from tessera_lang.opt.schedule.query.tile_access import (
    TileAccess,
    access_of,
)
from tessera_lang.target.arch.isa_constants import CLUSTER_GROUPS
from tessera_lang.target.tuned_constants import CLUSTER_TURNS, GRID_ROWS, UNEVEN_SHARE


@decides
def cluster(program: Program, context: Context) -> Program:
    if context.machine.target == "cpu":
        return program
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    said = kernel.integers("cluster")
    if said and said_by_user(kernel, "cluster"):
        reason = _said_reason(said, facts, context)
        if reason:
            return with_kernel(program, overruled(kernel, "cluster", (), context, reason))
        return program
    if not context.machine.has("cluster") or "roles" not in kernel.attributes:
        return program
    if stream_of(kernel):
        return program  # its groups are at different iterations
    grid, shape = facts.grid, _pair(facts)
    if grid is None or not shape:
        return program
    along = _trips_along(facts, grid, _row_axis(grid) + shape.index(2))
    if along is not None and (along < 2 or (along % 2 and along < 16)):
        return program
    work, tiles = work_of(facts, {}, context.machine), Estimate(facts, {}).trips(grid)
    few = work.cluster == 1 if work.split else work.iterations <= CLUSTER_TURNS
    if tiles is not None and few:
        return program  # what neighbours wait for each other at each end of a tile is more
    if tiles is not None and tiles <= context.machine.units:
        if work.cluster == 1 or best_parts(work, context.machine)[0] > 1:
            return program  # one wave has the cache for itself, and clusters start and end later
    return with_kernel(program, with_decisions(kernel, {"cluster": shape}))


def _pair(facts: Facts) -> tuple[int, ...]:
    """Two neighbours along rows, or along columns where those share copies too, and more bytes of
    them; () where there are none."""
    same: dict[tuple[int, ...], int] = {}
    for shape in ((2, 1), (1, 2)):
        if facts.grid is None or cluster_reason(facts, shape):
            break
        ((variable, _),) = cluster_variables(facts.grid, shape)
        shared = (x for x in facts.reads if is_staged(x)
                  and not depends_on(x.starts, variable, facts))  # fmt: skip
        same[shape] = sum(tile_bytes(x.tile) for x in shared)
    return max(same, key=lambda shape: same[shape], default=())


def _said_reason(said: tuple[int, ...], facts: Facts, context: Context) -> str:
    size = 1
    for n in said:
        size *= n
    if size == 1:
        return ""
    if not context.machine.has("cluster"):
        return f"{context.machine.arch} has no clusters"
    if "roles" not in facts.kernel.attributes:
        return "the kernel is not split into producer and consumers"
    if size > CLUSTER_GROUPS:
        return f"a cluster has at most {CLUSTER_GROUPS} groups"
    grid = facts.grid
    assert grid is not None
    if len(said) > len(grid.strings("axes")):
        return "the grid has fewer axes"
    return cluster_reason(facts, said)


def cluster_reason(facts: Facts, shape: tuple[int, ...]) -> str:
    """Why groups cannot share copies in clusters of this shape; empty where they can."""
    grid = facts.grid
    if grid is None or len(grid.strings("axes")) < max(2, len(shape)):
        return "the grid has fewer than two axes"
    variables = cluster_variables(grid, shape)
    if len(variables) != 1:
        return "groups share copies along one axis of the grid"
    ((variable, _),) = variables
    if grid.holds({"tile.load", *REPORTS}):
        return "its tiles read single elements, which a tile beyond the edge has not"
    staged = [x for x in facts.reads if is_staged(x)]
    if all(depends_on(x.starts, variable, facts) for x in staged):
        return "no staged tile is the same for neighbours"
    if moved_by_lanes(facts):
        return "lanes bring some of its tiles, each group its own"
    if not whole_clusters(facts, shape) and touches_beyond(facts, shape):
        return (
            "a tile beyond the edge would be read or written by lanes, and the number of tiles is "
            "not known to be a multiple of the cluster"
        )
    for load in staged:
        for around in load.inside:
            bounds = [v for v in around.operands if around.name in (*LOOPS, "tile.if")]
            if not is_grid(around) and depends_on(_uniform(around, bounds), variable, facts):
                return "its loops differ between neighbours"
    return ""


def whole_clusters(facts: Facts, shape: tuple[int, ...]) -> bool:
    """Whether the tiles along the cluster's axis are surely a multiple of its groups: else the
    last cluster has groups whose tile lies beyond the array."""
    grid = facts.grid
    assert grid is not None
    axes, arguments = len(grid.strings("axes")), facts.kernel.regions[0].arguments
    for variable, size in cluster_variables(grid, shape):
        axis = grid.regions[0].arguments.index(variable)
        low, high, by = (grid.operands[axis + part * axes] for part in range(3))
        step, first = facts.constant(by), facts.constant(low)
        if step is None or first is None or first % (step * size):
            return False
        slot = next((i for i, v in enumerate(arguments) if v is high), None)
        if known_divisor(facts, slot, high) % (step * size):
            return False
    return True


def touches_beyond(facts: Facts, shape: tuple[int, ...]) -> bool:
    """Whether lanes read or write arrays themselves in a tile beyond the edge; the copy engine
    clips by itself."""
    for load in facts.loads:
        if not is_staged(load) and _reaches(access_of(load.operation), facts, shape):
            return True
    for store, _ in facts.stores:
        access = access_of(store)
        if not _reaches(access, facts, shape):
            continue
        last = len(access.tile.shape) - 1
        if store.name != STORE or last < 1 or contiguous_axis(access, facts) != last:
            return True
        if tma_reason(access, facts, "") or not subtile_columns(access.tile):
            return True
    return False


def _reaches(access: TileAccess, facts: Facts, shape: tuple[int, ...]) -> bool:
    """Whether lanes may touch something in a tile beyond the last of the cluster's axis: its
    extent there is not clipped to nothing, though the tile depends on the axis."""
    grid = facts.grid
    assert grid is not None
    axes = len(grid.strings("axes"))
    for variable, _ in cluster_variables(grid, shape):
        if not depends_on(access.starts, variable, facts):
            continue
        high = grid.operands[axes + grid.regions[0].arguments.index(variable)]
        if not any(
            is_clipped(facts, extent, capacity, high, variable)
            for extent, capacity in zip(access.extents, access.tile.sizes, strict=True)
        ):
            return True
    return False


def _uniform(around: Operation, operands: list[Value]) -> list[Value]:
    """The operands that decide how often an operation's inside runs."""
    carried = len(around.results) if around.name in LOOPS else 0
    return operands[: len(operands) - carried]


def cluster_variables(grid: Operation, shape: tuple[int, ...]) -> tuple[tuple[Value, int], ...]:
    """The variables of the grid along which a cluster extends, with how far. ``shape`` names the
    last axes of the grid."""
    axes = len(grid.strings("axes"))
    first = max(0, axes - max(2, len(shape)))
    variables = grid.regions[0].arguments[first:axes]
    return tuple((v, n) for v, n in zip(variables, shape, strict=False) if n > 1)


def _row_axis(grid: Operation) -> int:
    return len(grid.strings("axes")) - 2


def _trips_along(facts: Facts, grid: Operation, axis: int) -> int | None:
    estimate = Estimate(facts, {})
    axes = len(grid.strings("axes"))
    low, high, by = (estimate.value(grid.operands[axis + part * axes]) for part in range(3))
    if low is None or high is None or not by:
        return None
    return -(-(high - low) // by)


@decides
def order_grid(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    grid = facts.grid
    if context.machine.target == "cpu" or grid is None or not facts.dots:
        return program
    if heaviest := _heaviest(facts, grid, context):
        return with_kernel(program, with_decisions(kernel, {"heaviest": heaviest}))
    if not _reads_in_blocks(facts, grid):
        return program
    rows = GRID_ROWS
    along = _trips_along(facts, grid, _row_axis(grid))
    shape = kernel.integers("cluster")
    if along is not None:
        rows = max(1, min(rows, -(-along // (shape[0] if shape else 1))))
    decisions: dict[str, Attribute] = {"order": "grouped", "group_rows": rows}
    return with_kernel(program, with_decisions(kernel, decisions))


def _heaviest(facts: Facts, grid: Operation, context: Context) -> tuple[int, ...]:
    """The axis of the grid along which loops over products become longer or shorter, and whether
    they become longer, where groups that take every n-th tile would end apart; () where there is
    none, or the order is not free. Other tiles stay in the order in which neighbours share lines
    of the cache."""
    kernel, groups = facts.kernel, groups_of(facts)
    if "roles" not in kernel.attributes or kernel.integers("cluster") or groups is None:
        return ()
    if stream_of(kernel) or parts_of(kernel) > 1 or groups <= context.machine.units:
        return ()
    for axis, variable in enumerate(grid.regions[0].arguments[: len(grid.strings("axes"))]):
        trips = _trips_at_ends(facts, grid, variable)
        if trips is None:
            continue
        places = context.machine.units * kernel.integer("residents", 1)
        share = groups / places * sum(trips) / 2  # iterations of a group that stays
        if abs(trips[1] - trips[0]) > UNEVEN_SHARE * share:
            return axis, int(trips[1] > trips[0])
    return ()


def _trips_at_ends(facts: Facts, grid: Operation, variable: Value) -> tuple[int, int] | None:
    """Iterations of the loops over products in the first and in the last tiles along an axis; None
    where its variable bounds none of them, or they are not known."""
    here = [o for o, inside in facts.loops if grid in inside and o.holds(DOT)]
    loops = [o for o in here if depends_on(_uniform(o, list(o.operands)), variable, facts)]
    ends = (Estimate(facts, {}), Estimate(facts, {}, last=True))
    found = [[_trips_of(e, o) for o in loops] for e in ends]
    if not loops or any(n is None for trips in found for n in trips):
        return None
    first, last = (sum(n for n in trips if n is not None) for trips in found)
    return first, last


def _trips_of(estimate: Estimate, loop: Operation) -> int | None:
    """Iterations of a loop with one axis."""
    lower, upper, step = (estimate.value(v) for v in loop.operands[:3])
    if lower is None or upper is None or not step or loop.name != FOR:
        return None
    return max(0, -(-(upper - lower) // step))


def _reads_in_blocks(facts: Facts, grid: Operation) -> bool:
    """Whether neighbours along each of the last two axes read tiles that are the same."""
    axes = len(grid.strings("axes"))
    if axes < 2:
        return False
    staged = [x for x in facts.reads if is_staged(x)]
    return all(
        any(not depends_on(x.starts, variable, facts) for x in staged)
        for variable in grid.regions[0].arguments[axes - 2 : axes]
    )


@decides
def persistent(program: Program, context: Context) -> Program:
    if context.machine.target == "cpu":
        return program
    kernel = kernel_of(program)
    if "roles" in kernel.attributes:
        groups = groups_of(facts_of(kernel))
        stays = groups is None or groups > context.machine.units
        if kernel.integers("heaviest"):
            stays = False  # a group that is done early is to take work of others
        return with_kernel(program, with_decisions(kernel, {"persistent": stays}))
    if kernel.attributes.get("persistent") and said_by_user(kernel, "persistent"):
        reason = "the kernel is not split into producer and consumers"
        return with_kernel(program, overruled(kernel, "persistent", False, context, reason))
    return program
