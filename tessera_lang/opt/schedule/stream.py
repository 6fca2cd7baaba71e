"""Whether the turns of all tiles are dealt out, so that every group has as many.

Where tiles are a few more than a multiple of the multiprocessors, the last of them leave most of
the device idle. Then a group may begin and end in the middle of a tile; what it costs to put such
tiles together decides. Owns the choice. The proof that sums may be shared is ``sums``; must not
know how they are combined.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.context import (
    Context,
    overruled,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.cost import cycles, dealt_cycles
from tessera_lang.opt.schedule.facts import Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.split import WORTH, best_parts, said_reason
from tessera_lang.opt.schedule.sums import even_turns, sums_of
from tessera_lang.opt.schedule.work import work_of
from tessera_lang.target.machine import Machine


def deal_turns(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    facts = facts_of(kernel)
    if said_by_user(kernel, "stream"):
        reason = _reason(facts)
        if reason:
            return with_kernel(program, overruled(kernel, "stream", 0, context, reason))
        return program
    work, units = work_of(facts, {}, context.machine), context.machine.units
    price, whole = dealt_cycles(work, context.machine), cycles(work, context.machine)
    if said_by_user(kernel, "split") or price >= WORTH * whole:
        return program
    if price >= best_parts(work, context.machine)[1]:
        return program
    about = f"{work.tiles} tiles for {units} multiprocessors"
    reason = _reason(facts)
    if reason:
        message = f"the turns of the contraction are not dealt out evenly ({about}): {reason}"
        context.note("T0749", message, kernel.span)
        return program
    gain = round(100 * (1 - price / whole))
    context.note("T0749", f"the turns of the contraction are dealt out evenly: {about}; they take"
                 f" about {gain} % less time than whole tiles", kernel.span)  # fmt: skip
    return with_kernel(program, with_decisions(kernel, {"stream": _groups(context.machine)}))


def _groups(machine: Machine) -> int:
    """As many as run at once where a group takes the shared memory of a multiprocessor."""
    return machine.units


def _reason(facts: Facts) -> str:
    found = sums_of(facts)
    if found.loop is None:
        return found.reason
    if even_turns(facts, found.loop) is None:
        return "how often its loop runs differs from tile to tile"
    return said_reason(facts.kernel, facts) or _stays_reason(facts.kernel)


def _stays_reason(kernel: Operation) -> str:
    stays = kernel.attributes.get("persistent", True) or not said_by_user(kernel, "persistent")
    return "" if stays else "`schedule.persistent(False)`"
