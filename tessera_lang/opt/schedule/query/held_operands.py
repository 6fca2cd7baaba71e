"""First operands of products that lanes hold in registers through a loop.

The asynchronous unit reads 64 rows of a first operand and all columns of the second one from shared
memory. Of few columns that takes as long as the product itself, and what is brought meanwhile is in
the way. A first operand that stays the same in the loop is read to registers once, where there
are some to spare. Owns these conditions. Must not know how operands are read.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.opt.schedule.query.accumulator_registers import accumulators
from tessera_lang.opt.schedule.query.kernel_facts import Dot, Facts, is_grid
from tessera_lang.opt.schedule.query.staging_rings import is_staged
from tessera_lang.opt.schedule.query.unit_legality import SHARED, element_bits, operand_places
from tessera_lang.target.arch.isa_constants import LANE_REGISTERS
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuning import BETWEEN_REGISTERS, HELD_SPARE


def held_firsts(facts: Facts, machine: Machine) -> frozenset[Operation]:
    """The products of a kernel with roles whose first operand is held."""
    groups = facts.kernel.integers("roles")[1] // 4
    most = facts.kernel.integers("registers")[1] or LANE_REGISTERS
    spare = BETWEEN_REGISTERS.get(groups, BETWEEN_REGISTERS[1])
    room = most - spare - accumulators(facts, groups) - HELD_SPARE
    found: list[Operation] = []
    for load, dots in _by_load(facts).items():
        loops = [_loops_behind(load, d) for d in dots]
        sizes = {_registers(d, groups) for d in dots}
        if not any(loops) or not all(_may_be_held(d, facts) for d in dots) or max(sizes) > room:
            continue
        if any(behind and _is_limited(d, machine) for behind, d in zip(loops, dots, strict=True)):
            room -= max(sizes)
            found += [d.operation for d in dots]
    return frozenset(found)


def _by_load(facts: Facts) -> dict[Operation, list[Dot]]:
    """Products by the staged load that is their first operand."""
    found: dict[Operation, list[Dot]] = {}
    for dot in facts.dots:
        if dot.a.load is not None and is_staged(dot.a.load):
            found.setdefault(dot.a.load.operation, []).append(dot)
    return found


def _loops_behind(load: Operation, dot: Dot) -> bool:
    """Whether a loop has the product in it, and not the load."""
    assert dot.a.load is not None
    return any(
        o.name in LOOPS and not is_grid(o) and o not in dot.a.load.inside for o in dot.inside
    )


def _may_be_held(dot: Dot, facts: Facts) -> bool:
    """Whether it lies in registers as in memory, and nothing else reads it from there."""
    assert dot.a.load is not None
    value = dot.a.load.operation.result
    return (
        dot.operation.attributes.get("unit") == "wgmma" and not dot.a.swapped
        and dot.a.value is value and operand_places(dot, facts)[0] == SHARED
    )  # fmt: skip


def _is_limited(dot: Dot, machine: Machine) -> bool:
    """Whether reading both operands from shared memory takes as long as to multiply them."""
    m, n, k = (int(s) for s in dot.shape)
    bits = element_bits(dot)
    read = (m * k + n * k * (m // 64)) * bits / 8 / machine.rates.shared
    return read >= m * n * k / (machine.rates.matrix * 16 / bits)


def _registers(dot: Dot, groups: int) -> int:
    m, _, k = (int(s) for s in dot.shape)
    return m * k * element_bits(dot) // (4096 * groups)
