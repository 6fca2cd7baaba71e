"""The subtiles of the epilogue: how wide they are, and whether the copy engine stores them.

Owns the width of a subtile, the way of each store, and whether element-wise work before it is done
part by part. Stores whose array a tensor map cannot show are written by lanes, line by line; the
remark says why. Must not know how they are lowered.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program, TileType, Value
from tessera_lang.ir.definitions import COUNTED_LOOPS
from tessera_lang.opt.schedule.cost.split_k_cost import parts_of
from tessera_lang.opt.schedule.query.accumulator_registers import accumulators
from tessera_lang.opt.schedule.query.copy_rules import array_name, contiguous_axis, tma_reason
from tessera_lang.opt.schedule.query.decision_context import (
    COST,
    LEGALITY,
    Context,
    decided,
    decides,
    with_attributes,
    with_decisions,
    with_kernel,
    without,
)
from tessera_lang.opt.schedule.query.epilogue_work import EpilogueWork, epilogue_work
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    STORE,
    Facts,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.staging_rings import STORE_LINES, subtile_columns
from tessera_lang.opt.schedule.query.store_paths import stores_apart, way_of_store
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.opt.schedule.query.warp_grids import FMA_COLUMNS, fma_lanes
from tessera_lang.target.arch.isa_constants import (
    LANE_REGISTERS,
    REGISTER_UNIT,
    UNIT_ROWS,
    WARP,
    WARP_GROUP,
)
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import ASSEMBLER_MARGIN, EPILOGUE_PREFETCH, OTHER_REGISTERS


@decides
def subtile(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if "roles" not in kernel.attributes:
        return program
    facts = facts_of(kernel)
    widths: list[int] = []
    for store, _ in facts.stores:
        access = access_of(store)
        if store.name != STORE or len(access.tile.shape) < 2:
            continue
        name = array_name(facts, access.view)
        reason = tma_reason(access, facts, name)
        if not reason and not subtile_columns(access.tile):
            columns = access.tile.sizes[-1]
            reason = f"{columns} columns of `{name}` are no multiple of {STORE_LINES[-1]} bytes"
        if reason:
            context.note("T0743", f"not stored by TMA: {reason}", store.span)
        if reason and contiguous_axis(access, facts) != len(access.tile.shape) - 1:
            continue
        if not subtile_columns(access.tile):
            continue
        widths.append(subtile_columns(access.tile))
    apart = stores_apart(facts)
    if apart:
        kernel = with_attributes(kernel, apart)
    if widths:
        kernel = with_decisions(kernel, {"subtile": min(widths)})
    return with_kernel(program, kernel) if widths or apart else program


def settle_stores(kernel: Operation, context: Context) -> Operation:
    """The way of each store, as the code will have it, and of a kernel whether the work before
    them is done part by part (``epilogue``)."""
    ways = _ways(facts_of(kernel), context)
    kernel = with_attributes(kernel, ways)
    widths = [n for way in ways.values() if isinstance(n := way.get("columns"), int)]
    if not widths:
        return without(kernel, ("subtile", "epilogue"))
    if kernel.attributes.get("subtile") != min(widths):
        kernel = decided(kernel, "subtile", min(widths))
    form, origin = _form(facts_of(kernel), context)
    return with_decisions(kernel, {"epilogue": form}, origin)


def _ways(facts: Facts, context: Context) -> dict[Operation, dict[str, Attribute]]:
    parts = "subtile" in facts.kernel.attributes and "subtile" not in context.refusals
    found: dict[Operation, dict[str, Attribute]] = {}
    for store, inside in facts.stores:
        if store.name != STORE:
            continue
        way = way_of_store(store, inside, facts) if parts else "tile"
        columns = subtile_columns(access_of(store).tile)
        if way == "tile" or _crosses_warps(store, columns, facts):
            found[store] = {"leaves": "tile"}
        else:
            found[store] = {"leaves": way, "columns": columns}
    return found


def _crosses_warps(store: Operation, columns: int, facts: Facts) -> bool:
    """Whether lanes or warps share the columns of a part of a product, or of its transpose: it is
    then no registers of each lane."""
    sources = epilogue_work(store, facts).sources
    return any(
        columns < _shared_span(dot, axis, facts.kernel)
        for value, axis in sources.items() for dot in _products_of(value, facts)
    )  # fmt: skip


def _products_of(value: Value, facts: Facts) -> list[Operation]:
    made = facts.definitions.get(value)
    if made is None or not isinstance(value.type, TileType) or len(value.type.shape) != 2:
        return []
    return [o for o in made.walk() if o.name == DOT]


def _shared_span(dot: Operation, axis: int, kernel: Operation) -> int:
    """How many elements of an axis of a product lanes and warps have between them."""
    t = dot.result.tile_type
    if dot.attributes.get("unit") == "wgmma":
        return UNIT_ROWS * _groups(kernel) if axis == 0 else 0
    if axis == 0 or dot.integers("warp_grid")[1] > 1:
        return t.sizes[axis]
    return FMA_COLUMNS * fma_lanes(t.sizes[1])


def _groups(kernel: Operation) -> int:
    """The warp groups that compute."""
    return kernel.integers("roles")[1] // WARP_GROUP


def _form(facts: Facts, context: Context) -> tuple[str, str]:
    """``whole``: the work is done before the first part leaves; ``parts``: that of a part when it
    is its turn; ``prefetch``: what the first part reads is read before the loop besides."""
    works = [epilogue_work(o, facts) for o, _ in facts.stores if _parts(o) > 1]
    works = [work for work in works if work.operations]
    if not works or "epilogue_parts" in context.refusals:
        return "whole", LEGALITY
    reading = [work for work in works if work.reads]
    if not reading or "epilogue_prefetch" in context.refusals or parts_of(facts.kernel) > 1:
        return "parts", COST
    held = [_read_registers(work, facts) for work in reading]
    if not any(map(_is_known_before_a_loop, reading)) or max(held) > EPILOGUE_PREFETCH:
        return "parts", COST
    beside = accumulators(facts, _groups(facts.kernel)) + OTHER_REGISTERS + ASSEMBLER_MARGIN
    fits = beside + sum(held) <= _limit(facts.kernel, context.machine)
    return ("prefetch" if fits else "parts"), COST


def _columns(store: Operation) -> int:
    return store.integer("columns", 0)


def _parts(store: Operation) -> int:
    """In how many parts a store leaves; 0 where it does not."""
    columns = _columns(store)
    return access_of(store).tile.sizes[-1] // columns if columns else 0


def _read_registers(work: EpilogueWork, facts: Facts) -> int:
    """Registers of a lane for what one part reads: of a matrix its share, of a vector along the
    columns a quarter of them, as accumulators lie."""
    columns, total = _columns(work.store), 0
    for load in work.reads:
        t = load.result.tile_type
        elements = columns // 4
        if len(t.shape) == 2:
            rows = access_of(work.store).tile.sizes[0]
            elements = rows * columns // (WARP * WARP_GROUP * _groups(facts.kernel))
        total += max(1, elements * max(t.dtype.bits, 16) // 32)
    return total


def _is_known_before_a_loop(work: EpilogueWork) -> bool:
    """Whether a loop stands before the work, and where it reads is known before that."""
    operations = work.region.operations
    store = next(i for i, o in enumerate(operations) if o is work.store)
    loops = [i for i, o in enumerate(operations[:store]) if o.name in COUNTED_LOOPS]
    made = {v: i for i, o in enumerate(operations) for v in o.results}
    known = max((made.get(v, -1) for o in work.reads for v in o.operands), default=-1)
    return bool(loops) and known < loops[-1]


def _limit(kernel: Operation, machine: Machine) -> int:
    """Registers of a lane that computes."""
    said = kernel.integers("registers")
    if said and said[-1]:
        return said[-1]
    lanes = WARP * sum(kernel.integers("roles"))
    return min(LANE_REGISTERS, machine.registers // lanes // REGISTER_UNIT * REGISTER_UNIT)
