"""Iterations that do so little that a lane does each: an element at a time, written as a loop.

A group for each of them would leave most of its lanes without work. Owns when that is better. Must
not know how such a kernel is lowered.
"""

from __future__ import annotations

from tessera_grammar.directives import attributes

from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.definitions import REPORTS, WRITES
from tessera_lang.opt.schedule.cost.lane_sized_iterations import (
    elements_of_an_iteration,
    held_by_an_iteration,
    is_scalar,
    is_stored_small,
    neighbours_lie_together,
    one_lane_can,
)
from tessera_lang.opt.schedule.query.decision_context import (
    COST,
    Context,
    decides,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    Estimate,
    facts_of,
    is_grid,
    kernel_of,
    open_names,
)
from tessera_lang.target.tuned_constants import (
    LANE_ELEMENTS,
    LANE_HELD,
    LANE_ITERATIONS,
    LANE_STORED,
    LOOP_WARPS,
)

BY_LANES = "lanes"
_DIRECTIVES = frozenset(name for name, _ in attributes())


@decides
def take_lanes(program: Program, context: Context) -> Program:
    """Marks a kernel whose iterations lanes take, with tiles of one element."""
    kernel = kernel_of(program)
    if context.machine.target != "cuda" or not _is_counted(kernel, context) or not _pays(kernel):
        return program
    sizes = {"tile": (1,) * len(names)} if (names := open_names(kernel)) else {}
    made = with_decisions(kernel, {**sizes, "iterations": BY_LANES, "warps": LOOP_WARPS}, COST)
    return with_kernel(program, made)


def is_by_lanes(kernel: Operation) -> bool:
    return kernel.attributes.get("iterations") == BY_LANES


def _is_counted(kernel: Operation, context: Context) -> bool:
    """Whether the program says the steps of the grid, and the launch knows how many there are."""
    grid = facts_of(kernel).grid
    if grid is None or context.numbers is None:
        return False
    known = context.numbers(kernel)
    axes = len(grid.strings("axes"))
    steps = [known.dim(v) for v in grid.operands[2 * axes : 3 * axes]]
    bounds = [known.dim(v) for v in grid.operands[: 2 * axes]]
    return None not in bounds and all(isinstance(n, int) for n in steps)


def _pays(kernel: Operation) -> bool:
    facts = facts_of(kernel)
    if _DIRECTIVES & set(kernel.attributes) or facts.grid is None or facts.dots:
        return False
    top = kernel.regions[0].operations
    others = [o for o in top if o is not facts.grid]
    if facts.grid not in top or any(o.holds(WRITES | REPORTS) for o in others):
        return False
    if any(is_grid(o) for o, around in facts.loops if around):
        return False
    many = Estimate(facts, {}).trips(facts.grid)
    if not one_lane_can(facts.grid) or (many is not None and many < LANE_ITERATIONS):
        return False
    if is_scalar(facts.grid):
        return True
    work = elements_of_an_iteration(facts, facts.grid)
    return (
        work is not None
        and 0 < work <= LANE_ELEMENTS
        and held_by_an_iteration(facts.grid) <= LANE_HELD
        and is_stored_small(facts, LANE_STORED)
        and neighbours_lie_together(facts, facts.grid)
    )
