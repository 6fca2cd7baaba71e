"""Who does what in a group: one warp group that moves data, others that compute.

Owns the conditions under which a kernel is split into roles, the number of warps of each, and
their registers. Where it is not split, says how many warps a group has. Must not know how
roles are lowered.
"""

from __future__ import annotations

import math

from tessera_lang.ir.core import Attribute, Program
from tessera_lang.opt.schedule.context import (
    Context,
    overruled,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.facts import Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.producer import producer_reason
from tessera_lang.opt.schedule.promote import is_promoted
from tessera_lang.opt.schedule.rings import is_staged
from tessera_lang.opt.schedule.rows import row_warps
from tessera_lang.opt.schedule.units import (
    by_registers,
    consumer_groups,
    element_bits,
    promoted_parts,
)

PRODUCER_WARPS = 4
_REGISTERS = {1: (0, 0), 2: (40, 232), 3: (32, 160), 4: (24, 120)}
"""Of the lanes of the producer and of each consumer, by the number of consumers: all warp groups
together have 512 registers a lane. With one consumer every lane has as many as it can (0)."""
HEAVY = {2: (24, 240)}
_HEAVY_FROM = 160


def assign_roles(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    facts = facts_of(kernel)
    reason = specialise_reason(facts, context)
    if reason:
        if said_by_user(kernel, "warp_specialize") and kernel.attributes["warp_specialize"]:
            kernel = overruled(kernel, "warp_specialize", False, context, reason)
        elif facts.dots and context.machine.has("tma"):
            context.note("T0745", f"not split into producer and consumers: {reason}", kernel.span)
        return with_kernel(program, with_decisions(kernel, {"warps": _plain_warps(facts)}))
    groups = _groups(facts)
    warps = kernel.attributes.get("warps")
    if said_by_user(kernel, "warps") and isinstance(warps, int):
        if warps % 4 == 0 and 0 < warps <= 16 and _shares(facts, warps // 4):
            groups = warps // 4
        else:
            reason = f"warp groups of 4 share rows of 64, which {warps} warps do not"
            kernel = overruled(kernel, "warps", 4 * groups, context, reason)
    heavy = accumulators(facts, groups) > _HEAVY_FROM
    if any(is_promoted(d.operation, facts) for d in facts.dots):
        heavy = False  # a part of an accumulator is gone before the next is made
    registers = HEAVY if heavy else _REGISTERS
    decisions: dict[str, Attribute] = {
        "roles": (PRODUCER_WARPS, 4 * groups),
        "registers": registers.get(groups, _REGISTERS[groups]),
        "warps": 4 * groups,
        "warp_specialize": True,
    }
    return with_kernel(program, with_decisions(kernel, decisions))


def specialise_reason(facts: Facts, context: Context) -> str:
    """Why a kernel is not split into roles; empty where it is."""
    machine = context.machine
    if not (machine.has("tma") and machine.has("setmaxnreg") and machine.arch.endswith("a")):
        return f"{machine.arch} has no registers to move between warp groups"
    if facts.kernel.attributes.get("warp_specialize") is False:
        return "`schedule.warp_specialize(False)`"
    if not facts.dots:
        return "it has no product"
    if facts.grid is None:
        return "it has no loop, or several, whose iterations are groups"
    if any(d.operation.attributes.get("unit") != "wgmma" for d in facts.dots):
        return "not every product is done by wgmma"
    staged = [x for x in facts.loads if is_staged(x)]
    if not staged or any(x.operation.attributes.get("copy") != "tma" for x in staged):
        return "not every staged tile is moved by TMA"
    if any(facts.grid not in x.inside for x in staged):
        return "a tile is staged outside the grid"
    if not _shares(facts, _groups(facts)):
        return "the rows of its products are not shared by the same warp groups"
    return producer_reason(facts)


def _groups(facts: Facts) -> int:
    rows = [int(d.shape[0]) for d in facts.dots]
    return consumer_groups(math.gcd(*rows))


def _shares(facts: Facts, groups: int) -> bool:
    return all(int(d.shape[0]) % (64 * groups) == 0 for d in facts.dots)


def accumulators(facts: Facts, groups: int) -> int:
    """Registers of a lane that all accumulators and computed first operands take."""
    total = 0
    for dot in facts.dots:
        m, n, k = (int(s) for s in dot.shape)
        held = m * n // (128 * groups)
        total += held
        if is_promoted(dot.operation, facts):
            total += held // promoted_parts(m, n)
        if dot.a.load is None or by_registers(dot, facts):
            total += m * k * element_bits(dot) // (4096 * groups)
    return total


def _plain_warps(facts: Facts) -> int:
    if not facts.dots:
        return row_warps(facts)
    largest = max(int(d.shape[0]) * int(d.shape[1]) for d in facts.dots)
    return 8 if largest >= 128 * 128 else 4
