"""Registers of a lane that the accumulators of products take.

Owns the count and the most there may be. Must not know passes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.accumulator_liveness import Need, most_at_once
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
from tessera_lang.target.tuned_constants import OTHER_REGISTERS, ROLE_REGISTERS


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


def accumulators(facts: Facts, groups: int) -> int:
    """The most registers of a lane that the accumulators and computed first operands of products
    take at once."""
    return most_at_once(facts, {id(d.operation): _need(d, facts, groups) for d in facts.dots})


def side_by_side(dots: Sequence[Dot], facts: Facts, groups: int) -> int:
    """The same where these products are all alive at once."""
    needs = (_need(d, facts, groups) for d in dots)
    return sum(n.result + n.operand + n.beside for n in needs)


def _need(dot: Dot, facts: Facts, groups: int) -> Need:
    m, n, k = (int(s) for s in dot.shape)
    held = m * n // (128 * groups)
    operand = m * k * element_bits(dot) // (4096 * groups)
    computed, beside = dot.a.load is None, 0
    if is_promoted(dot.operation, facts):
        parts, ahead = promoted_parts(m, n)
        beside = held * (1 + ahead) // parts
    if not computed and by_registers(dot, facts):
        beside += operand
    return Need(held, operand if computed else 0, beside)


def most_accumulators(groups: int) -> int:
    """Registers of a lane for what ``accumulators`` counts."""
    return (ROLE_REGISTERS[groups][1] or LANE_REGISTERS) - OTHER_REGISTERS
