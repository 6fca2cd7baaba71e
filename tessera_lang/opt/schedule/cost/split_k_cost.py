"""Whether the contraction is split: its parts given to several groups, and their sums combined.

Where a grid has fewer tiles than the device has multiprocessors and the loop of a tile is long,
most of the device would wait for the few. What it costs to write and read the sums decides.
Owns the price and what it says; the proof that sums may be split is ``splittable_reductions``.
Must not know how they are combined.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation
from tessera_lang.opt.schedule.cost.cost_model import Work, cycles, dealt_cycles, in_parts
from tessera_lang.opt.schedule.cost.workload import work_of
from tessera_lang.opt.schedule.query.kernel_facts import (
    Estimate,
    Facts,
)
from tessera_lang.opt.schedule.query.staging_rings import is_staged
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    PART_ITERATIONS,
    PART_WAVES,
    PARTS_WORTH,
    SPLIT_COUNTS,
    STREAM_COUNTS,
    STREAM_TILES,
    STREAM_WORTH,
)


def is_few(work: Work, machine: Machine) -> bool:
    """Whether tiles leave multiprocessors idle that iterations of the loop could keep busy."""
    places = work.places(machine) * PART_WAVES
    return 2 * work.tiles <= places and work.iterations >= 2 * PART_ITERATIONS


def said_reason(kernel: Operation, facts: Facts) -> str:
    """What the user says that does not go with parts; empty where there is nothing."""
    if max(kernel.integers("cluster"), default=1) > 1:
        return "groups share copies in clusters"
    unrolled = kernel.attributes.get("unroll", 1)
    if isinstance(unrolled, int) and unrolled > 1 and not any(map(is_staged, facts.loads)):
        return "its loop is unrolled"
    return ""


def best_parts(work: Work, machine: Machine) -> tuple[int, float]:
    """In how many parts the work is done soonest, and its cycles then."""
    best = 1, cycles(work, machine)
    limit = best[1] * PARTS_WORTH
    if not is_few(work, machine):
        return best
    places = PART_WAVES * work.places(machine)
    most = min(work.iterations // PART_ITERATIONS, places // max(1, work.tiles))
    counts = SPLIT_COUNTS if work.products else (*SPLIT_COUNTS, *STREAM_COUNTS)
    for parts in (n for n in counts if n <= most):
        price = cycles(in_parts(work, parts), machine)
        if price < min(limit, best[1]):
            best = parts, price
    return best


def best_dealt(work: Work, machine: Machine) -> tuple[int, float]:
    """The same for those tiles only that make no wave, of persistent groups; 1 where all do, and
    where these parts are no more than one for each group, as there are no whole tiles."""
    best, units = (1, cycles(work, machine)), machine.units
    if work.tiles // units > STREAM_TILES or any(p.unit != "wgmma" for p in work.products):
        return best  # only these groups surely fill a multiprocessor
    for parts in (n for n in SPLIT_COUNTS if n * PART_ITERATIONS <= work.iterations):
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
        (best_parts(work, machine), PARTS_WORTH), (best_dealt(work, machine), STREAM_WORTH)
    ):  # fmt: skip
        found += [price / worth] if parts > 1 else []
    return min(found)


def parts_of(kernel: Operation) -> int:
    """In how many parts a tile is computed."""
    return kernel.integer("split", 1)


def stream_of(kernel: Operation) -> int:
    """How many groups stay that have whole tiles, and ``split`` parts of those that make no wave;
    0 where every tile has these parts."""
    return kernel.integer("stream", 0)


def groups_of(facts: Facts) -> int | None:
    """How many groups the grid probably is: parts of tiles."""
    if stream_of(facts.kernel):
        return stream_of(facts.kernel)
    tiles = Estimate(facts, {}).trips(facts.grid) if facts.grid is not None else None
    return None if tiles is None else tiles * parts_of(facts.kernel)
