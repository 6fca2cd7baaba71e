"""Groups of rows that stay, and load the next row before they compute this one.

The groups of a cluster load, then meet, then compute, and meet again; nothing is on its way
meanwhile, and a cluster begins only where all its groups find room. Groups that stay have the next
row on its way all the time, in registers that hold it as it lies in memory. Owns which kernels
and loads. Must not know how the loop is built.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Attribute, Operation, Program, TileType, Value, ViewType
from tessera_lang.opt.schedule.ahead import groups_at_once, moves
from tessera_lang.opt.schedule.context import (
    Context,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.facts import Estimate, Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.rows import WARP, held_bytes

_WAVES = 2
"""Iterations of a group from which on it stays: the last one loads in vain."""
_OTHERS, _UNIT, _MOST = 16, 8, 248
"""Registers of a lane beside its rows; they come in eights."""


def load_early(program: Program, context: Context) -> Program:
    """Rows that clusters share: their groups stay."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if context.machine.target == "cpu" or facts.grid is None or facts.dots:
        return program
    if not _is_shared(kernel):
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
    early = sum(o.result.type.dtype.bytes * prod(o.result.type.sizes) for o in found
                if isinstance(o.result.type, TileType))  # fmt: skip
    registers = _registers(kernel, early, context)
    decisions: dict[str, Attribute] = {"persistent": True, "registers": (registers,)}
    return with_kernel(program, with_decisions(with_attributes(kernel, found), decisions))


def _registers(kernel: Operation, early: int, context: Context) -> int:
    """What a lane may have, so that as many groups share a multiprocessor as hold two rows each:
    one as it is computed in, one as it lies in memory."""
    warps = kernel.attributes["warps"]
    assert isinstance(warps, int)
    lanes = WARP * warps
    needed = (held_bytes(kernel) + early) // 4 + _OTHERS * lanes
    groups = max(1, context.machine.registers // needed)
    return min(_MOST, context.machine.registers // (groups * lanes) // _UNIT * _UNIT)


def _is_shared(kernel: Operation) -> bool:
    """Whether the groups of a cluster share a row."""
    return any("across" in o.attributes for o in kernel.walk())


def _stays(facts: Facts, grid: Operation, context: Context) -> bool:
    groups = Estimate(facts, {}).trips(grid)
    return groups is None or groups >= _WAVES * groups_at_once(facts.kernel, context)


def _is_written(view: Value) -> bool:
    return not isinstance(view.type, ViewType) or view.type.mut
