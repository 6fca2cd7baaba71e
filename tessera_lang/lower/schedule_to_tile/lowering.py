"""``lower_to_tile``: one decided Schedule kernel as Tile IR with register tiles, and its plan.

Owns the frame: warps, the grid, allocations, the limit of shared memory. Must not know single
operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import held_elements
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import READS, WRITES
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_lanes.def_use import Source
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.ampere.grid import (
    Grid,
    build_grid,
    grid_of,
    walked,
)
from tessera_lang.lower.schedule_to_tile.ampere.mma_engine import MatrixEngine
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.directive_notes import notes_on_directives
from tessera_lang.lower.schedule_to_tile.common.errors import (
    NotHonoured,
    NotTiled,
    TooLarge,
    TooLong,
)
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch, Taken
from tessera_lang.lower.schedule_to_tile.hopper.specialised import lower_specialised
from tessera_lang.lower.schedule_to_tile.rows.persistent_rows_loop import build_early, loads_early
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tessera_lang.opt.tile.shared_allocation import shared_bytes
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import ACCESS_INSTRUCTIONS
from tessera_lang.types.shape import dim_op

_WARPS = (1, 2, 4, 8, 16)
MOST_INSTRUCTIONS = 20_000
"""Of one lane, before they are optimized. Twice as many take LLVM and ptxas 40 s; the longest
kernel of the tests has 11,488."""


def lower_to_tile(
    program: Program, plan: LaunchPlan, machine: Machine, remarks: list[Diagnostic]
) -> tuple[Program, LaunchPlan, tuple[Taken, ...]]:
    """The kernel for ``machine``, with the plan's grid and group, and what its buffers are for.

    The schedule says what the code has: nothing is decided here. Raises NotTiled where there is no
    form with register tiles, NotHonoured where it is one decision that has none. ``remarks`` takes
    notes.
    """
    (kernel,) = program.operations
    check_windows(kernel)
    if "roles" in kernel.attributes:
        return (*lower_specialised(program, plan, machine), ())
    lowering = _Lowering(kernel, plan, machine)
    made, notes = lowering.run()
    check_length(made.kernel, 32 * made.warps)
    remarks.extend(notes)
    groups = made.grid.groups if made.grid is not None else 1
    done = replace(
        plan, group=(32 * made.warps,), grid=(groups,), cluster=lowering.cluster,
        scratch=dim_op("*", plan.scratch, made.of_a_part),
        persistent=made.grid is not None and made.grid.persistent,
    )  # fmt: skip
    return Program("tile", (made.kernel,)), done, tuple(made.table)


def check_windows(kernel: Operation) -> None:
    """Raises NotHonoured where a tile that may begin before its array is brought by another copy
    than that of boxes, which alone gives zeros there."""
    for o in kernel.walk():
        if o.attributes.get("outside") and o.attributes.get("copy") != "tma":
            raise NotHonoured("windows", "no copy engine brings a window past the edges", o.span)


def check_length(kernel: Operation, lanes: int) -> None:
    """Raises TooLong where a lane would have more instructions than ``MOST_INSTRUCTIONS``: each
    operation on a tile is written out for all elements that a lane holds."""
    total = 0
    longest: tuple[int, Operation] | None = None
    for operation in kernel.walk():
        # What has no result writes its tile, element by element.
        for value in operation.results or operation.operands:
            if isinstance(value.type, TileType):
                held = held_elements(value.type) // lanes
                total += held * _instructions(operation, value.type)
                if operation.results and (longest is None or held > longest[0]):
                    longest = held, operation
    if total <= MOST_INSTRUCTIONS or longest is None:
        return
    held, operation = longest
    tile = operation.result.type
    assert isinstance(tile, TileType)
    shape = " x ".join(map(str, tile.shape))
    raise TooLong(
        total,
        f"with {held} elements of a tile of {shape} in each lane it is {total} instructions long, "
        f"and {MOST_INSTRUCTIONS} is the limit", operation.span,
        "cut the tile: a loop over fewer of its columns",
    )  # fmt: skip


def _instructions(operation: Operation, tile: TileType) -> int:
    """What one element of the tile that an operation makes or writes takes."""
    if operation.name not in READS | WRITES:
        return 1
    assert tile.layout is not None
    along = next((m for m in tile.layout.registers if m.extent > 1), None)
    if along is None or along.stride != 1:
        return ACCESS_INSTRUCTIONS
    if along.axis == len(tile.shape) - 1:
        return -(-ACCESS_INSTRUCTIONS // along.extent)
    if operation.name == "tile.read_tile" and tile.dtype.bits == 16 and len(tile.shape) == 2:
        return -(-ACCESS_INSTRUCTIONS // (2 * along.extent))  # a fragment, by ldmatrix
    return ACCESS_INSTRUCTIONS


def checked_memory(
    program: Program, plan: LaunchPlan, machine: Machine, table: Sequence[Taken]
) -> LaunchPlan:
    """The plan with the shared memory that the placed buffers take. ``table``: what they are for,
    where the kernel has no roles. Raises TooLarge."""
    (kernel,) = program.operations
    total = shared_bytes(kernel)
    if total > machine.shared_limit:
        raise TooLarge(total, _too_much(kernel, total, machine, table) if table else None)
    return replace(plan, shared_bytes=total)


class _Made:
    """One attempt."""

    def __init__(self, kernel: Operation, warps: int, grid: Grid | None, scratch: Scratch) -> None:
        self.kernel, self.warps, self.grid = kernel, warps, grid
        self.table, self.of_a_part = scratch.table(), scratch.of_a_part


class _Lowering:
    def __init__(self, kernel: Operation, plan: LaunchPlan, machine: Machine) -> None:
        self.kernel = kernel
        self.machine = machine
        self.numbers = Numbers(Source(kernel), plan)
        self.facts = Facts(kernel, self.numbers.key)
        self.grid = grid_of(kernel, self.numbers)
        self.cluster = _cluster_of(kernel)

    def run(self) -> tuple[_Made, list[Diagnostic]]:
        kernel, facts = self.kernel, self.facts
        warps = _warps_of(kernel)
        notes = notes_on_directives(kernel, facts)
        persistent = self.grid is not None and self.grid.persistent
        engine = MatrixEngine(self.machine, warps, kernel, facts, persistent)
        vector = kernel.attributes.get("vectorize", 0)
        wide = vector if isinstance(vector, int) else 0
        direct = bool(kernel.attributes.get("direct_access"))
        layouts = Layouts(kernel, facts, engine, direct=direct, vectorize=wide)
        scratch, builder = Scratch(), Builder()
        body = Body(builder, facts, layouts, engine, scratch)
        source = kernel.regions[0]
        with builder.region(*((v.name, v.type) for v in source.arguments)) as region:
            for value, argument in zip(source.arguments, region.arguments, strict=True):
                body.bind(value, argument)
            for operation in source.operations:
                with builder.at(operation.span):
                    self._top(body, engine, operation)
            builder.return_()
        allocations, replaced = scratch.finish()
        inside = replace_values(region.region.operations, replaced)
        whole = Region(region.arguments, (*allocations, *inside))
        builder.kernel(
            str(kernel.attributes["sym_name"]), whole, group=(32 * warps,), grid_rank=1,
            parameters=kernel.strings("parameters"),
        )  # fmt: skip
        (made,) = builder.program().operations
        attributes = dict(made.attributes)
        if "divisors" in kernel.attributes:
            attributes["divisors"] = kernel.attributes["divisors"]
        if self.cluster:
            attributes["cluster"] = self.cluster
        match kernel.attributes.get("registers"):
            case (int(most),):
                attributes["registers"] = most
            case _:
                pass
        made = replace(made, attributes=attributes, span=kernel.span)
        return _Made(made, warps, self.grid, scratch), notes

    def _top(self, body: Body, engine: MatrixEngine, operation: Operation) -> None:
        if self.grid is None or operation is not self.grid.loop:
            body.operation(operation)
            return
        region = operation.regions[0]

        def inside(variables: Sequence[Value]) -> None:
            for value, made in zip(region.arguments, variables, strict=True):
                body.bind(value, made)
            body.lower(region.operations[:-1])

        body.engine.before_control(body, operation)
        if self.grid.persistent and loads_early(operation):
            walk = walked(body.builder, self.grid, body.scalar)
            build_early(body, engine.staging, operation, *walk)
            return
        build_grid(body.builder, self.grid, body.scalar, inside)


def _cluster_of(kernel: Operation) -> tuple[int, ...]:
    """The groups of a cluster; empty where they share nothing."""
    return kernel.integers("cluster")


def _warps_of(kernel: Operation) -> int:
    warps = kernel.attributes.get("warps")
    if not isinstance(warps, int) or warps not in _WARPS:
        raise NotTiled(f"tiles are spread over {_WARPS} warps, and the schedule says {warps}")
    return warps


def _too_much(
    kernel: Operation, total: int, machine: Machine, table: Sequence[Taken]
) -> Diagnostic:
    rows = tuple(f"`{row.name}`: {row.bytes} bytes, {row.what}" for row in table)
    padded = "`padding`, " if kernel.attributes.get("padding") else ""
    return Diagnostic(
        "T0740",
        f"the schedule takes {total} bytes of shared memory, and {machine.arch} has "
        f"{machine.shared_limit} for a group",
        kernel.span, notes=rows,
        helps=(f"lower {padded}`schedule.pipeline_stages` or the sizes of `schedule.tile`",),
    )  # fmt: skip
