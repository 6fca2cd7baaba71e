"""Loads of what no other group reads go past the first-level cache.

Where groups read tiles that are theirs alone beside tiles that all of them read (the weights of a
norm), the first push the second out of the cache of their multiprocessor, though nobody asks for
them again. Owns which loads. Must not know how a load is told.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Attribute, Operation, Program
from tessera_lang.opt.schedule.context import Context, with_attributes, with_kernel
from tessera_lang.opt.schedule.facts import Facts, Load, facts_of, kernel_of
from tessera_lang.opt.schedule.slices import depends_on

_LEAST = 16384
"""Bytes that other groups read too, from which on there is something to keep."""


def pass_by(program: Program, context: Context) -> Program:
    """Tiles of one group only, beside others that are worth keeping."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if context.machine.target == "cpu" or facts.grid is None or facts.dots:
        return program
    alone = [load for load in facts.loads if _is_alone(facts, facts.grid, load)]
    kept = sum(
        prod(load.tile.sizes) * load.tile.dtype.bytes for load in facts.loads if load not in alone
    )
    if kept < _LEAST:
        return program
    found: dict[Operation, dict[str, Attribute]] = {o.operation: {"once": True} for o in alone}
    return with_kernel(program, with_attributes(kernel, found))


def _is_alone(facts: Facts, grid: Operation, load: Load) -> bool:
    """Whether each group reads a part of the array that is its own, by this load alone."""
    if sum(other.view is load.view for other in facts.loads) > 1 or load.inside != (grid,):
        return False
    return all(depends_on(load.starts, v, facts) for v in grid.regions[0].arguments)
