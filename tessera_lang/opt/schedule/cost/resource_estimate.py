"""What tiles of candidate sizes would take: registers of a lane, bytes of shared memory.

Estimates for the choice among candidates, before loads are staged and units assigned; the exact
tables decide later. Must not choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tessera_lang.ir.core import Operation, TileType
from tessera_lang.opt.schedule.query.computed_tile_source import feeds
from tessera_lang.opt.schedule.query.decision_context import said_by_user
from tessera_lang.opt.schedule.query.kernel_facts import DOT, Dot, Facts
from tessera_lang.opt.schedule.query.unit_legality import (
    accumulator_registers,
    by_registers,
    element_bits,
    has_matrix_dtype,
    is_imprecise,
    promoted_parts,
)
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    ESTIMATED_COMPUTED,
    ESTIMATED_SLOTS,
    ESTIMATED_STAGES,
    FMA_REGISTERS,
    PRODUCT_REGISTERS,
)


def sizes_of(tile: TileType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sizes.get(n, 64) if isinstance(n, str) else n for n in tile.shape)


def dot_registers(dot: Dot, sizes: Mapping[str, int], facts: Facts, machine: Machine) -> int:
    """Registers of a lane that a product holds."""
    m, n = sizes_of(dot.operation.result.tile_type, sizes)[-2:]
    k = sizes_of(dot.operation.operands[0].tile_type, sizes)[-1]
    said = _said_warps(facts)
    if not has_matrix_dtype(dot):
        t = dot.operation.result.tile_type
        warps = said or (8 if m * n >= 128 * 128 else 4)
        held = m * n * t.dtype.bits // (32 * 32 * warps)
        return held if held <= FMA_REGISTERS else PRODUCT_REGISTERS + 1
    held = accumulator_registers(m, n, machine)
    if said and (not machine.has("wgmma") or m % (16 * said) == 0):
        held = m * n // (32 * said)
    if machine.has("wgmma") and m % 64 == 0:
        if is_imprecise(dot):
            parts, ahead = promoted_parts(m, n)
            held += held * (1 + ahead) // parts
        if by_registers(dot, facts):
            held += held * k * element_bits(dot) // (32 * n)
    return held


def all_dot_registers(facts: Facts, sizes: Mapping[str, int], machine: Machine) -> int:
    """Registers of a lane that the products of a kernel hold: those that add to the result of
    another have its accumulator."""
    held: dict[Operation, int] = {}
    for dot in facts.dots:
        first = first_of(dot, facts)
        held[first] = max(held.get(first, 0), dot_registers(dot, sizes, facts, machine))
    return sum(held.values())


def first_of(dot: Dot, facts: Facts) -> Operation:
    """The first of the products that add to one sum, one right behind the other."""
    at = dot.operation
    while (before := facts.definitions.get(at.operands[2])) is not None and before.name == DOT:
        at = before
    return at


def _said_warps(facts: Facts) -> int:
    """Warps that the user asks for; 0 where nothing is said."""
    warps = facts.kernel.attributes.get("warps")
    return warps if isinstance(warps, int) and said_by_user(facts.kernel, "warps") else 0


def shared_bytes(facts: Facts, sizes: Mapping[str, int]) -> int:
    """Bytes of the staged tiles, three stages each; of operands that are computed, and of what
    they are computed from, two stages."""
    total, direct = 0, set[int]()
    counted: set[tuple[Operation, Operation]] = set()
    for dot in facts.dots:
        for operand in (dot.a, dot.b):
            size = _bytes(operand.value.tile_type, sizes)
            if operand.load is not None:
                once = first_of(dot, facts), operand.load.operation
                direct.add(id(operand.load.operation))
                total += ESTIMATED_STAGES * size if once not in counted else 0
                counted.add(once)
            elif operand is dot.b:
                total += size
    computed = any(x.load is None for d in facts.dots for x in (d.a, d.b))
    for load in facts.loads if computed else ():
        if id(load.operation) in direct or load.loop is None or len(load.tile.shape) < 2:
            continue
        if feeds(load, facts):
            total += ESTIMATED_COMPUTED * _bytes(load.tile, sizes)
    return total + (ESTIMATED_SLOTS if computed else 0)


def _bytes(tile: TileType, sizes: Mapping[str, int]) -> int:
    return tile.dtype.bytes * math.prod(sizes_of(tile, sizes))
