"""Which side of a product gives the rows of a tile: its first operand's, or its second one's.

The matrix unit takes rows by 64 and columns by 16, so the tiles that fit a result best may be those
of its transpose; and an operand that lies along the other axis is brought in whole lines as rows,
but in short ones as columns. Both forms cost what the cost model says, with the best tiles of
each. Owns this choice, where nothing but the products and their stores would be transposed; the
rewriting is ``transpose_products``. Must not know how a product is lowered.
"""

from __future__ import annotations

from tessera_lang.ir.core import Program
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.canonical.transpose_products import swapped
from tessera_lang.opt.schedule.decide.tile_sizes import soonest
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    TRANSPOSE,
    Dot,
    Facts,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.unit_legality import (
    element_bits,
    has_matrix_dtype,
    needs_first,
)
from tessera_lang.target.tuned_constants import OTHER_WAY_WORTH

_BROADCAST = PREFIX + "broadcast"
_DIRECTIVES = ("tile", "cluster", "swap")
"""What says something of rows and columns: then these stay as they are."""


@rewrites
def orient(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if not context.machine.has("wgmma") or any(n in kernel.attributes for n in _DIRECTIVES):
        return program
    facts = facts_of(kernel)
    if not facts.dots or not all(_may_turn(d, facts) for d in facts.dots):
        return program
    made = swapped(program, facts.dots)
    other = facts_of(kernel_of(made))
    if _turned(other) > _turned(facts):
        return program
    if soonest(other, {}, context)[0] >= OTHER_WAY_WORTH * soonest(facts, {}, context)[0]:
        return program
    return with_kernel(made, with_decisions(kernel_of(made), {"swap": True}))


def _may_turn(dot: Dot, facts: Facts) -> bool:
    """Whether the unit takes both operands from memory either way, and all sizes are open."""
    if dot.a.load is None or dot.b.load is None or needs_first(dot, facts):
        return False
    if not has_matrix_dtype(dot) or element_bits(dot) != 16:
        return False  # others must lie along the contraction
    flat = all(len(v.tile_type.shape) == 2 for v in dot.operation.operands[:2])
    return flat and all(isinstance(n, str) for n in dot.shape)


def _turned(facts: Facts) -> int:
    """Transposes of matrices that are no operands of products: lanes would exchange them. A vector
    that fills a matrix fills its transpose as well."""
    operands = {v for d in facts.dots for v in d.operation.operands[:2]}
    turned = [
        o for o in facts.kernel.walk() if o.name == TRANSPOSE and o.result not in operands
    ]  # fmt: skip
    made = [facts.definitions.get(o.operands[0]) for o in turned]
    return sum(m is None or m.name != _BROADCAST for m in made)
