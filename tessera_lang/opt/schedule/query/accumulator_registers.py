"""Registers of a lane that the accumulators of products take.

Owns the count and the most there may be. Must not know passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.kernel_facts import (
    Dot,
    Facts,
)
from tessera_lang.opt.schedule.query.unit_legality import (
    by_registers,
    element_bits,
    is_imprecise_dtype,
    promoted_parts,
)
from tessera_lang.target.arch.isa_constants import LANE_REGISTERS
from tessera_lang.target.tuning import OTHER_REGISTERS, ROLE_REGISTERS


def is_promoted(dot: Operation, facts: Facts) -> bool:
    """Whether the sums of a product's iterations are added outside the unit: both take
    registers."""
    users = facts.users.get(dot.result, [])
    made = facts.definitions.get(dot.operands[2])
    if made is None or made.name != PREFIX + "full" or len(users) != 1:
        return False
    (add,) = users
    imprecise = all(is_imprecise_dtype(v.type) for v in dot.operands[:2])
    return imprecise and add.name == "tile.add" and _is_known(add, dot, facts)


def _is_known(add: Operation, dot: Operation, facts: Facts) -> bool:
    """Whether what is added to a product is there before it."""
    other = next((v for v in add.operands if v is not dot.result), dot.result)
    made = facts.definitions.get(other)
    for operation in facts.kernel.walk():
        if operation is made:
            return True
        if operation is dot:
            return made is None
    return False


def accumulators(facts: Facts, groups: int, dots: Sequence[Dot] | None = None) -> int:
    """Registers of a lane that the accumulators and computed first operands of products (all,
    where none are named) take."""
    total = 0
    for dot in facts.dots if dots is None else dots:
        m, n, k = (int(s) for s in dot.shape)
        held = m * n // (128 * groups)
        total += held
        if is_promoted(dot.operation, facts):
            parts, ahead = promoted_parts(m, n)
            total += held * (1 + ahead) // parts
        if dot.a.load is None or by_registers(dot, facts):
            total += m * k * element_bits(dot) // (4096 * groups)
    return total


def most_accumulators(groups: int) -> int:
    """Registers of a lane for what ``accumulators`` counts."""
    return (ROLE_REGISTERS[groups][1] or LANE_REGISTERS) - OTHER_REGISTERS
