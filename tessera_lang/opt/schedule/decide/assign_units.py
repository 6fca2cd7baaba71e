"""Which unit of the machine does each product.

Writes the choice on the ``dot``. What a unit asks for is in ``query/unit_legality.py``;
``non_specialized_kernels`` settles it, and says why the best unit of the machine does not do a
product.
"""

from __future__ import annotations

from tessera_lang.ir.core import Program
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.unit_legality import unit_of


@decides
def assign_units(program: Program, context: Context) -> Program:
    """The best unit for each product, as far as roles use it: see ``non_specialized_kernels``."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    decisions = {d.operation: {"unit": unit_of(d, facts, context.machine)[0]} for d in facts.dots}
    return with_kernel(program, with_attributes(kernel, decisions))
