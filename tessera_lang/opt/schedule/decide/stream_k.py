"""Stream-K: whether persistent thread blocks share the tiles of the last, partial wave.

Where tiles are a few more than a multiple of the multiprocessors, the last of them would leave most
of the device idle, and the contraction of these alone is shared. Owns the choice. The proof that
sums may be shared is ``query/splittable_reductions.py``; must not know how they are combined.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.cost.cost_model import cycles
from tessera_lang.opt.schedule.cost.split_k_cost import best_dealt, best_parts, said_reason
from tessera_lang.opt.schedule.cost.workload import work_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    overruled,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.splittable_reductions import even_iterations, sums_of
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import STREAM_WORTH


@decides
def deal_tiles(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    refused = context.refusals.get("split")
    if refused is not None and not said_by_user(kernel, "stream"):
        return program
    facts = facts_of(kernel)
    if said_by_user(kernel, "stream"):
        reason = refused.reason if refused is not None else _reason(facts)
        if reason:
            return with_kernel(program, overruled(kernel, "stream", 0, context, reason))
        return program
    if said_by_user(kernel, "split") or "roles" not in kernel.attributes:
        return program
    work, machine = work_of(facts, {}, context.machine), context.machine
    (parts, price), whole = best_dealt(work, machine), cycles(work, machine)
    if parts == 1 or price >= min(STREAM_WORTH * whole, best_parts(work, machine)[1]):
        return program
    about = f"{work.tiles} tiles for {machine.units} multiprocessors"
    reason = _reason(facts)
    if reason:
        message = f"the tiles that make no wave are not computed in parts ({about}): {reason}"
        context.note("T0749", message, kernel.span)
        return program
    gain = round(100 * (1 - price / whole))
    context.note("T0749", f"the tiles that make no wave are computed in {parts} parts each:"
                 f" {about}; that takes about {gain} % less time than whole ones",
                 kernel.span)  # fmt: skip
    decisions = {"split": parts, "stream": _groups(machine)}
    return with_kernel(program, with_decisions(kernel, decisions))


def _groups(machine: Machine) -> int:
    """As many as run at once where a group takes the shared memory of a multiprocessor."""
    return machine.units


def _reason(facts: Facts) -> str:
    found = sums_of(facts)
    if found.loop is None:
        return found.reason
    if even_iterations(facts, found.loop) is None:
        return "how often its loop runs differs from tile to tile"
    return said_reason(facts.kernel, facts) or _stays_reason(facts.kernel)


def _stays_reason(kernel: Operation) -> str:
    stays = kernel.attributes.get("persistent", True) or not said_by_user(kernel, "persistent")
    return "" if stays else "`schedule.persistent(False)`"
