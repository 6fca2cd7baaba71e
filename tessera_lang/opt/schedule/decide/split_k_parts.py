"""Whether the contraction is split (split-K): its parts given to several groups.

Where a grid has fewer tiles than the device has multiprocessors and the loop of a tile is long,
most of the device would wait for the few. What it costs to write and read the sums decides
(``cost/split_k_cost.py``).
"""

from __future__ import annotations

from tessera_lang.ir.core import Program
from tessera_lang.opt.schedule.cost import split_k_cost
from tessera_lang.opt.schedule.cost.cost_model import cycles
from tessera_lang.opt.schedule.cost.workload import work_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    overruled,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.splittable_reductions import sums_of


@decides
def split_contraction(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    if split_k_cost.stream_of(kernel):
        return program
    refused = context.refusals.get("split")
    if refused is not None:
        return _not_split(program, context, refused.reason)
    facts = facts_of(kernel)
    loop = sums_of(facts)
    if said_by_user(kernel, "split"):
        reason = loop.reason or split_k_cost.said_reason(kernel, facts)
        if reason and split_k_cost.parts_of(kernel) > 1:
            return with_kernel(program, overruled(kernel, "split", 1, context, reason))
        return program
    work = work_of(facts, {}, context.machine)
    if not split_k_cost.is_few(work, context.machine):
        return program
    reason = loop.reason or split_k_cost.said_reason(kernel, facts)
    if reason:
        context.note("T0749", f"the contraction is not split: {reason}", kernel.span)
        return program
    parts, price = split_k_cost.best_parts(work, context.machine)
    several = "" if work.tiles == 1 else "s"
    about = f"{work.tiles} tile{several} for {context.machine.units} multiprocessors"
    if parts == 1:
        message = (
            f"the contraction is not split: {about}, and the parts would cost more than they save"
        )
        if 2 * work.tiles <= context.machine.units:
            context.note("T0749", message, kernel.span)
        return program
    gain = round(100 * (1 - price / cycles(work, context.machine)))
    context.note("T0749", f"the contraction is split in {parts} parts: {about}; they take about "
                 f"{gain} % less time than the same tiles whole", kernel.span)  # fmt: skip
    return with_kernel(program, with_decisions(kernel, {"split": parts}))


def _not_split(program: Program, context: Context, reason: str) -> Program:
    """Where the lowering has found that a contraction cannot be split after all."""
    kernel = kernel_of(program)
    if said_by_user(kernel, "split") and split_k_cost.parts_of(kernel) > 1:
        return with_kernel(program, overruled(kernel, "split", 1, context, reason))
    context.note("T0749", f"the contraction is not split after all: {reason}", kernel.span)
    return program
