"""The compiler on one page: every pass of a kernel, in the order it runs, with a line on it.

A lane kernel takes ``LANES``, then ``TILE``. A tile kernel takes ``parallel_loops`` and is cut
into launches, each of which takes ``for_any_machine``; then for each machine ``for_machine``, a
lowering to register tiles or to loops over elements, and ``TILE``. ``stages`` gives the whole,
which ``docs/architecture.md`` prints. Owns the order and nothing else: ``pass_runner.py`` runs
the passes, ``tile_compilation.py`` says when a schedule is decided again. What only tile kernels
take is loaded when one is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Program
from tessera_lang.ir.pass_type import Pass, Step
from tessera_lang.opt.graph.dead_code import remove_dead_code
from tessera_lang.opt.tile.narrow_indices import narrow
from tessera_lang.opt.tile.prove_bounds import drop_guards, prove_bounds
from tessera_lang.opt.tile.shared_allocation import shrink_shared
from tessera_lang.opt.tile.simplify import simplify
from tessera_lang.opt.tile.version_guards import version_guards
from tessera_lang.record import dataclass, replace
from tessera_lang.target.backend import TargetOptions, backend_named, backend_names, passes_of

if TYPE_CHECKING:
    from tessera_lang.opt.schedule.query.decision_context import Context, MachinePass
    from tessera_lang.target.machine import Machine

# --- plain functions: tree to Graph IR, and to tile kernels -----------------------------------

AST_TO_GRAPH = Step(
    "ast_to_graph",
    "tree",
    "graph",
    "records what a plain function does to whole arrays",
)
UNUSED_OPERATORS = Pass(
    "unused_operators",
    "graph",
    "graph",
    remove_dead_code,
    does="removes operators whose results are not used",
)
DIFFERENTIATE = Step(
    "differentiate",
    "graph",
    "graph",
    "adds the gradients of parameters, in reverse mode",
)
GRAPH_TO_KERNELS = Step(
    "graph_to_kernels",
    "graph",
    "schedule",
    "makes tile kernels of operators, which take the passes below",
)
GRAPH: tuple[Pass, ...] = (UNUSED_OPERATORS,)

# --- lane kernels: typed tree to Tile IR ------------------------------------------------------

AST_TO_TILE = Step(
    "ast_to_tile",
    "typed tree",
    "tile",
    "lowers the typed kernel to Tile IR, and makes its launch plan",
)
SHARE_REDUCTIONS = Step(
    "share_reductions",
    "tile",
    "tile",
    "shares a reduction that all lanes would repeat among the lanes of the group",
)
LANES = (AST_TO_TILE, SHARE_REDUCTIONS)

# --- tile kernels: typed tree to Schedule IR --------------------------------------------------

AST_TO_SCHEDULE = Step(
    "ast_to_schedule",
    "typed tree",
    "schedule",
    "lowers the typed kernel to loops over tiles, and makes its launch plan",
)
LAY_ANEW = Step(
    "operand_packing",
    "schedule",
    "schedule",
    "copies arrays across whose lines products read or store their tiles",
)
SPLIT_FACTORS = Step(
    "emulated_f32_products",
    "schedule",
    "schedule",
    "makes products of precision f32x3 products of bf16, of arrays of the parts of factors",
)
SPLIT_ITERATIONS = Step(
    "reduction_fission",
    "schedule",
    "schedule",
    "takes few iterations with long reductions apart, so that groups share one",
)
SPLIT_REDUCTIONS = Step(
    "split_reductions",
    "schedule",
    "schedule",
    "splits a long reduction into a parallel loop over parts and a short reduction",
)
CUT_LAUNCHES = Step(
    "cut_launches",
    "schedule",
    "schedule",
    "makes loops that depend on each other separate launches",
)


def parallel_loops() -> tuple[Pass, ...]:
    """What makes loops whose iterations are independent, for every machine: of a kernel, and
    again of each launch where it is cut into several."""
    from tessera_lang.opt.schedule.canonical.fp8_infinities import keep_infinities
    from tessera_lang.opt.schedule.parallel.dead_code import tidy
    from tessera_lang.opt.schedule.parallel.loop_fusion import fuse_loops
    from tessera_lang.opt.schedule.parallel.loop_interchange import interchange_loops
    from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import join_loops
    from tessera_lang.opt.schedule.parallel.sink_conditions import sink_all_conditions

    return (
        _schedule("fp8_infinities", keep_infinities,
         "keeps infinities of 8-bit floats that are picked, not computed"),
        _schedule("dead_code", tidy, "removes operations whose results are not used"),
        _schedule("sink_conditions", sink_all_conditions,
         "moves a condition around a loop into the loop"),
        _schedule("join_loops", join_loops, "makes a perfect loop nest one loop with several axes"),
        _schedule("loop_interchange", interchange_loops,
                  "moves a loop over the elements of a sum outside of the summation loop"),
        _schedule("loop_fusion", fuse_loops,
                  "fuses adjacent loop nests over the same axes if their iterations are "
                  "independent"),
    )  # fmt: skip


def for_any_machine(remarks: list[Diagnostic]) -> tuple[Pass, ...]:
    """What a launch goes through next; what the passes have to say goes to ``remarks``."""
    from tessera_lang.opt.schedule.parallel.approximate_math import quick_forms
    from tessera_lang.opt.schedule.parallel.common_subexpressions import merge_equal
    from tessera_lang.opt.schedule.parallel.dead_code import tidy
    from tessera_lang.opt.schedule.parallel.loop_invariants import hoist
    from tessera_lang.opt.schedule.parallel.map_grid import map_grid
    from tessera_lang.opt.schedule.parallel.promote_accumulators import privatize
    from tessera_lang.opt.schedule.parallel.redundant_clamps import redundant_clamps

    def grid(program: Program) -> Program:
        return map_grid(program, remarks)

    def accumulators(program: Program) -> Program:
        return privatize(program, remarks)

    return (
        _schedule("map_grid", grid, "makes axes with proved independent iterations the grid"),
        _schedule("promote_accumulators", accumulators,
                  "keeps the sum of `+=` on an array in a tile: one load before the loop, one "
                  "store after it"),
        _schedule("loop_invariants", hoist, "moves loop-invariant operations out of loops"),
        _schedule("common_subexpressions", merge_equal,
                  "computes and reads once what is computed or read alike"),
        _schedule("approximate_math", quick_forms,
                  "takes the machine's powers for factors of products and terms of sums, and marks "
                  "quotients of products that are rounded at once"),
        _schedule("redundant_clamps", redundant_clamps,
                  "removes limits of floats that are surely within them"),
        _schedule("dead_code", tidy, "removes operations whose results are not used"),
    )  # fmt: skip


# --- tile kernels: the schedule for a machine -------------------------------------------------


Row = tuple[str, "MachinePass", str]
"""The name of a pass, the pass, and a line on what it does."""


def for_machine(context: Context) -> tuple[Pass, ...]:
    """The passes for a machine. What they have to say goes to the context: notes, and an error
    where the schedule does not fit, after which the program is not to be lowered."""
    return tuple(_in_context(*row, context) for _, rows in _FOR_MACHINE for row in rows())


def _tile_rows() -> tuple[Row, ...]:
    """Tiles: one matrix each, of sizes that units take; rows over clusters."""
    from tessera_lang.opt.schedule.canonical import (
        batch_axis_unrolling,
        contraction_tile_sizes,
        grid_and_inner_axes,
        late_broadcasts,
        late_reductions,
        loop_coalescing,
        pad_tiles,
        rows_over_cluster,
        rows_per_group,
        transpose_products,
        window_loads,
    )
    from tessera_lang.opt.schedule.decide import (
        oversized_tiles,
        product_orientation,
        row_kernels,
        tile_coarsening,
        tile_sizes,
    )

    return (
        ("window_loads", window_loads.load_windows,
         "loads windows past the edges of arrays as boxes, where products read them"),
        ("batch_axis_unrolling", batch_axis_unrolling.unbatch,
         "makes each iteration work on one matrix of a batch"),
        ("squeeze_axes", _squeeze(), "removes axes of size 1"),
        ("grid_and_inner_axes", grid_and_inner_axes.split_grid_loop,
         "splits a loop with grid axes and sequential axes into two nested loops"),
        ("rows_per_group", rows_per_group.take_rows,
         "makes short rows of neighbouring iterations one tile"),
        ("late_broadcasts", late_broadcasts.late_broadcasts,
         "does element-wise work on a row before the row is broadcast"),
        ("transpose_products", transpose_products.swap_operands,
         "transposes 8-bit products whose operands have a layout that wgmma cannot read"),
        ("product_orientation", product_orientation.orient,
         "computes the transposes of products where tiles of these take less time"),
        ("oversized_tiles", oversized_tiles.narrow,
         "takes tiles that have no room in parts: of contractions, and of the columns of results"),
        ("tile_coarsening", tile_coarsening.widen,
         "computes neighbouring tiles of the grid as one where that is sooner"),
        ("tile_sizes", tile_sizes.choose_tiles, "the tile sizes that the program leaves open"),
        ("set_tile_sizes", tile_sizes.give_sizes, "writes the chosen sizes into the types"),
        ("contraction_tile_sizes", contraction_tile_sizes.choose_steps,
         "gives short loops along a contraction a step that suits their length"),
        ("pad_tiles", pad_tiles.pad, "rounds tiles up to what matrix units take"),
        ("loop_coalescing", loop_coalescing.coalesce_loops,
         "makes one loop of nested loops that only add to a product"),
        ("late_reductions", late_reductions.reduce_late,
         "sums of the tiles of a loop meet across lanes once, behind it"),
        ("row_clusters", row_kernels.share_rows,
         "how many thread blocks of a cluster share a row that is too long for one"),
        ("rows_over_cluster", rows_over_cluster.split_rows,
         "splits such a row into parts, one for each thread block"),
    )  # fmt: skip


def _unit_rows() -> tuple[Row, ...]:
    """Units of products, and how their operands get to them."""
    from tessera_lang.opt.schedule.canonical import (
        fp8_accumulation,
        speculative_loads,
        transposed_loads,
    )
    from tessera_lang.opt.schedule.decide import (
        assign_units,
        staging,
        warp_roles,
    )

    return (
        ("assign_units", assign_units.assign_units, "the unit of each product: wgmma, mma, fma"),
        ("fp8_accumulation", fp8_accumulation.promote,
         "separates an accumulator from a product if the unit would round it"),
        ("transposed_loads", transposed_loads.turn_loads,
         "loads factors that lie across the vectors of lanes with their axes turned round"),
        ("speculative_loads", speculative_loads.load_before,
         "hoists loads out of conditions"),
        ("staging", staging.stage, "what is staged in shared memory, and by which kind of copy"),
        ("warp_roles", warp_roles.assign_roles, "producer and consumer warps, and their registers"),
    )  # fmt: skip


def _group_rows() -> tuple[Row, ...]:
    """Groups: what they share, how many stand in a ring, in which order they go."""
    from tessera_lang.opt.schedule.decide import (
        cache_hints,
        epilogue_tiles,
        grid_order,
        l2_prefetch,
        persistent_rows,
        pipeline_stages,
        row_kernels,
        split_k_parts,
        stream_k,
    )

    return (
        ("stream_k", stream_k.deal_tiles,
         "stream-K: thread blocks share the contraction of the tiles of the last, partial wave"),
        ("cluster", grid_order.cluster, "clusters whose thread blocks share tiles by multicast"),
        ("epilogue_tiles", epilogue_tiles.subtile, "the column blocks in which a result is stored"),
        ("split_k_parts", split_k_parts.split_contraction,
         "split-K: thread blocks share the contraction of every tile"),
        ("pipeline_stages", pipeline_stages.pipeline,
         "the number of stages of each ring buffer in shared memory"),
        ("grid_order", grid_order.order_grid, "the order of tiles, for the L2 cache"),
        ("persistent", grid_order.persistent,
         "persistent thread blocks: as many as run at once, each for several tiles"),
        ("persistent_rows", persistent_rows.load_early,
         "persistent thread blocks for shared rows, which load the next row early"),
        ("limit_registers", row_kernels.limit_registers,
         "a register limit, so that several thread blocks fit a multiprocessor"),
        ("l2_prefetch", l2_prefetch.read_ahead, "prefetches into L2 what later thread blocks read"),
        ("cache_hints", cache_hints.read_once,
         "marks data that is read once, so that caches evict it first"),
    )  # fmt: skip


def _loop_rows() -> tuple[Row, ...]:
    """Loops, directives that are left, and what does not fit."""
    from tessera_lang.opt.schedule.decide import (
        legality,
        overruled_staging_directives,
    )
    from tessera_lang.opt.schedule.loops import (
        index_set_splitting,
        loop_peeling,
        narrow_comparisons,
        software_pipeline,
        strength_reduction,
        unroll,
    )

    return (
        ("unroll", unroll.unroll, "repeats the body of a loop n times, with a remainder loop"),
        ("overruled_staging_directives", overruled_staging_directives.settle_staging,
         "reports directives on staged tiles that cannot be honoured"),
        ("legality", legality.check_fit,
         "refuses schedules that exceed shared memory or registers"),
        ("loop_peeling", loop_peeling.peel,
         "peels the last iteration if the others then need no masks"),
        ("index_set_splitting", index_set_splitting.split,
         "takes the iterations apart in which a condition holds for whole tiles"),
        ("narrow_comparisons", narrow_comparisons.narrow,
         "compares places in a tile in 32 bits, with a number for each row"),
        ("software_pipeline", software_pipeline.overlap,
         "overlaps the products of one iteration with those of the next"),
        ("strength_reduction", strength_reduction.count,
         "replaces divisions of a loop's variable by counters, where a role moves tiles"),
    )  # fmt: skip


_FOR_MACHINE = (
    ("The schedule for a machine: tiles", _tile_rows),
    ("The schedule for a machine: units and memory", _unit_rows),
    ("The schedule for a machine: groups", _group_rows),
    ("The schedule for a machine: loops and limits", _loop_rows),
    ("The schedule for a machine: as it will be built", lambda: _last_rows()),
)


def last_decisions(context: Context) -> tuple[Pass, ...]:
    """The last of these passes, which every kernel needs that becomes register tiles."""
    return tuple(_in_context(*row, context) for row in _last_rows())


def _last_rows() -> tuple[Row, ...]:
    """What every kernel needs that becomes register tiles."""
    from tessera_lang.opt.schedule.decide.non_specialized_kernels import settle_one_flow

    return (
        ("squeeze_axes", _squeeze(), "removes the axes of size 1 that earlier passes left"),
        ("non_specialized_kernels", settle_one_flow,
         "the final attributes of a kernel without warp roles, as its code has them"),
    )  # fmt: skip


def _squeeze() -> MachinePass:
    from tessera_lang.opt.schedule.canonical.squeeze_axes import squeeze_axes

    return squeeze_axes


def lane_per_iteration(context: Context) -> tuple[Pass, ...]:
    """The decision which kernels are so, before that for a machine."""
    return (_in_context(*_lane_rows()[0], context),)


def for_lane_per_iteration(context: Context) -> tuple[Pass, ...]:
    """What stands behind it for a kernel of which each iteration is a lane's."""
    return tuple(_in_context(*row, context) for row in _lane_rows()[1:])


def _lane_rows() -> tuple[Row, ...]:
    """A lane for each iteration."""
    from tessera_lang.opt.schedule.canonical.constant_unit_extents import unit_extents
    from tessera_lang.opt.schedule.decide import lane_per_iteration, tile_sizes
    from tessera_lang.opt.schedule.loops import short_loops

    return (
        ("lane_per_iteration", lane_per_iteration.take_lanes,
         "which kernels do so little in an iteration that a lane does each"),
        ("set_tile_sizes", tile_sizes.give_sizes, "writes sizes of one element into the types"),
        ("squeeze_axes", _squeeze(), "removes axes of size 1"),
        ("constant_unit_extents", unit_extents,
         "the extent of one element is 1 in the loop that goes over the elements"),
        ("short_loops", short_loops.write_out,
         "writes out loops that run a few times at most, so that their loads begin together"),
    )  # fmt: skip


def for_loops(machine: Machine, relief: int = 0) -> tuple[Pass, ...]:
    """``for_machine`` for a kernel that becomes loops over elements, behind which
    ``settle_loops`` stands: no several groups share a row, and no tile is in registers."""
    from tessera_lang.opt.schedule.query.decision_context import Context

    features = tuple(f for f in machine.features if f != "cluster")
    passes = for_machine(Context(replace(machine, features=features), [], relief))
    return passes[: -len(_last_rows())]


def settle_loops() -> Pass:
    """The last decision on a kernel that becomes loops over elements."""
    from tessera_lang.opt.schedule.decide.non_specialized_kernels import settle_loops as settle

    return Pass("settle_loops", "schedule", "schedule", settle, "decide",
                "removes decisions that do not apply to loops over elements")  # fmt: skip


# --- tile kernels: Schedule IR to Tile IR -----------------------------------------------------

REPACK_VIEWS = Step(
    "repack_views",
    "schedule",
    "schedule",
    "reads arrays with unaligned rows from aligned copies that the launch makes",
)
SPLIT_K = Step(
    "split_k",
    "schedule",
    "schedule",
    "split-K and stream-K: adds an axis of parts to the grid, whose sums are combined",
)
SCHEDULE_TO_TILE = Step(
    "schedule_to_tile",
    "schedule",
    "tile",
    "lowers to register tiles with layouts, buffers, copies and warp roles",
)
SCHEDULE_TO_LANES = Step(
    "schedule_to_lanes",
    "schedule",
    "tile",
    "lowers to loops over elements if there are no register tiles",
)


def share_memory() -> tuple[Pass, ...]:
    """What gives the buffers of register tiles their place."""
    from tessera_lang.lower.schedule_to_tile.common.elide_scratch_barriers import elide_barriers
    from tessera_lang.lower.schedule_to_tile.common.shared_memory_reuse import plan_memory

    return (
        Pass("elide_barriers", "tile", "tile", elide_barriers,
             does="removes barriers before reductions if no lane still reads the scratch memory"),
        Pass("shared_memory_reuse", "tile", "tile", plan_memory,
             does="lets buffers with disjoint live ranges share memory"),
    )  # fmt: skip


# --- Tile IR ----------------------------------------------------------------------------------

SIMPLIFY = Pass(
    "simplify",
    "tile",
    "tile",
    simplify,
    does="folds constants, merges equal values, removes dead code",
)
PROVE_BOUNDS = Pass(
    "prove_bounds",
    "tile",
    "tile",
    prove_bounds,
    does="removes the guards of accesses that are proved in bounds",
)
SHRINK_SHARED = Pass(
    "shrink_shared",
    "tile",
    "tile",
    shrink_shared,
    does="lets shared arrays with disjoint live ranges share memory",
)
VERSION_GUARDS = Pass(
    "version_guards",
    "tile",
    "tile",
    version_guards,
    does="loop versioning: one test before a loop in place of one in each iteration",
)
NARROW = Pass(
    "narrow_indices", "tile", "tile", narrow, does="narrows indices to 32 bits if they fit"
)
DROP_GUARDS = Pass("drop_guards", "tile", "tile", drop_guards, does="removes all guards")

TILE: tuple[Pass, ...] = (SIMPLIFY, PROVE_BOUNDS, SHRINK_SHARED, SIMPLIFY)
"""Tile IR to the Tile IR that both backends consume."""

UNGUARDED: tuple[Pass, ...] = (DROP_GUARDS,)
"""What ``--bounds=off`` adds behind ``TILE``."""

LANES_OF_A_GPU: tuple[Pass, ...] = (VERSION_GUARDS, NARROW, SIMPLIFY)
"""What a lane kernel goes through last for a GPU, whose registers have 32 bits; on a CPU groups
are tested as a whole."""

GENERATE_CODE = Step(
    "generate_code",
    "tile",
    "tile",
    "the backend: LLVM IR, then an object file, or PTX and a cubin",
)


# --- the whole --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """Passes that run one after the other. ``where``: of which kernels."""

    title: str
    where: str
    passes: tuple[Pass | Step, ...]


def stages() -> tuple[Stage, ...]:
    """All passes, in the order they run."""
    from tessera_lang.opt.schedule.query.decision_context import Context
    from tessera_lang.target.machine import machine_named

    context = Context(machine_named("cpu", "native"), [])
    tiles = (REPACK_VIEWS, SPLIT_K, SCHEDULE_TO_TILE, *share_memory())
    return (
        Stage("Graphs", "plain functions of which a gradient is asked",
              (AST_TO_GRAPH, *GRAPH, DIFFERENTIATE, *GRAPH, GRAPH_TO_KERNELS)),
        Stage("The tree as Tile IR", "lane kernels", LANES),
        Stage("The tree as Schedule IR", "tile kernels", (AST_TO_SCHEDULE,)),
        Stage("Loops", "tile kernels, and again each of several launches", parallel_loops()),
        Stage("Launches", "tile kernels",
              (SPLIT_FACTORS, LAY_ANEW, SPLIT_ITERATIONS, SPLIT_REDUCTIONS, CUT_LAUNCHES)),
        Stage("What is independent", "each launch of a tile kernel", for_any_machine([])),
        Stage("The schedule for a machine: a lane for each iteration",
              "on a GPU, each launch; the others where the first finds such a kernel",
              tuple(_in_context(*row, context) for row in _lane_rows())),
        *(
            Stage(title, "each launch of a tile kernel, for each machine",
                  tuple(_in_context(*row, context) for row in rows()))
            for title, rows in _FOR_MACHINE
        ),
        Stage("Register tiles", "on a GPU, where the schedule has that form", tiles),
        Stage("Loops over elements", "on the CPU, and on a GPU without register tiles",
              (settle_loops(), SCHEDULE_TO_LANES)),
        Stage("Tile IR", "all kernels", TILE),
        Stage("Without guards", "with `--bounds=off`", UNGUARDED),
        Stage("Lanes of a GPU", "lane kernels on a GPU", LANES_OF_A_GPU),
        *_of_backends(),
        Stage("Code", "all kernels", (GENERATE_CODE,)),
    )  # fmt: skip


def _of_backends() -> tuple[Stage, ...]:
    """What the installed backends have done to Tile IR before they make code of it."""
    program = Program("tile", ())
    found: list[Stage] = []
    for name in backend_names():
        backend = backend_named(name)
        if passes := passes_of(backend, program, TargetOptions(name, backend.default_arch())):
            found.append(Stage(f"Tile IR for the target {name}", "all kernels", passes))
    return tuple(found)


def pass_names() -> tuple[str, ...]:
    """The names of all passes, each once, in the order they first run."""
    return tuple(dict.fromkeys(p.name for stage in stages() for p in stage.passes))


def _schedule(name: str, run: Callable[[Program], Program], does: str) -> Pass:
    return Pass(name, "schedule", "schedule", run, does=does)


def _in_context(name: str, one: MachinePass, does: str, context: Context) -> Pass:
    def run(program: Program) -> Program:
        return program if context.refused else one(program, context)

    return Pass(name, "schedule", "schedule", run, one.kind, does)
