"""L2 eviction hints: loads of what nobody reads again, which the second-level cache may drop first.

What a launch reads once, and which the cache could not hold anyway, would only drive out what is
read again, or has yet to be written back: 134 MB took 39 us instead of 43 behind a launch that had
written. Arrays of several times that gain nothing (docs/performance-notebook.md). Owns the choice.
Must not know how a copy says it.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    with_attributes,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    LOOPS,
    Estimate,
    Facts,
    Load,
    facts_of,
    kernel_of,
    view_bytes,
)
from tessera_lang.opt.schedule.query.repack_profitability import moved
from tessera_lang.target.tuned_constants import CACHE_HELD, CACHE_LONG


@decides
def read_once(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if not context.machine.has_roles:
        return program
    facts = facts_of(kernel)
    found: dict[Operation, dict[str, Attribute]] = {
        x.operation: {"hint": "first"} for x in facts.loads
        if x.operation.attributes.get("copy") == "tma" and _is_read_once(x, facts)
    }  # fmt: skip
    return with_kernel(program, with_attributes(kernel, found))


def _is_read_once(load: Load, facts: Facts) -> bool:
    """Whether nobody else reads the array, which is large, and each iteration of each loop around
    reads another part of it."""
    estimate = Estimate(facts, {})
    if sum(x.view is load.view for x in facts.reads) > 1:
        return False
    if moved(load, facts) > 1:  # tiles that lie over each other, as the taps of a convolution
        return False
    size = view_bytes(load.view, facts, estimate)
    return size is not None and CACHE_HELD < size <= CACHE_LONG and all(
        _moves(load, around, facts, estimate) for around in load.inside if around.name in LOOPS
    )  # fmt: skip


def _moves(load: Load, loop: Operation, facts: Facts, estimate: Estimate) -> bool:
    carried = len(loop.results)
    arguments = loop.regions[-1].arguments
    variables = arguments[: len(arguments) - carried]
    trips = estimate.trips_along(loop)
    return bool(variables) and all(
        n == 1 or depends_on(load.starts, v, facts) for v, n in zip(variables, trips, strict=True)
    )
