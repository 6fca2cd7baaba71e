"""Forms of a kernel that cost so much that one has to hear of it: loops over elements where there
could be tiles in registers, and one group where there could be many.

Owns the estimates and what is said. Must not know how a kernel is lowered, nor change one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, TileType
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.cost.cost_model import cycles
from tessera_lang.opt.schedule.cost.workload import work_of
from tessera_lang.opt.schedule.query.kernel_facts import (
    FOR,
    LOOPS,
    Estimate,
    Facts,
    facts_of,
    is_grid,
)
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import LAUNCH_CYCLES, SLOWER_FORM


def by_elements(
    kernel: Operation, machine: Machine, reason: str, span: Span | None, helps: Sequence[str] = ()
) -> Diagnostic:
    """That a decided kernel is made of loops over elements: a warning where that is slower by an
    amount that counts, else a note."""
    facts = facts_of(kernel)
    tiles = work_of(facts, {}, machine)
    loops = replace(
        tiles, products=tuple(replace(p, unit="fma") for p in tiles.products), cluster=1
    )
    slow = cycles(loops, machine) + _of_elements(facts, machine)
    factor = cycles(loops, machine) / cycles(tiles, machine)
    sorts = any(o.name == f"{PREFIX}sort" for o in kernel.walk()) and not tiles.products
    counts = slow > LAUNCH_CYCLES and not sorts
    notes = ["it becomes loops over elements, which are right and slower"]
    if tiles.products and factor >= SLOWER_FORM:
        notes = [
            "it becomes loops over elements: the products are done one multiply-add at a time, at"
            f" least about {_rounded(factor)} times slower than by matrix units (an estimate)"
        ]
    if sorts:
        notes = ["that is how lines are sorted: it has no other form"]
    elif not counts:
        notes.append("the work is so little here that a launch takes as long")
    return Diagnostic(
        "T0747", f"not lowered to register tiles: {reason}", span or kernel.span,
        severity="warning" if counts else "note", notes=tuple(notes),
        helps=tuple(helps) or (DEFAULT_HELP,), certainty="estimated",
    )  # fmt: skip


DEFAULT_HELP = "take this out of the kernel into one of its own, so that the rest keeps tiles"


def _of_elements(facts: Facts, machine: Machine) -> float:
    """Cycles in which a device moves the elements that a kernel touches; of unknown sizes many."""
    estimate = Estimate(facts, {})
    total = 0.0
    for read in facts.reads:
        size = _tile_bytes(read.operation.result.type)
        total += size * (_times(read.inside, estimate) or machine.units * 8)
    return total / (machine.rates.memory or 1)


def in_one_group(kernel: Operation, machine: Machine, name: str = "") -> Diagnostic | None:
    """That a decided kernel runs in one group though its loops take longer than a launch.
    ``name``: as the program has it, where the kernel is one of several launches."""
    facts = facts_of(kernel)
    if any(is_grid(o) for o, _ in facts.loops):
        return None
    loop = next((o for o, inside in facts.loops if not inside and _works(o, facts)), None)
    if loop is None:
        return None  # a tile of a known size is all there is
    estimate = Estimate(facts, {})
    alone = _alone(facts, estimate, machine)
    if alone is not None and alone <= LAUNCH_CYCLES:
        return None
    most = machine.units if alone is None else min(machine.units, alone / LAUNCH_CYCLES)
    if most < SLOWER_FORM:
        return None
    about = f"up to {machine.units}" if alone is None else f"about {_rounded(most)}"
    name = name or str(kernel.attributes["sym_name"])
    axes = "`, `".join(cast("tuple[str, ...]", loop.attributes.get("axes", ())))
    of = f"the loop over `{axes}`" if axes else "its loop"
    return Diagnostic(
        "T0750", f"`{name}` runs in one group, on one of {machine.units} multiprocessors",
        loop.span or kernel.span, f"{of} runs in order", severity="warning",
        notes=(why_in_order(loop), f"spread over the device it could be {about} times faster"),
        helps=(_way_out(loop),), certainty="estimated",
    )  # fmt: skip


def why_in_order(loop: Operation) -> str:
    """The reason that a loop at the top of a kernel is no grid."""
    if loop.name != FOR:
        return "how often it runs is found out while it runs"
    if loop.results:
        names = [v.name.split("_")[0] for v in loop.regions[0].arguments[_count(loop) :] if v.name]
        shown = ", ".join(f"`{n}`" for n in dict.fromkeys(names)) or "a value"
        return f"each iteration takes {shown} from the one before"
    reason = str(loop.attributes.get("reason", ""))
    return reason or "the kernel does other work beside this loop, which one group does in order"


def _way_out(loop: Operation) -> str:
    if loop.name != FOR:
        return "loop over independent parts around it: `for i in op.tile_range(n, step=64):`"
    if loop.results:
        return (
            "let each iteration write its own part, and combine the parts in a second loop or"
            " kernel; `op.sum`, `op.cumsum` and `+=` on an array are spread by the compiler"
        )
    return "give each iteration its own part of the result, or put the loop into its own kernel"


def _count(loop: Operation) -> int:
    return len(cast("tuple[str, ...]", loop.attributes.get("axes", ()))) or 1


def _works(loop: Operation, facts: Facts) -> bool:
    """Whether tiles are read or written in a loop."""
    inside = [read.inside for read in facts.reads] + [around for _, around in facts.stores]
    return any(loop in around for around in inside)


def _alone(facts: Facts, estimate: Estimate, machine: Machine) -> float | None:
    """Cycles of one multiprocessor for all loops of a kernel; None where sizes are not known."""
    moved = 0.0
    accesses = [(r.operation.result.type, r.inside) for r in facts.reads]
    accesses += [(o.operands[0].type, inside) for o, inside in facts.stores if o.operands]
    for tile, inside in accesses:
        times = _times(inside, estimate)
        if times is None:
            return None
        moved += _tile_bytes(tile) * times
    adds = 0.0
    for dot in facts.dots:
        times = _times(dot.inside, estimate)
        if times is None:
            return None
        adds += times * math.prod(n if isinstance(n, int) else 64 for n in dot.shape)
    return max(moved / machine.rates.cache, adds / (machine.rates.matrix or 1))


def _times(inside: Sequence[Operation], estimate: Estimate) -> int | None:
    """How often an operation probably runs, for the loops around it; None where that is open."""
    product = 1
    for around in inside:
        if around.name in LOOPS:
            trips = estimate.trips(around)
            if trips is None:
                return None
            product *= trips
    return product


def _tile_bytes(t: object) -> int:
    if not isinstance(t, TileType):
        return 0
    return t.dtype.bytes * math.prod(n if isinstance(n, int) else 64 for n in t.shape)


def _rounded(factor: float) -> int:
    """A factor as one says it: 7, 13, 50, 130."""
    step = 1 if factor < 20 else 5 if factor < 100 else 10
    return round(factor / step) * step
