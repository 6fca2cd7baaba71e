"""Prefetches into the second-level cache, in kernels of rows whose groups have few loads in flight.

A group that fills a multiprocessor has no other beside it, and those of a cluster, which wait for
each other, may have few: memory may rest while they compute. Lanes that read element by element
keep few bytes on their way. Such a group asks, as it loads, for the lines that the group behind it
will load: they come to the second-level cache meanwhile. Where others are beside it, it only costs.

Owns which loads ask, and how far. Must not know how lines are asked for.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program, Value
from tessera_lang.opt.schedule.decide.row_kernels import (
    groups_together,
    held_bytes,
)
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.copy_rules import pitch_reason
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.invariant_loads import is_shared
from tessera_lang.opt.schedule.query.kernel_facts import Facts, Load, facts_of, kernel_of
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.target.tuned_constants import (
    ALONE_REGISTERS,
    GROUP_WARPS,
    PREFETCH_GROUPS,
    PREFETCH_WAVES,
)


@decides
def read_ahead(program: Program, context: Context) -> Program:
    """Loads that move with the grid ask for what the groups behind read, where that is due."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    warps = kernel.attributes.get("warps", 1)
    alone = groups_together(facts, context) < PREFETCH_GROUPS
    waits = alone if is_shared(kernel) else warps == GROUP_WARPS
    waits = waits or _narrow(facts)
    if context.machine.target == "cpu" or facts.grid is None or facts.dots or not waits:
        return program
    there = int(PREFETCH_WAVES * groups_at_once(kernel, context))
    found: dict[Operation, dict[str, Attribute]] = {}
    for load in facts.loads:
        place = moves(facts, facts.grid, load)
        if place is not None and not load.operation.attributes.get("early"):
            axis, groups = place
            found[load.operation] = {"ahead": (axis, -(-there // groups))}
    return with_kernel(program, with_attributes(kernel, found))


def groups_at_once(kernel: Operation, context: Context) -> int:
    """How many groups are on the machine at the same time, by their registers."""
    warps = kernel.integer("warps", 1)
    registers = held_bytes(kernel) // 4 + ALONE_REGISTERS * WARP * warps
    return context.machine.units * max(1, context.machine.registers // registers)


def _narrow(facts: Facts) -> bool:
    """Whether lanes read element by element: few bytes are on their way at a time."""
    return any(pitch_reason(access_of(x.operation), facts, "") for x in facts.loads)


def moves(facts: Facts, grid: Operation, load: Load) -> tuple[int, int] | None:
    """The axis of the view along which a load moves with the grid, and after how many groups it
    moves by one; None where that is not known."""
    if load.inside != (grid,):
        return None
    variables = grid.regions[0].arguments
    for place, variable in enumerate(variables):
        if depends_on(load.extents, variable, facts):
            continue
        if variable in load.starts and _number(facts, grid, 2, place) == 1:
            behind = [_trips(facts, grid, p) for p in range(place + 1, len(variables))]
            groups = 1
            for trips in behind:
                if trips is None:
                    return None
                groups *= trips
            return load.starts.index(variable), groups
    return None


def _number(facts: Facts, grid: Operation, part: int, axis: int) -> int | None:
    operands: tuple[Value, ...] = grid.operands
    return facts.constant(operands[part * len(grid.regions[0].arguments) + axis])


def _trips(facts: Facts, grid: Operation, axis: int) -> int | None:
    low, high, step = (_number(facts, grid, part, axis) for part in range(3))
    if low is None or high is None or not step:
        return None
    return -(-(high - low) // step)
