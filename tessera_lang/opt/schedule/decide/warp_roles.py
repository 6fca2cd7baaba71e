"""Warp specialization: one warp group of a group moves data, the others compute.

Owns the conditions under which a kernel is split into roles, the number of warps of each, and
their registers. Where it is not split, says how many warps a group has. Must not know how
roles are lowered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera_lang.ir.core import Attribute, Program
from tessera_lang.opt.schedule.cost.workload import store_bytes
from tessera_lang.opt.schedule.decide.row_kernels import row_warps
from tessera_lang.opt.schedule.query.accumulator_registers import accumulators, is_promoted
from tessera_lang.opt.schedule.query.copy_rules import array_name
from tessera_lang.opt.schedule.query.decision_context import (
    COST,
    LEGALITY,
    Context,
    decides,
    overruled,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.fma_operands import (
    fills,
    flow_warps,
    lanes_line,
    may_be_plain,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    GATHER,
    Dot,
    Estimate,
    Facts,
    Load,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.occupancy_budget import room_of_residents
from tessera_lang.opt.schedule.query.producer_lane_copies import (
    ends_early,
    is_by_lanes,
    is_transposed,
    is_written,
    lanes_reason,
)
from tessera_lang.opt.schedule.query.producer_slice import moved_by_lanes, producer_reason
from tessera_lang.opt.schedule.query.staging_rings import is_staged, tile_bytes
from tessera_lang.opt.schedule.query.unit_legality import (
    consumer_groups,
    through_shared,
)
from tessera_lang.target.arch.isa_constants import COPY_BYTES, WARP_GROUP
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    BETWEEN_REGISTERS,
    GROUP_WARPS,
    HEAVY_FROM,
    HEAVY_MOVING_REGISTERS,
    HEAVY_REGISTERS,
    MOVING_REGISTERS,
    PIECE_REGISTERS,
    ROLE_REGISTERS,
    TWO_RESIDENTS,
)


@decides
def assign_roles(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    facts = facts_of(kernel)
    refused = context.refusals.get("roles")
    reason = refused.reason if refused is not None else specialise_reason(facts, context)
    if reason:
        context.reasons["roles"] = reason
        if said_by_user(kernel, "warp_specialize") and kernel.attributes["warp_specialize"]:
            kernel = overruled(kernel, "warp_specialize", False, context, reason)
        elif facts.dots and context.machine.has_roles:
            span = (refused.span if refused is not None else None) or kernel.span
            context.note("T0745", f"not split into producer and consumers: {reason}", span)
        gathers = [x for x in facts.reads if x.operation.name == GATHER and is_staged(x)]
        kernel = with_attributes(kernel, {x.operation: {"stage": "registers"} for x in gathers})
        warps, origin = _plain_warps(facts, context)
        return with_kernel(program, with_decisions(kernel, {"warps": warps}, origin))
    groups = _groups(facts)
    warps = kernel.attributes.get("warps")
    if said_by_user(kernel, "warps") and isinstance(warps, int):
        if warps % 4 == 0 and 0 < warps <= 16 and _shares(facts, warps // 4):
            groups = warps // 4
        else:
            reason = f"warp groups of 4 share rows of 64, which {warps} warps do not"
            kernel = overruled(kernel, "warps", 4 * groups, context, reason)
    heavy = accumulators(facts, groups) > HEAVY_FROM
    if any(is_promoted(d.operation, facts) for d in facts.dots):
        heavy = False  # a part of an accumulator is gone before the next is made
    usual, most = ROLE_REGISTERS, HEAVY_REGISTERS
    if moved_by_lanes(facts):
        usual, most = MOVING_REGISTERS, HEAVY_MOVING_REGISTERS
    decisions: dict[str, Attribute] = {
        "roles": (WARP_GROUP, 4 * groups),
        "registers": (most if heavy else usual).get(groups, usual[groups]),
        "warps": 4 * groups,
        "warp_specialize": True,
    }
    if groups == 1 and not context.relief and _may_be_two(facts, context.machine):
        decisions.update(registers=TWO_RESIDENTS, residents=2)
    if context.relief and moved_by_lanes(facts):
        decisions["pieces"] = PIECE_REGISTERS
    return with_kernel(program, with_decisions(kernel, decisions))


def _may_be_two(facts: Facts, machine: Machine) -> bool:
    """Whether two groups of one consumer run beside each other: lanes of one compute what a
    product takes while the unit multiplies for the other. Both have half of the registers and of
    shared memory, two places of what loops bring, and tiles enough."""
    if moved_by_lanes(facts) or not any(x.load is None for d in facts.dots for x in (d.a, d.b)):
        return False
    if any(through_shared(d, x, facts) for d in facts.dots for x in (d.a, d.b)):
        return False
    if accumulators(facts, 1) + BETWEEN_REGISTERS[1] > TWO_RESIDENTS[1]:
        return False
    tiles = Estimate(facts, {}).trips(facts.grid) if facts.grid is not None else None
    if tiles is None or tiles < 2 * machine.units or not machine.has("setmaxnreg"):
        return False
    shared = store_bytes(facts, {}) + sum(
        tile_bytes(x.tile) * (1 if x.loop is None else 2) for x in facts.reads if is_staged(x)
    )
    return shared <= room_of_residents(2, machine)


def split_reason(facts: Facts, machine: Machine) -> str:
    """Why a kernel is surely not split into roles, whatever is staged; empty where it may be."""
    if not machine.has_roles:
        return f"{machine.arch} has no registers to move between warp groups"
    if facts.kernel.attributes.get("warp_specialize") is False:
        return "`schedule.warp_specialize(False)`"
    if not facts.dots:
        return "it has no product"
    if facts.grid is None:
        return "it has no loop, or several, whose iterations are groups"
    by_unit = [d for d in facts.dots if d.operation.attributes.get("unit") == "wgmma"]
    if len(by_unit) == len(facts.dots):
        return ""
    others = [d for d in facts.dots if d.operation.attributes.get("unit") != "wgmma"]
    if not all(_is_plain(d, facts) for d in others):
        return "not every product is done by wgmma"
    if by_unit:
        return ""
    if not said_by_user(facts.kernel, "warp_specialize") and not all(map(fills, facts.dots)):
        return "other groups run beside while lanes bring the next tiles themselves"
    return ""


def _is_plain(dot: Dot, facts: Facts) -> bool:
    """Whether lanes multiply and add what two staged tiles of 32 bits hold, along whose lines they
    read vectors, and share the columns evenly."""
    loads = all(not x.swapped and lanes_line(x, facts) < 0 for x in (dot.a, dot.b))
    return loads and may_be_plain(dot)


def specialise_reason(facts: Facts, context: Context) -> str:
    """Why a kernel is not split into roles; empty where it is."""
    reason = split_reason(facts, context.machine)
    if reason:
        return reason
    staged = [x for x in facts.reads if is_staged(x)]
    reason = _moving_reason(staged, facts)
    if reason:
        return reason
    if any(facts.grid not in x.inside for x in staged):
        return "a tile is staged outside the grid"
    if not _shares(facts, _groups(facts)):
        return "the rows of its products are not shared by the same warp groups"
    return producer_reason(facts)


def _moving_reason(staged: Sequence[Load], facts: Facts) -> str:
    """Why one role cannot move all staged tiles. Where a loop loads single elements though they lie
    as products need them, more lanes than one role has are faster; what is brought once for a tile
    of the result costs all products less than their unit saves."""
    lanes = [x for x in staged if is_by_lanes(x)]
    needed = [
        x for x in staged
        if x.operation.name == GATHER or is_transposed(x, facts) or ends_early(x, facts)
    ]  # fmt: skip
    plain = [x for x in lanes if x not in needed and x.operation.attributes["copy"] == "plain"]
    written = [x for x in plain if is_written(x.operation, facts)]
    single = written or [x for x in plain if x.loop is not None]
    if not staged:
        return "no product reads a tile of an array, so there is nothing to move ahead"
    if single:
        return _single_reason(single[0], facts)
    if lanes and facts.kernel.attributes.get("async_copy") is False:
        return "`schedule.async_copy(False)`"
    for read in lanes:
        reason = lanes_reason(read, facts)
        if reason:
            return f"a tile of `{array_name(facts, read.view)}` cannot be moved ahead: {reason}"
    return ""


def _single_reason(read: Load, facts: Facts) -> str:
    """Why a tile is moved by more lanes than one role has."""
    name = array_name(facts, read.view)
    if facts.kernel.attributes.get("async_copy") is False:
        return "`schedule.async_copy(False)`"
    if is_written(read.operation, facts):
        return f"lanes bring the tile of `{name}`, which this kernel also writes"
    return (
        f"lanes bring the tile of `{name}` one element at a time, for which one role has too few;"
        f" lines of `{name}` that begin at multiples of {COPY_BYTES} bytes are copied"
        " asynchronously, at multiples of 16 by TMA"
    )


def _groups(facts: Facts) -> int:
    rows = [int(d.shape[0]) for d in facts.dots]
    return consumer_groups(math.gcd(*rows))


def _shares(facts: Facts, groups: int) -> bool:
    return all(int(d.shape[0]) % (64 * groups) == 0 for d in facts.dots)


def _plain_warps(facts: Facts, context: Context) -> tuple[int, str]:
    """Warps of a group, and who says so: more of them where their lanes had too few registers."""
    if not facts.dots:
        return row_warps(facts, context.machine), COST
    return min(
        GROUP_WARPS, flow_warps(facts) << context.relief
    ), LEGALITY if context.relief else COST
