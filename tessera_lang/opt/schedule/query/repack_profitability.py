"""Whether an array is worth a copy with aligned lines, made before the launch.

The lines of a copy may run along another axis than those of the array: of weights of a
convolution the tiles are of two axes that do not lie together, and tiles of an image begin
anywhere along its rows, but not along its channels. A copy costs reading and writing the array
once. It pays where every element is moved several times, since without it no copy engine takes
the tiles. Owns the estimate of how often that is. Must not know how a copy is made, or what reads
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.opt.schedule.query.alignment import divisor_of
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.copy_rules import (
    async_reason,
    contiguous_axis,
    line_axis,
    pitch_reason,
    tma_reason,
    unit_axis,
)
from tessera_lang.opt.schedule.query.fma_operands import lanes_line
from tessera_lang.opt.schedule.query.kernel_facts import (
    FOR,
    LOOPS,
    Estimate,
    Facts,
    Load,
    view_bytes,
)
from tessera_lang.opt.schedule.query.staging_rings import tile_bytes
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import COPY_BYTES
from tessera_lang.target.launch_plan import COPY_AXES
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    COPY_BEFORE,
    LANE_COPY_RATE,
    REORDERED_ELEMENTS,
    REORDERED_READS,
    REPACK_READS,
)


@dataclass(frozen=True, slots=True)
class Repacked:
    """``copy``: what moves a tile from a copy of its array: tma or async; ``lines``: the axis of
    the view along which the copy's lines run, -1 where they run as the array's."""

    copy: str
    lines: int = -1


def repacked_copy(load: Load, facts: Facts, machine: Machine) -> Repacked | None:
    """How a tile is moved from a copy of its array; None where a copy would change nothing, or
    costs more than it saves."""
    pointer, sizes, strides = facts.argument_numbers(load.view)
    if (
        pointer < 0
        or not 2 <= len(sizes) <= COPY_AXES
        or (strides and unit_axis(load.view, facts) < 0)
    ):
        return None
    return _aligned(load, facts, machine) or _reordered(load, facts, machine)


def _aligned(load: Load, facts: Facts, machine: Machine) -> Repacked | None:
    """From a copy whose axes lie as the array's."""
    access = access_of(load.operation)
    axis = line_axis(access, facts)
    if axis < 0:
        return None  # lines that the tile does not run along
    if machine.has_roles:
        if not tma_reason(access, facts, "") or tma_reason(access, facts, "", repacked=axis):
            return None
        copy = "tma"
    else:
        if not machine.has("cp_async") or not pitch_reason(access, facts, ""):
            return None
        copy = "async"
    # What a loop goes along may depend on another one around it, as in a triangle; and what several
    # loops read of an array is copied once.
    same = [x for x in facts.loads if x.view is load.view and x.tile.sizes == load.tile.sizes]
    often = sum(max(reads(x, facts), moved(x, facts)) for x in same)
    if often < REPACK_READS or machine.has_roles and _lanes_are_sooner(same, facts, machine):
        return None
    return Repacked(copy)


def _lanes_are_sooner(same: Sequence[Load], facts: Facts, machine: Machine) -> bool:
    """Whether lanes bring all tiles of an array, in pieces of 4 bytes, in less time than a copy of
    it takes."""
    whole = view_bytes(same[0].view, facts, Estimate(facts, {}))
    tiles = Estimate(facts, {}).trips(facts.grid) if facts.grid is not None else None
    totals = [n for x in same if (n := _moved_bytes(x, facts)) is not None]
    if whole is None or tiles is None or len(totals) < len(same):
        return False
    if any(_by_elements(x, facts) for x in same):
        return False
    copying = COPY_BEFORE + 2 * whole / machine.rates.memory
    groups = max(1, min(tiles, machine.units))  # a grid may be empty
    return sum(totals) / (LANE_COPY_RATE * groups) < copying


def _reordered(load: Load, facts: Facts, machine: Machine) -> Repacked | None:
    """From a copy whose lines run along another axis of the tile than the array's: where that one
    is none of the tile, or tiles begin anywhere along it, so that lanes would bring elements."""
    if not machine.has("cp_async") or not _by_elements(load, facts):
        return None
    access = access_of(load.operation)
    rank, usual = len(access.tile.shape), contiguous_axis(access, facts)
    for axis in _axes_by_use(load, facts):
        if axis == usual or axis < 0 or axis >= rank:
            continue
        if tma_reason(access, facts, "", repacked=axis):
            continue
        if not _is_moved_often(load, facts):
            return None
        return Repacked("tma" if machine.has_roles else "async", access.dims[axis])
    return None


def turned_copy(load: Load, facts: Facts) -> Repacked | None:
    """From a copy whose lines run along the other axis of the tile: where lanes multiply and add,
    and read vectors along it. What is not read so in all products stays as it is."""
    axes = {
        lanes_line(x, facts) for d in facts.dots for x in (d.a, d.b)
        if x.load is not None and x.load.operation is load.operation
    }  # fmt: skip
    pointer, sizes, strides = facts.argument_numbers(load.view)
    if len(axes) != 1 or max(axes) < 0 or pointer < 0 or len(sizes) < 2 or strides:
        return None
    (axis,), access = axes, access_of(load.operation)
    if tma_reason(access, facts, "", repacked=axis) or moved(load, facts) < REORDERED_READS:
        return None
    return Repacked("tma", access.dims[axis])


def _by_elements(load: Load, facts: Facts) -> bool:
    """Whether lanes bring a tile in pieces of less than 4 bytes."""
    access = access_of(load.operation)
    axis = contiguous_axis(access, facts)
    if axis < 0 or async_reason(load, facts, ""):
        return True
    start = access.starts[access.dims[axis]]
    return divisor_of(start, facts) * access.tile.dtype.bytes % COPY_BYTES != 0


def _axes_by_use(load: Load, facts: Facts) -> list[int]:
    """The axes of a tile along which its lines may run, the one of a contraction first."""
    rank = len(load.tile.shape)
    found: dict[int, None] = {}
    for dot in facts.dots:
        for operand, contraction in ((dot.a, rank - 1), (dot.b, rank - 2)):
            if operand.load is not None and operand.load.operation is load.operation:
                found[2 * rank - 3 - contraction if operand.swapped else contraction] = None
    return list({**found, **dict.fromkeys(2 * rank - 3 - a for a in found)})


def _is_moved_often(load: Load, facts: Facts) -> bool:
    """Whether a launch probably moves so many elements in tiles, and each so often, that a copy
    pays. It does where nothing is known of the sizes."""
    total = _moved_bytes(load, facts)
    many = total is None or total >= REORDERED_ELEMENTS * load.tile.dtype.bytes
    return many and moved(load, facts) >= REORDERED_READS


def moved(load: Load, facts: Facts) -> int:
    """How often a launch probably moves each element of an array: all tiles against its size.
    Many where nothing is known of the sizes."""
    total, whole = _moved_bytes(load, facts), view_bytes(load.view, facts, Estimate(facts, {}))
    return REORDERED_READS if whole is None or total is None else total // max(whole, 1)


def _moved_bytes(load: Load, facts: Facts) -> int | None:
    """Bytes of all tiles that a launch probably loads; None where that is not known."""
    estimate, total = Estimate(facts, {}), tile_bytes(load.tile)
    for around in load.inside:
        if around.name in LOOPS:
            trips = estimate.trips(around)
            if trips is None:
                return None
            total *= trips
    return total


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
