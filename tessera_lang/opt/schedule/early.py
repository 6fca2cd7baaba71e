"""Groups of rows that stay, and load the next row before they compute this one.

The groups of a cluster load, then meet, then compute, and meet again; nothing is on its way
meanwhile, and a cluster begins only where all its groups find room. Groups that stay have the next
row on its way all the time, in registers that hold it as it lies in memory. Owns which kernels
and loads. Must not know how the loop is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.ir.core import Attribute, Operation, Program, Value, ViewType
from tessera_lang.opt.schedule.ahead import groups_at_once, moves
from tessera_lang.opt.schedule.context import (
    Context,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.copies import access_of, pitch_reason
from tessera_lang.opt.schedule.facts import Estimate, Facts, Load, facts_of, kernel_of
from tessera_lang.opt.schedule.rows import WARP, held_bytes
from tessera_lang.opt.schedule.slices import depends_on

_WAVES = 2
"""Iterations of a group from which on it stays: the last one loads in vain."""
_OTHERS, _UNIT, _MOST = 16, 8, 248
"""Registers of a lane beside its rows; they come in eights."""
_LEAST_STAGES, _MOST_STAGES = 2, 4
_OTHER_BYTES = 2048
"""Shared memory of a group beside its rows: what warps and groups exchange, and the driver's."""


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
    loads = [
        load for load in facts.loads
        if moves(facts, facts.grid, load) is not None and not _is_written(load.view)
    ]  # fmt: skip
    if not loads:
        return program
    kept = _kept(facts, facts.grid)
    groups, stages = _ring(facts, loads, context, kept)
    attributes: dict[str, Attribute] = {"early": True}
    marked: dict[Operation, dict[str, Attribute]] = {}
    if stages:
        attributes |= {"stage": "shared", "copy": "async", "stages": stages}
        if AGAIN:
            attributes["again"] = True
        for load in kept:
            marked[load.operation] = {"kept": True}
            if KEEP == "shared" or (KEEP == "mixed" and load is not kept[0]):
                marked[load.operation] |= {"stage": "shared", "copy": "async", "stages": 1}
        if BEGIN and (stages > 2 or not AGAIN) and (first := _first(facts)) is not None:
            marked[first] = {"begun": True}
    else:
        groups = _groups(kernel, sum(map(_bytes, loads)), context)
    lanes = WARP * _warps(kernel)
    registers = min(_MOST, context.machine.registers // (groups * lanes) // _UNIT * _UNIT)
    decisions: dict[str, Attribute] = {"persistent": True, "registers": (registers,)}
    marked |= {load.operation: attributes for load in loads}
    kernel = with_attributes(kernel, marked)
    return with_kernel(program, with_decisions(kernel, decisions))


AGAIN, BEGIN, KEEP = False, False, ""


def _kept(facts: Facts, grid: Operation) -> list[Load]:
    """Loads that are the same in all iterations of a group: its part of a row is, as it stays in
    its place of the cluster."""
    if not KEEP:
        return []
    *others, _ = grid.regions[0].arguments
    return [
        load for load in facts.loads
        if load.inside == (grid,) and not _is_written(load.view)
        and not any(depends_on((*load.starts, *load.extents), one, facts) for one in others)
    ]  # fmt: skip


def _first(facts: Facts) -> Operation | None:
    """The first reduction of a row, if groups share it."""
    found = [o for o in facts.kernel.walk() if o.name.endswith("schedule.reduce")]
    return found[0] if found and "across" in found[0].attributes else None


def _ring(
    facts: Facts, loads: Sequence[Load], context: Context, kept: Sequence[Load]
) -> tuple[int, int]:
    """How many groups share a multiprocessor, and how many rows of each its shared memory takes;
    0 where asynchronous copies do not move them."""
    machine, row = context.machine, sum(map(_bytes, loads))
    groups = _groups(facts.kernel, 0, context)
    there = _OTHER_BYTES
    if KEEP in ("shared", "mixed"):
        there += sum(map(_bytes, kept if KEEP == "shared" else kept[1:]))
    if not machine.has("cp_async"):
        return groups, 0
    if any(pitch_reason(access_of(x.operation), facts, "") for x in loads):
        return groups, 0
    while groups > 1 and machine.shared_limit // groups < _LEAST_STAGES * row + there:
        groups -= 1
    stages = min(_MOST_STAGES, (machine.shared_limit // groups - there) // row)
    return groups, stages if stages >= _LEAST_STAGES else 0


def _groups(kernel: Operation, carried: int, context: Context) -> int:
    """How many groups the registers of a multiprocessor hold: of each a row as it is computed in,
    and ``carried`` bytes."""
    needed = (held_bytes(kernel) + carried) // 4 + _OTHERS * WARP * _warps(kernel)
    return max(1, context.machine.registers // needed)


def _warps(kernel: Operation) -> int:
    warps = kernel.attributes["warps"]
    assert isinstance(warps, int)
    return warps


def _bytes(load: Load) -> int:
    return prod(load.tile.sizes) * load.tile.dtype.bytes


def _is_shared(kernel: Operation) -> bool:
    """Whether the groups of a cluster share a row."""
    return any("across" in o.attributes for o in kernel.walk())


def _stays(facts: Facts, grid: Operation, context: Context) -> bool:
    groups = Estimate(facts, {}).trips(grid)
    return groups is None or groups >= _WAVES * groups_at_once(facts.kernel, context)


def _is_written(view: Value) -> bool:
    return not isinstance(view.type, ViewType) or view.type.mut
