"""Which unit of the machine does each product.

Writes the choice on the ``dot``; where the best unit of the machine cannot do it, a remark says
why. What a unit asks for is in ``query/matrix_units.py``.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.query.context import Context, with_attributes, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import (
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.matrix_units import unit_of


def assign_units(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    decisions: dict[Operation, dict[str, str]] = {}
    for dot in facts.dots:
        unit, reason = unit_of(dot, facts, context.machine)
        decisions[dot.operation] = {"unit": unit}
        if reason:
            best = "wgmma" if context.machine.has("wgmma") else "mma"
            context.note("T0744", f"this product is done by {unit}, not {best}: {reason}",
                         dot.operation.span)  # fmt: skip
    return with_kernel(program, with_attributes(kernel, decisions))
