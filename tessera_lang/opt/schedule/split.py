"""Whether the contraction is split: its parts given to several groups, and their sums combined.

Where a grid has fewer tiles than the device has multiprocessors and the loop of a tile is long,
most of the device would wait for the few. What it costs to write and read the sums decides.
Owns the choice. The proof that sums may be split is ``sums``; must not know how they are combined.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Program
from tessera_lang.opt.schedule.context import (
    Context,
    overruled,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.cost import Work, cycles, dealt_cycles, in_parts
from tessera_lang.opt.schedule.facts import Estimate, Facts, facts_of, kernel_of, numbers
from tessera_lang.opt.schedule.rings import is_staged
from tessera_lang.opt.schedule.sums import sums_of
from tessera_lang.opt.schedule.work import work_of
from tessera_lang.target.machine import Machine

_COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
_LEAST_TURNS = 4  # of a part
WORTH = 0.94  # of the cycles without parts
STREAM_WORTH = 1.0  # where only tiles that make no wave have parts
_MOST_WHOLE = 4
"""Whole tiles of a group beside which parts are worth it: longer launches run at the limit of
power, where multiprocessors that rest let the others run faster."""
_WAVES = 2  # parts that a multiprocessor gets at most


def split_contraction(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    if stream_of(kernel):
        return program
    facts = facts_of(kernel)
    loop = sums_of(facts)
    if said_by_user(kernel, "split"):
        reason = loop.reason or said_reason(kernel, facts)
        if reason and parts_of(kernel) > 1:
            return with_kernel(program, overruled(kernel, "split", 1, context, reason))
        return program
    work = work_of(facts, {}, context.machine)
    if not _is_few(work, context.machine):
        return program
    reason = loop.reason or said_reason(kernel, facts)
    if reason:
        context.note("T0749", f"the contraction is not split: {reason}", kernel.span)
        return program
    parts, price = best_parts(work, context.machine)
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


def _is_few(work: Work, machine: Machine) -> bool:
    """Whether tiles leave multiprocessors idle that turns of the loop could keep busy."""
    return 2 * work.tiles <= machine.units * _WAVES and work.turns >= 2 * _LEAST_TURNS


def said_reason(kernel: Operation, facts: Facts) -> str:
    """What the user says that does not go with parts; empty where there is nothing."""
    if max(numbers(kernel, "cluster"), default=1) > 1:
        return "groups share copies in clusters"
    unrolled = kernel.attributes.get("unroll", 1)
    if isinstance(unrolled, int) and unrolled > 1 and not any(map(is_staged, facts.loads)):
        return "its loop is unrolled"
    return ""


def best_parts(work: Work, machine: Machine) -> tuple[int, float]:
    """In how many parts the work is done soonest, and its cycles then."""
    best = 1, cycles(work, machine)
    limit = best[1] * WORTH
    if not _is_few(work, machine):
        return best
    most = min(work.turns // _LEAST_TURNS, _WAVES * machine.units // max(1, work.tiles))
    for parts in (n for n in _COUNTS if n <= most):
        price = cycles(in_parts(work, parts), machine)
        if price < min(limit, best[1]):
            best = parts, price
    return best


def best_dealt(work: Work, machine: Machine) -> tuple[int, float]:
    """The same for those tiles only that make no wave, of groups that stay; 1 where all do, and
    where these parts are no more than one for each group, as there are no whole tiles."""
    best, units = (1, cycles(work, machine)), machine.units
    if work.tiles // units > _MOST_WHOLE or any(p.unit != "wgmma" for p in work.products):
        return best  # only these groups surely fill a multiprocessor
    for parts in (n for n in _COUNTS if n * _LEAST_TURNS <= work.turns):
        if work.tiles % units == 0 or work.tiles * parts <= units:
            continue
        price = dealt_cycles(work, parts, machine)
        if price < best[1]:
            best = parts, price
    return best


def price_of(facts: Facts, sizes: Mapping[str, int], machine: Machine, splits: bool) -> float:
    """The cycles of a kernel with these sizes, in parts where that is better and ``splits``: then
    with what parts must save beside the best without."""
    work = work_of(facts, sizes, machine)
    if not splits:
        return cycles(work, machine)
    found = [cycles(work, machine)]
    for (parts, price), worth in (
        (best_parts(work, machine), WORTH), (best_dealt(work, machine), STREAM_WORTH)
    ):  # fmt: skip
        found += [price / worth] if parts > 1 else []
    return min(found)


def parts_of(kernel: Operation) -> int:
    """In how many parts a tile is computed."""
    parts = kernel.attributes.get("split", 1)
    assert isinstance(parts, int)
    return parts


def stream_of(kernel: Operation) -> int:
    """How many groups stay that have whole tiles, and ``split`` parts of those that make no wave;
    0 where every tile has these parts."""
    groups = kernel.attributes.get("stream", 0)
    assert isinstance(groups, int)
    return groups


def groups_of(facts: Facts) -> int | None:
    """How many groups the grid probably is: parts of tiles."""
    if stream_of(facts.kernel):
        return stream_of(facts.kernel)
    tiles = Estimate(facts, {}).trips(facts.grid) if facts.grid is not None else None
    return None if tiles is None else tiles * parts_of(facts.kernel)
