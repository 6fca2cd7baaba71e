"""``lower_to_tile``: one decided Schedule kernel as Tile IR with register tiles, and its plan.

Owns the frame: warps, the grid, allocations, the limit of shared memory. Must not know single
operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_lanes.def_use import Source
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.ampere.grid import (
    Grid,
    build_grid,
    grid_of,
    separated,
    walked,
)
from tessera_lang.lower.schedule_to_tile.ampere.mma_engine import MatrixEngine
from tessera_lang.lower.schedule_to_tile.common.aligned_copies import repacked
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.directive_notes import notes_on_directives
from tessera_lang.lower.schedule_to_tile.common.elide_scratch_barriers import with_fresh
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.memory_plan import plan_memory
from tessera_lang.lower.schedule_to_tile.common.product_operands import products_of
from tessera_lang.lower.schedule_to_tile.common.scalar_facts import Facts, is_tile, strings
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch, Taken
from tessera_lang.lower.schedule_to_tile.hopper.specialised import (
    lower_specialised,
    not_specialised,
)
from tessera_lang.lower.schedule_to_tile.rows.persistent_rows_loop import build_early, loads_early
from tessera_lang.lower.schedule_to_tile.split.split_k import in_parts
from tessera_lang.opt.schedule.canonical.squeeze_axes import squeeze
from tessera_lang.opt.schedule.decide.ring_depth import one_stage_less
from tessera_lang.opt.schedule.query.context import Context, said_by_user
from tessera_lang.opt.schedule.query.kernel_facts import facts_of
from tessera_lang.opt.tile.shared_budget import shared_bytes
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine
from tessera_lang.target.plan import LaunchPlan
from tessera_lang.types.shape import dim_op

_MOST_WARPS = 16
_LANE_REGISTERS = 96  # of the tiles that are there at once, before more warps are better


def lower_to_tile(
    program: Program, plan: LaunchPlan, machine: Machine, remarks: list[Diagnostic]
) -> tuple[Program, LaunchPlan]:
    """The kernel for ``machine``, with the plan's grid and group.

    Raises NotTiled where there is no form with register tiles. ``remarks`` takes notes, and an
    error where shared memory does not suffice: then the program is not to be compiled.
    """
    program, plan = in_parts(*repacked(squeeze(program), plan), remarks)
    (kernel,) = program.operations
    if "roles" in kernel.attributes:
        try:
            return lower_specialised(program, plan, machine, remarks)
        except NotTiled as reason:
            remarks.append(not_specialised(kernel, reason))
    lowering = _Lowering(separated(kernel), plan, machine)
    made, notes = _smallest(lowering)
    while shared_bytes(made.kernel) > machine.shared_limit:
        fewer = _one_stage_less(lowering.kernel, machine)
        if fewer is None:
            break
        lowering = _Lowering(fewer, plan, machine)
        made, notes = _smallest(lowering)
    remarks.extend(notes)
    total = shared_bytes(made.kernel)
    if total > machine.shared_limit:
        remarks.append(_too_much(made.kernel, total, machine, made.table))
    groups = made.grid.groups if made.grid is not None else 1
    done = replace(
        plan, group=(32 * made.warps,), grid=(groups,), cluster=lowering.cluster,
        shared_bytes=total, scratch=dim_op("*", plan.scratch, made.of_a_part),
        persistent=made.grid is not None and made.grid.stays,
    )  # fmt: skip
    return Program("tile", (made.kernel,)), done


def _smallest(lowering: _Lowering) -> tuple[_Made, list[Diagnostic]]:
    """The attempt that is best, or takes less shared memory where that is too much."""
    made, notes = lowering.attempt(direct=False)
    if shared_bytes(made.kernel) <= lowering.machine.shared_limit:
        return made, notes
    smaller, other = lowering.attempt(direct=True)
    fewer = shared_bytes(smaller.kernel) < shared_bytes(made.kernel)
    return (smaller, other) if fewer else (made, notes)


def _one_stage_less(kernel: Operation, machine: Machine) -> Operation | None:
    """The kernel with one buffer less where it has most; None where the user has said how many,
    or there is no more than one."""
    if said_by_user(kernel, "pipeline_stages"):
        return None
    return one_stage_less(kernel, facts_of(kernel), Context(machine, []))


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
        self.grid = grid_of(kernel, self.numbers, machine.units)
        self.cluster = _cluster_of(kernel)

    def attempt(self, direct: bool) -> tuple[_Made, list[Diagnostic]]:
        kernel, facts = self.kernel, self.facts
        warps = warps_of(kernel)
        notes = notes_on_directives(kernel, facts, warps)
        stays = self.grid is not None and self.grid.stays
        engine = MatrixEngine(self.machine, warps, kernel, facts, notes, stays)
        vector = kernel.attributes.get("vectorize", 0)
        wide = vector if isinstance(vector, int) else 0
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
            parameters=strings(kernel, "parameters"),
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
        made = plan_memory(with_fresh(made))
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
        if self.grid.stays and loads_early(operation):
            walk = walked(body.builder, self.grid, body.scalar)
            build_early(body, engine.staging, operation, *walk)
            return
        build_grid(body.builder, self.grid, body.scalar, inside)


def _cluster_of(kernel: Operation) -> tuple[int, ...]:
    """The groups that share an axis; empty where none do."""
    across = [o.attributes.get("across", 1) for o in kernel.walk()]
    groups = max((n for n in across if isinstance(n, int)), default=1)
    return (groups,) if groups > 1 else ()


def warps_of(kernel: Operation) -> int:
    """What the schedule says, else enough that a lane's share of the tiles fits its registers."""
    said = kernel.attributes.get("warps")
    if isinstance(said, int) and said > 0:
        return min(_MOST_WARPS, 1 << (said.bit_length() - 1))
    products = [tile.sizes for tile in (dot.result.type for dot in products_of(kernel))
                if isinstance(tile, TileType)]  # fmt: skip
    if products:
        fragments = max(-(-m // 16) * -(-n // 8) for m, n in (s[-2:] for s in products))
        held = sum(prod(s) for s in products)
        warps = 4
        while warps > 1 and warps > fragments:
            warps //= 2
        while warps < _MOST_WARPS and held > 32 * warps * 128:
            warps *= 2
        return warps
    largest = max(
        (prod(v.type.sizes) * max(4, v.type.dtype.bytes) // 4
         for o in kernel.walk() for v in o.results
         if is_tile(v) and isinstance(v.type, TileType)), default=1,
    )  # fmt: skip
    warps = 4
    while warps < _MOST_WARPS and largest > 32 * warps * _LANE_REGISTERS // 3:
        warps *= 2
    return warps


def _too_much(kernel: Operation, total: int, machine: Machine, table: list[Taken]) -> Diagnostic:
    rows = tuple(f"`{row.name}`: {row.bytes} bytes, {row.what}" for row in table)
    padded = "`padding`, " if kernel.attributes.get("padding") else ""
    return Diagnostic(
        "T0740",
        f"the schedule takes {total} bytes of shared memory, and {machine.arch} has "
        f"{machine.shared_limit} for a group",
        kernel.span, notes=rows,
        helps=(f"lower {padded}`schedule.pipeline_stages` or the sizes of `schedule.tile`",),
    )  # fmt: skip
