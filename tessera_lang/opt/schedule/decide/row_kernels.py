"""Kernels without products: how many warps hold their tiles, and rows that several groups share.

What limits such a kernel is memory: a lane holds as many elements as keep loads in flight and
leave registers for two or more groups a multiprocessor, and a tile that has more elements than
the lanes of one group should hold is shared by the groups of a cluster, each with its part of
the axis; reductions then meet across the cluster. Read once, written once: main memory sees each
element twice at most.

Owns the estimates. Must not know how rows become parts, nor how a cluster is lowered.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.definitions import (
    GENERATES,
)
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.copy_rules import pitch_reason
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    decides,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.invariant_loads import bound_by_cache, bytes_of, is_shared
from tessera_lang.opt.schedule.query.kernel_facts import Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.splittable_rows import local_row
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.arch.isa_constants import (
    CLUSTER_GROUPS,
    LIMIT_REGISTERS,
    REGISTER_UNIT,
    WARP,
)
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    ASSEMBLER_GROUPS,
    BUSY_ROW_BYTES,
    BUSY_SHARE,
    GROUP_WARPS,
    KEPT_WARPS,
    LANE_BYTES,
    PART_BYTES,
    PART_REGISTERS,
    PART_WARPS,
    ROW_BYTES,
    ROW_OPERATIONS,
    ROW_RATE,
    WIDE_PART_REGISTERS,
)

_ADDRESS = 2
"""Registers of a lane for each access, and for its place in the grid: addresses have 64 bits."""
_FULL, _IOTA, _REDUCE, _MASK = (PREFIX + n for n in ("full", "iota", "reduce", "mask"))
_SHARED_KINDS = ("add", "mul", "max", "min")


def row_warps(facts: Facts, machine: Machine) -> int:
    """The warps of a group, so that a lane's share of the largest tile stays small."""
    held = held_bytes(facts.kernel)
    warps = 1 if _reduces(facts) else 4
    accesses = [x.operation for x in facts.loads] + [o for o, _ in facts.stores]
    narrow = any(pitch_reason(access_of(o), facts, "") for o in accesses)
    most, lane = GROUP_WARPS, LANE_BYTES
    if is_shared(facts.kernel):
        most, lane = KEPT_WARPS if bound_by_cache(facts, machine) else PART_WARPS, 2 * LANE_BYTES
    elif _reduces(facts) and _fits_full(facts, machine):
        lane //= 2
    lane = min(lane, LANE_BYTES // 2) if narrow else lane
    while warps < most and held > WARP * warps * lane:
        warps *= 2
    return warps


def _fits_full(facts: Facts, machine: Machine) -> bool:
    """Whether there are registers for as many lanes as a multiprocessor can have, if each holds
    half of what it might: its part of the row as it is computed in, and of what else is loaded."""
    half = LANE_BYTES // 2
    lanes = -(-held_bytes(facts.kernel) // half)
    others = sum(sorted(map(bytes_of, facts.loads))[:-1]) / max(1, lanes)
    accesses = len(facts.loads) + len(facts.stores)
    needed = (half + others) / 4 + _ADDRESS * (1 + accesses)
    return -(-needed // REGISTER_UNIT) * REGISTER_UNIT <= machine.registers // (
        WARP * machine.warps
    )


@decides
def limit_registers(program: Program, context: Context) -> Program:
    """Of large groups that share rows, as many are together as what they load leaves room for."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if not is_shared(kernel) or facts.dots or "registers" in kernel.attributes:
        return program
    groups, lanes = groups_together(facts, context), WARP * _warps(kernel)
    if groups > ASSEMBLER_GROUPS:
        return program
    each = context.machine.registers // (groups * lanes)
    registers = min(LIMIT_REGISTERS, each // REGISTER_UNIT * REGISTER_UNIT)
    return with_kernel(program, with_decisions(kernel, {"registers": (registers,)}))


def groups_together(facts: Facts, context: Context) -> int:
    """How many groups the registers of a multiprocessor hold: of each a row as it is computed in,
    and what else it loads."""
    others = sum(sorted(map(bytes_of, facts.loads))[:-1])
    wide = any(x.tile.dtype.bytes >= 4 for x in facts.loads)
    lanes = WARP * _warps(facts.kernel)
    held = (held_bytes(facts.kernel) + others) // 4 + (
        WIDE_PART_REGISTERS if wide else PART_REGISTERS
    ) * lanes
    return max(1, context.machine.registers // held)


def _warps(kernel: Operation) -> int:
    return kernel.integer("warps", 1)


def held_bytes(kernel: Operation) -> int:
    """What the largest tile takes in registers. Coordinates and numbers that are stretched take
    none, nor what is computed from these alone, where there is something else: a register of a
    lane differs from the next by a constant."""
    known: set[Value] = set()
    held: list[TileType] = []
    for o in kernel.walk():
        tiles = [v for v in o.operands if isinstance(v.type, TileType)]
        made = o.name in GENERATES or (bool(tiles) and o.name.startswith("tile."))
        if made and not o.regions and known.issuperset(tiles):
            known.update(o.results)
        else:
            held += [v.type for v in o.results if isinstance(v.type, TileType)]
    return max(map(_register_bytes, held or _tiles(kernel)), default=0)


def _tiles(kernel: Operation) -> list[TileType]:
    values = [v for o in kernel.walk() for v in o.results]
    return [v.type for v in values if isinstance(v.type, TileType)]


def _register_bytes(t: TileType) -> int:
    return prod(t.sizes) * max(4, t.dtype.bytes)


def _reduces(facts: Facts) -> bool:
    return any(o.name == _REDUCE for o in facts.kernel.walk())


# --- several groups for one row --------------------------------------------------------------


@decides
def share_rows(program: Program, context: Context) -> Program:
    """Of rows that are too long for the registers of one group each has a cluster of groups:
    behind this ``rows_over_cluster`` parts them."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    if not context.machine.has("cluster") or facts.dots or facts.grid is None:
        return program
    if any(said_by_user(kernel, name) for name in ("cluster", "persistent", "warps")):
        return program
    held = held_bytes(kernel)
    most = BUSY_ROW_BYTES if _business(facts) > BUSY_SHARE else ROW_BYTES
    if held <= most or not _reduces(facts):
        return program
    groups = 1
    while groups < CLUSTER_GROUPS and held > groups * PART_BYTES:
        groups *= 2
    if local_row(facts, facts.grid) is None:
        return program
    return with_kernel(program, with_decisions(kernel, {"cluster": (groups,)}))


def _business(facts: Facts) -> float:
    """The time that tiles are computed for, over the time that they are moved for."""
    done = sum(
        prod(t.sizes)
        for o in facts.kernel.walk()
        if o.name.startswith("tile.") and not o.regions
        for t in (v.type for v in o.results)
        if isinstance(t, TileType)
    )
    tiles = [x.tile for x in facts.loads]
    tiles += [t for o, _ in facts.stores for t in (o.operands[0].type,) if isinstance(t, TileType)]
    moved = sum(prod(t.sizes) * t.dtype.bytes for t in tiles)
    return (done / ROW_OPERATIONS) / (moved / ROW_RATE) if moved else 0.0
