"""Whether an array is worth a copy with aligned lines, made before the launch.

A copy costs reading and writing the array once. It pays where every element is moved several
times, since without it no copy engine takes the tiles. Owns the estimate of how often that is.
Must not know how a copy is made, or what reads it.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.copy_rules import (
    pitch_reason,
    tma_reason,
    unit_axis,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    FOR,
    LOOPS,
    Estimate,
    Facts,
    Load,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuning import REPACK_READS


def repacked_copy(load: Load, facts: Facts, machine: Machine) -> str:
    """What moves a tile from a copy of its array: tma or async; empty where a copy would change
    nothing, or costs more than it saves."""
    pointer, sizes, strides = facts.argument_numbers(load.view)
    if pointer < 0 or len(sizes) < 2 or (strides and unit_axis(load.view, facts) < 0):
        return ""
    access = access_of(load.operation)
    if machine.has_roles:
        if not tma_reason(access, facts, "") or tma_reason(access, facts, "", repacked=True):
            return ""
        copy = "tma"
    else:
        if not machine.has("cp_async") or not pitch_reason(access, facts, ""):
            return ""
        copy = "async"
    return copy if reads(load, facts) >= REPACK_READS else ""


def reads(load: Load, facts: Facts) -> int:
    """How often a launch probably moves each element: the iterations of the loops around that
    do not choose the tile. Many where nothing is known of the sizes."""
    estimate, total = Estimate(facts, {}), 1
    for around in load.inside:
        if around.name not in LOOPS:
            continue
        for variable, bounds in _axes(around):
            if depends_on(load.starts, variable, facts):
                continue
            low, high, step = (estimate.value(v) for v in bounds)
            if low is None or high is None or not step:
                total *= REPACK_READS
            else:
                total *= max(1, -(-(high - low) // step))
    return total


def _axes(loop: Operation) -> list[tuple[Value, tuple[Value, ...]]]:
    """The variables of a loop, each with its bounds and step."""
    if loop.name == "tile.while":
        return []
    n = len(loop.strings("axes")) if loop.name == FOR else 1
    variables = loop.regions[0].arguments
    return [(variables[i], tuple(loop.operands[i + n * j] for j in range(3))) for i in range(n)]
