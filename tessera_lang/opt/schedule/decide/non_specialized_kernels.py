"""Schedules without warp specialization: warps, units, copies and buffers of a group.

Where a kernel is split into roles, that was decided with them. Without roles nobody issues
asynchronous products or tensor copies: products are by ``mma.sync`` or multiply-adds, and lanes
copy what is staged, some iterations ahead in a ring of buffers (``cp.async``), through registers
one iteration ahead, or where the load stands. Owns these decisions, which are the last: the
lowering does what is written here, or refuses. Must not change an operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tessera_lang.ir.core import Attribute, Operation, Program, TileType, Value, ViewType
from tessera_lang.ir.definitions import LOOP_EXITS, WRITES
from tessera_lang.ir.rewrite import rewrite_operation
from tessera_lang.opt.schedule.decide.epilogue_tiles import settle_stores
from tessera_lang.opt.schedule.query import unit_legality as units
from tessera_lang.opt.schedule.query.accumulator_registers import is_promoted
from tessera_lang.opt.schedule.query.decision_context import (
    LEGALITY,
    Context,
    decided,
    decides,
    overruled,
    said_by_user,
    with_attributes,
    with_decisions,
    with_kernel,
    without,
)
from tessera_lang.opt.schedule.query.kernel_facts import DOT, facts_of, is_grid, kernel_of
from tessera_lang.opt.schedule.query.lane_copy_widths import piece_bytes
from tessera_lang.opt.schedule.query.operand_loads import LOAD, operand_of, products_of
from tessera_lang.opt.schedule.query.prefetch_addresses import address_of
from tessera_lang.opt.schedule.query.producer_lane_copies import is_by_lanes, lanes_layout
from tessera_lang.opt.schedule.query.scalar_facts import FOR, Facts, axes_of, is_tile
from tessera_lang.opt.schedule.query.staging_rings import PLAIN_STAGES, is_staged
from tessera_lang.opt.schedule.query.swizzle_widths import flow_swizzle, role_swizzle
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.opt.schedule.query.warp_grids import fma_grid, mma_grid, rows_only
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.target.tuned_constants import (
    FLOW_ACCUMULATORS,
    FLOW_MOST_STAGES,
    FLOW_REGISTERS,
    FLOW_STAGES,
    GROUP_WARPS,
    LOOP_WARPS,
    UNCOUNTED_GROUPS,
)
from tessera_lang.types.dtype import F32

_OF_TILES = (
    "roles", "registers", "persistent", "split", "stream", "subtile", "epilogue", "direct_access",
    "cluster", "groups", "group_rows", "order", "warps", "warp_specialize", "pieces", "pingpong",
    "residents", "heaviest",
)  # fmt: skip
_STAGING = (
    "stage", "stages", "copy", "ring", "repack", "lines", "early", "again", "kept", "swizzle",
    "leaves", "columns",
)  # fmt: skip


@decides
def settle_one_flow(program: Program, context: Context) -> Program:
    """The attributes of a kernel without roles as its code will have them; of every kernel the
    remarks on the units of its products."""
    kernel = kernel_of(program)
    if context.machine.target == "cpu":
        return program
    if "roles" in kernel.attributes:
        kernel = settle_stores(_lane_copies(kernel, context), context)
    else:
        kernel = _Flow(kernel, context).settled()
    _note_units(kernel, context)
    return with_kernel(program, kernel)


def _lane_copies(kernel: Operation, context: Context) -> Operation:
    """What lanes of the moving role bring they copy in pieces where that can be, else they hold it
    in registers on its way. Products of lanes are shared by the warps that compute."""
    schedule = facts_of(kernel)
    producer, consumers = kernel.integers("roles")
    facts = _scalar_facts(kernel, context)
    refused = kernel.attributes.get("async_copy") is False or "async_copy" in context.refusals
    decisions: dict[Operation, dict[str, Attribute]] = {
        dot: grid for dot in products_of(kernel)
        if (grid := _warp_grid(dot, str(dot.attributes["unit"]), consumers, frozenset()))
    }  # fmt: skip
    for dot in (d for d in schedule.dots if d.operation.attributes["unit"] == "wgmma"):
        decisions[dot.operation] = {"operands": units.operand_places(dot, schedule)}
        if is_promoted(dot.operation, schedule):
            m, n, _ = (int(s) for s in dot.shape)
            decisions[dot.operation]["parts"] = units.promoted_parts(m, n)
    for read in (x for x in schedule.reads if is_staged(x)):
        found = decisions.setdefault(read.operation, {})
        width = role_swizzle(read, schedule)
        if width is not None:
            found["swizzle"] = width
        if not is_by_lanes(read):
            continue
        layout = lanes_layout(read, schedule)
        pieces = layout is not None and not refused and bool(
            piece_bytes(read, layout, facts, context.machine, producer)
        )  # fmt: skip
        found["copy"] = "async" if pieces else "plain"
    return with_attributes(kernel, decisions)


def _warp_grid(
    dot: Operation, unit: str, warps: int, by_rows: frozenset[Operation]
) -> dict[str, Attribute]:
    """How warps share a product, where its unit leaves that open."""
    t = dot.result.tile_type
    if unit == "wgmma" or len(t.shape) != 2:
        return {}
    m, n = t.sizes
    return {
        "warp_grid": mma_grid(m, n, warps, dot in by_rows) if unit == "mma"
        else fma_grid(m, n, warps)
    }  # fmt: skip


def _warps_of(kernel: Operation) -> int:
    return kernel.integer("warps")


def _scalar_facts(kernel: Operation, context: Context) -> Facts:
    known = context.numbers(kernel) if context.numbers is not None else None
    return Facts(kernel, known.key if known is not None else None)


def settle_loops(program: Program) -> Program:
    """The attributes of a kernel that becomes loops over elements: nothing is staged, and no
    matrix unit multiplies."""
    kernel = without(kernel_of(program), _OF_TILES)
    kernel = with_decisions(kernel, {"warps": LOOP_WARPS}, LEGALITY)

    def plain(operation: Operation) -> Operation | None:
        if operation.name == DOT:
            return replace(operation, attributes={
                "precision": operation.attributes["precision"], "unit": "fma",
            })  # fmt: skip
        kept = {n: v for n, v in operation.attributes.items() if n not in _STAGING}
        if len(kept) == len(operation.attributes):
            return None
        return replace(operation, attributes=kept)

    return with_kernel(program, rewrite_operation(kernel, plain))


def flow_unit(dot: Operation, context: Context) -> str:
    """The unit of a product that whole warps do together, whatever its sizes: tiles are padded to
    what fragments hold, and f8 is widened to f16 where the unit has no f8."""
    left = dot.operands[0].tile_type
    dtype = left.dtype
    known = bool(dtype.matrix) and (dtype != F32 or dot.attributes["precision"] == "tf32")
    return "mma" if context.machine.has("mma") and known else "fma"


class _Flow:
    def __init__(self, kernel: Operation, context: Context) -> None:
        self.kernel, self.context = kernel, context
        self.numbers = context.numbers(kernel) if context.numbers is not None else None
        self.facts = _scalar_facts(kernel, context)
        self.written = {self._pointer(v) for o in kernel.walk()
                        if o.name in WRITES
                        for v in o.operands if isinstance(v.type, ViewType)}  # fmt: skip

    def settled(self) -> Operation:
        decisions: dict[Operation, dict[str, Attribute]] = {}
        kernel = self._warps(self._groups(self.kernel))
        by_rows = rows_only(self.kernel, self.facts)
        for dot in products_of(self.kernel):
            unit = flow_unit(dot, self.context)
            decisions[dot] = {"unit": unit, **_warp_grid(dot, unit, _warps_of(kernel), by_rows)}
        staged = {load: self._copy(load) for load in self._staged()}
        stages = self._stages(staged)
        for load, copy in staged.items():
            decisions[load] = {"stage": "shared", "copy": copy, "stages": stages.get(load, 1)}
            width = flow_swizzle(load, self.facts)
            if width is not None:
                decisions[load]["swizzle"] = width
        return with_attributes(kernel, decisions)

    # --- the group and the grid -----------------------------------------------------------------

    def _warps(self, kernel: Operation) -> Operation:
        """A power of two, as tiles are spread over."""
        said = kernel.attributes.get("warps")
        if not isinstance(said, int) or said <= 0:
            return with_decisions(kernel, {"warps": _enough_warps(kernel)})
        warps = min(GROUP_WARPS, 1 << (said.bit_length() - 1))
        if said == warps:
            return kernel
        if said_by_user(kernel, "warps"):
            reason = f"tiles are spread over a power of two up to 16; the group has {warps}"
            return overruled(kernel, "warps", warps, self.context, reason)
        return with_decisions(kernel, {"warps": warps}, LEGALITY)

    def _groups(self, kernel: Operation) -> Operation:
        """Groups that share an axis are a cluster; where the launch does not know how many tiles
        there are, groups take one after the other."""
        across = [o.attributes.get("across", 1) for o in kernel.walk()]
        shared = max((n for n in across if isinstance(n, int)), default=1)
        cluster = (shared,) if shared > 1 else ()
        if kernel.attributes.get("cluster", ()) != cluster:
            kernel = decided(kernel, "cluster", cluster)
        grid = next((o for o in kernel.regions[0].operations if is_grid(o)), None)
        if grid is None or self.numbers is None or self._is_counted(grid):
            return kernel
        kernel = decided(kernel, "persistent", True)
        return decided(kernel, "groups", self.context.machine.units * UNCOUNTED_GROUPS)

    def _is_counted(self, grid: Operation) -> bool:
        """Whether the launch knows how many tiles there are."""
        assert self.numbers is not None
        axes = axes_of(grid)
        lower, upper, step = (
            [self.numbers.dim(v) for v in grid.operands[i * axes : (i + 1) * axes]]
            for i in range(3)
        )
        return None not in (*lower, *upper) and all(isinstance(n, int) for n in step)

    # --- what is staged, and by which copy --------------------------------------------------------

    def _staged(self) -> list[Operation]:
        """Loads that go to shared memory: those that products read from there, and others that
        were said to."""
        found: dict[Operation, None] = {}
        for dot in products_of(self.kernel):
            for value in dot.operands[:2]:
                load = operand_of(self.facts, value).load
                if load is not None and self._wanted(load, flow_unit(dot, self.context) == "fma"):
                    found[load] = None
        found.update((o, None) for o in self.kernel.walk()
                     if o.name == LOAD and o.attributes.get("stage") == "shared")  # fmt: skip
        return list(found)

    def _wanted(self, load: Operation, needed: bool) -> bool:
        refused = self.kernel.attributes.get("use_shared_memory") is False
        if needed and refused:
            self.note("T0742", "`schedule.use_shared_memory(False)` is not honoured: "
                      "multiply-adds read their operands from shared memory", load)  # fmt: skip
        said = load.attributes.get("stage")
        return needed or (not refused if said is None else said == "shared")

    def _copy(self, load: Operation) -> str:
        copy, reason = load.attributes.get("copy"), self._not_asynchronous(load)
        if reason and copy in ("async", "tma"):
            self.note("T0743", f"not asynchronous: {reason}", load)
        return "plain" if reason or copy == "plain" else "async"

    def _not_asynchronous(self, load: Operation) -> str:
        machine, access = self.context.machine, access_of(load)
        if not machine.has("cp_async"):
            return f"{machine.arch} has no asynchronous copies"
        if self.kernel.attributes.get("async_copy") is False:
            return "`schedule.async_copy(False)`"
        if "async_copy" in self.context.refusals:
            return self.context.refusals["async_copy"].reason
        if self.is_written(access.view):
            return "the kernel writes the array"
        vector = self.facts.vector_bytes(access)
        if vector < 4 and not load.attributes.get("repack"):
            return f"only {vector} bytes in a row are aligned, and a copy moves 4 at least"
        rank = len(load.result.type.shape)  # type: ignore[union-attr]
        return "" if rank in (1, 2) else "the tile has more than two axes"

    def _pointer(self, view: Value) -> Value:
        made = self.facts.operation(view)
        return made.operands[0] if made is not None and made.operands else view

    def is_written(self, view: Value) -> bool:
        """Whether the kernel writes the array behind a view."""
        return self._pointer(view) in self.written

    # --- how far copies run ahead -----------------------------------------------------------------

    def _stages(self, staged: dict[Operation, str]) -> dict[Operation, int]:
        """The buffers of the loads that run ahead of their loop; the others have one."""
        found: dict[Operation, int] = {}
        for loop in (o for o in self.kernel.walk() if o.name == FOR):
            loads = [o for o in _rings(loop) if o in staged]
            stages = self._depth(loop, loads)
            if not loads or stages < 2 or _has_exits(loop):
                continue
            for load in loads:
                if self._runs_ahead(load, loop):
                    found[load] = stages if staged[load] == "async" else PLAIN_STAGES
        return found

    def _runs_ahead(self, load: Operation, loop: Operation) -> bool:
        if address_of(self.facts, loop, load) is None:
            self.note("T0743", "not loaded ahead: where it lies depends on the iteration before",
                      load)  # fmt: skip
            return False
        if self.is_written(access_of(load).view):
            self.note("T0743", "not loaded ahead: the kernel writes the array", load)
            return False
        return True

    def _depth(self, loop: Operation, loads: list[Operation]) -> int:
        for held in (loop, self.kernel):
            said = held.attributes.get("pipeline_stages")
            if isinstance(said, int) and said > 0:
                return said
        said = [load.attributes.get("stages") for load in loads]
        known = [n for n in said if isinstance(n, int) and n > 0]
        return min(max(known), FLOW_MOST_STAGES) if known else FLOW_STAGES

    def note(self, code: str, message: str, operation: Operation) -> None:
        self.context.note(code, message, operation.span)


def _rings(loop: Operation) -> Iterator[Operation]:
    """The loads of a loop whose copies may run ahead: of a loop over groups those of groups that
    stay, without what is loaded once."""
    loads = [o for o in loop.regions[0].operations if o.name == LOAD]
    if is_grid(loop) and not any(o.attributes.get("early") for o in loads):
        return
    yield from (o for o in loads if not o.attributes.get("kept"))


def _has_exits(loop: Operation) -> bool:
    return any(o.name in LOOP_EXITS for o in loop.regions[0].operations)


def _enough_warps(kernel: Operation) -> int:
    """So many that a lane's share of the tiles fits its registers."""
    products = [tile.sizes for tile in (dot.result.type for dot in products_of(kernel))
                if isinstance(tile, TileType)]  # fmt: skip
    if products:
        fragments = max(-(-m // 16) * -(-n // 8) for m, n in (s[-2:] for s in products))
        held = sum(prod(s) for s in products)
        warps = 4
        while warps > 1 and warps > fragments:
            warps //= 2
        while warps < GROUP_WARPS and held > WARP * warps * FLOW_ACCUMULATORS:
            warps *= 2
        return warps
    largest = max(
        (prod(v.type.sizes) * max(4, v.type.dtype.bytes) // 4
         for o in kernel.walk() for v in o.results
         if is_tile(v) and isinstance(v.type, TileType)), default=1,
    )  # fmt: skip
    warps = 4
    while warps < GROUP_WARPS and largest > WARP * warps * FLOW_REGISTERS // 3:
        warps *= 2
    return warps


# --- remarks ------------------------------------------------------------------------------------


def _note_units(kernel: Operation, context: Context) -> None:
    """Says of each product that is not done by the best unit of the machine why it is not."""
    facts, machine = facts_of(kernel), context.machine
    best = "wgmma" if machine.has_roles else "mma"
    said: set[tuple[str, object]] = set()
    for dot in facts.dots if machine.has("mma") else ():
        unit, span = str(dot.operation.attributes["unit"]), dot.operation.span
        if unit == best:
            continue
        wanted, reason = units.unit_of(dot, facts, machine)
        if unit == "fma":
            reason = units.mma_reason(dot)
        elif wanted == "wgmma":
            reason = context.reasons.get("roles", "the kernel is not split into roles")
        message = f"this product is done by {unit}, not {best}: {reason}"
        if (message, span) not in said:
            said.add((message, span))
            context.note("T0744", message, span)
