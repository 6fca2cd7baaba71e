"""Groups of rows that stay, and load the next row before they compute this one.

The groups of a cluster load, then meet, then compute, and meet again; nothing is on its way
meanwhile, and a cluster begins only where all its groups find room. Groups that stay have the next
row on its way all the time, in registers that hold it as it lies in memory. Owns which kernels
and loads. Must not know how the loop is built.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program, Value, ViewType
from tessera_lang.opt.schedule.ahead import groups_at_once, moves
from tessera_lang.opt.schedule.context import (
    Context,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.facts import Estimate, Facts, facts_of, kernel_of

_WAVES = 2
"""Iterations of a group from which on it stays: the last one loads in vain."""


def load_early(program: Program, context: Context) -> Program:
    """Rows that clusters share: their groups stay."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    shared = any("across" in o.attributes for o in kernel.walk())
    if context.machine.target == "cpu" or facts.grid is None or facts.dots or not shared:
        return program
    if said_by_user(kernel, "persistent") or not _stays(facts, facts.grid, context):
        return program
    found: dict[Operation, dict[str, Attribute]] = {
        load.operation: {"early": True}
        for load in facts.loads
        if moves(facts, facts.grid, load) is not None and not _is_written(load.view)
    }
    if not found:
        return program
    decisions: dict[str, Attribute] = {"persistent": True, "registers": (_registers(kernel),)}
    return with_kernel(program, with_decisions(with_attributes(kernel, found), decisions))


def _registers(kernel: Operation) -> int:
    """What a lane may have, so that as many groups share a multiprocessor as without a second row:
    as it lies in memory it takes half of what it is computed in, or less."""
    return 64


def _stays(facts: Facts, grid: Operation, context: Context) -> bool:
    groups = Estimate(facts, {}).trips(grid)
    return groups is None or groups >= _WAVES * groups_at_once(facts.kernel, context)


def _is_written(view: Value) -> bool:
    return not isinstance(view.type, ViewType) or view.type.mut
