"""Warp specialization on Hopper: decided schedules as Tile IR with roles, rings and clusters.

``lower_specialised`` takes a kernel that ``assign_roles`` has split. Everything general is
elsewhere: positions in rings (``pipeline_state``), the part of the body that moves data
(``producer_region``), the protocol of the two sides (``producer_pipeline``, ``consumer``), the
tiles of the grid (``tile_scheduler``), results (``epilogue``). Owns the assembly, and how
products are computed here. Must not know what the kernel computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.register_layouts import wgmma_a, wgmma_c
from tessera_lang.ir.core import Attribute, BarrierType, Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import ARRAY_READS, PERMUTES, REPORTS, WRITES
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_lanes.def_use import Source
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.engine import Engine, Product
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured, NotTiled
from tessera_lang.lower.schedule_to_tile.common.fma_products import by_multiply_adds
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch
from tessera_lang.lower.schedule_to_tile.common.tensor_maps import Boxes, Maps
from tessera_lang.lower.schedule_to_tile.common.tile_counts import tile_counts
from tessera_lang.lower.schedule_to_tile.hopper import epilogue
from tessera_lang.lower.schedule_to_tile.hopper.consumer import Consumer
from tessera_lang.lower.schedule_to_tile.hopper.epilogue_fusion import work_by_parts
from tessera_lang.lower.schedule_to_tile.hopper.inflight_accumulators import chains_of
from tessera_lang.lower.schedule_to_tile.hopper.issue_order import check_turns
from tessera_lang.lower.schedule_to_tile.hopper.pipeline_state import RingUse, Threaded, thread
from tessera_lang.lower.schedule_to_tile.hopper.producer_pipeline import Buffered, Pipeline
from tessera_lang.lower.schedule_to_tile.hopper.producer_region import Moving
from tessera_lang.lower.schedule_to_tile.hopper.ring_offsets import RingPlaces, staged_bytes
from tessera_lang.lower.schedule_to_tile.hopper.tile_scheduler import (
    Cluster,
    Walk,
    over_tiles,
    walk_of,
)
from tessera_lang.opt.schedule.decide.grid_order import cluster_variables
from tessera_lang.opt.schedule.decide.legality import crowding
from tessera_lang.opt.schedule.query.backward_slices import depends_on
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    Load,
    facts_of,
)
from tessera_lang.opt.schedule.query.kernel_facts import Facts as ScheduleFacts
from tessera_lang.opt.schedule.query.lane_copy_widths import piece_bytes
from tessera_lang.opt.schedule.query.occupancy_budget import launched_registers
from tessera_lang.opt.schedule.query.producer_lane_copies import is_by_lanes, lanes_layout
from tessera_lang.opt.schedule.query.scalar_facts import (
    Facts,
)
from tessera_lang.opt.schedule.query.staging_rings import rings_of, tile_bytes
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import replace
from tessera_lang.target.arch.isa_constants import STEP_BYTES, WARP, WARP_GROUP
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine
from tessera_lang.types.shape import Dim, dim_op

_KEPT_IN_ORDER = WRITES | REPORTS


class HopperEngine(Engine):
    """Products by whole warp groups on buffers; results leave by TMA where they can."""

    def __init__(self, machine: Machine, warps: int, schedule: ScheduleFacts) -> None:
        super().__init__(machine, warps)
        self.leaving: dict[Operation, epilogue.Leaving] = {}
        self._schedule = schedule
        self._buffers_only = _only_in_buffers(schedule)

    @property
    def groups(self) -> int:
        return self.warps // WARP_GROUP

    def product(self, dot: Operation) -> Product | None:
        if dot.attributes.get("unit") != "wgmma":
            return by_multiply_adds(dot, self.warps)
        left = dot.operands[0].tile_type
        deep, dtype = STEP_BYTES // left.dtype.bytes, left.dtype
        return Product(
            "wgmma", (64 * self.groups, 8, deep),
            accumulator=lambda shape: wgmma_c(shape, self.groups),
            left=lambda shape: wgmma_a(shape, self.groups, dtype), step=deep,
        )  # fmt: skip

    def in_registers(self, load: Operation) -> bool:
        return not load.results or load.results[0] not in self._buffers_only

    def store(self, body: Body, operation: Operation) -> None:
        leaving = self.leaving.get(operation)
        if leaving is None:
            body.store_tile(operation)
        else:
            epilogue.leave(body, operation, leaving)


def _only_in_buffers(facts: ScheduleFacts) -> set[Value]:
    """Loads, and what moves no data behind them, that only products read from buffers."""
    found: set[Value] = set()
    direct = {
        x.value for d in facts.dots for x in (d.a, d.b)
        if x.load is not None and x.load.operation.attributes.get("stage") == "shared"
    }  # fmt: skip
    for operation in reversed(list(facts.kernel.walk())):
        if operation.name not in ARRAY_READS | PERMUTES or not operation.results:
            continue
        value = operation.result
        users = facts.users.get(value, [])
        if all(
            (u.name == DOT and value in direct and value is not u.operands[2])
            or (u.results and u.results[0] in found)
            for u in users
        ):
            found.add(value)
    return found


def lower_specialised(
    program: Program, plan: LaunchPlan, machine: Machine
) -> tuple[Program, LaunchPlan]:
    """Raises NotHonoured where the kernel cannot be split after all."""
    try:
        return _specialised(program, plan, machine)
    except NotHonoured:
        raise
    except NotTiled as reason:
        raise NotHonoured("roles", reason.reason, reason.span) from None


def _specialised(
    program: Program, plan: LaunchPlan, machine: Machine
) -> tuple[Program, LaunchPlan]:
    (kernel,) = program.operations
    before = facts_of(kernel)
    grid = before.grid
    if grid is None or grid.results or "roles" not in kernel.attributes:
        raise NotTiled("it is not split into producer and consumers")
    rings = rings_of(before)
    places = RingPlaces(rings, before)
    threaded = thread(kernel, grid, rings, chains_of(before, rings), places.begins)
    return _Lowering(threaded, plan, machine, places).run()


class _Lowering:
    def __init__(
        self, threaded: Threaded, plan: LaunchPlan, machine: Machine, places: RingPlaces
    ) -> None:
        self.threaded = threaded
        self.plan = plan
        self.places = places
        self.schedule = facts_of(threaded.kernel)
        self.numbers = Numbers(Source(threaded.kernel), plan)
        self.facts = Facts(threaded.kernel, self.numbers.key)
        kernel = threaded.kernel
        self.producer_warps, self.consumer_warps = kernel.integers("roles")
        self.registers = kernel.integers("registers")
        self.engine = HopperEngine(machine, self.consumer_warps, self.schedule)
        self.layouts = Layouts(kernel, self.facts, self.engine, direct=True)
        self.scratch = Scratch()
        self.scratches = [self.scratch]
        self.maps = Maps(self.schedule, plan)
        self.builder = Builder(kernel.span)
        self.barriers: list[Operation] = []
        self.cluster = self._cluster()

    def _cluster(self) -> Cluster:
        shape = self.threaded.kernel.integers("cluster")
        grid = self.threaded.grid
        found = cluster_variables(grid, shape) if shape else ()
        if not found:
            return Cluster()
        ((variable, size),) = found
        return Cluster(grid.regions[0].arguments.index(variable), size)

    def run(self) -> tuple[Program, LaunchPlan]:
        kernel, b = self.threaded.kernel, self.builder
        (region,) = kernel.regions
        with b.region(*((v.name, v.type) for v in region.arguments)) as made:
            top = Body(b, self.facts, self.layouts, self.engine, self.scratch)
            for value, argument in zip(region.arguments, made.arguments, strict=True):
                top.bind(value, argument)
            at = next(i for i, o in enumerate(region.operations) if o is self.threaded.grid)
            self._check_top(region, at)
            before = region.operations[:at]
            tiles = _of_tiles(before)
            self._check_producer(tiles)
            top.lower([o for o in before if o not in tiles])
            self._roles(top, tiles)
            if self.cluster.size > 1:
                b.emit("tile.cluster_barrier")
            b.return_()
        return self._finish(made.region)

    def _check_top(self, region: Region, at: int) -> None:
        """Around the grid nothing is written; behind it nothing is done."""
        for operation in region.operations[:at]:
            if operation.holds(_KEPT_IN_ORDER):
                raise NotTiled("it writes outside the loop whose iterations are groups")
        for operation in region.operations[at + 1 : -1]:
            if operation.regions or _has_tiles(operation) or operation.name in _KEPT_IN_ORDER:
                raise NotTiled("it works behind the loop whose iterations are groups")

    def _check_producer(self, tiles: Sequence[Operation]) -> None:
        """The role that copies has no number that the other one computes, nor has the grid."""
        made = {v for o in tiles for v in o.results}
        asked = [*self.threaded.grid.operands]
        loads = (load.operation for use in self.threaded.uses for load in use.ring.loads)
        asked += [v for o in loads for v in o.operands]
        seen = set[Value]()
        while asked:
            value = asked.pop()
            if value in made:
                raise NotTiled("it copies by a number that is computed from tiles")
            definition = self.schedule.definitions.get(value)
            if definition is not None and value not in seen:
                seen.add(value)
                asked += definition.operands

    # --- roles --------------------------------------------------------------------------------

    def _roles(self, top: Body, tiles: Sequence[Operation]) -> None:
        """``tiles``: what of the kernel's beginning makes tiles, for the role that computes."""
        b, grid = self.builder, self.threaded.grid
        kernel = self.threaded.kernel
        rows, heaviest = kernel.integer("group_rows", 1), kernel.integers("heaviest")
        persistent = bool(kernel.attributes.get("persistent"))
        walk = walk_of(b, grid, top.scalar, self.cluster, rows, persistent, heaviest)
        uses = {u.number: u for u in reversed(self.threaded.uses)}
        rings = self._rings([uses[number] for number in sorted(uses)])
        self.engine.leaving = epilogue.stores_in_parts(
            self.schedule, self.maps, self.scratch, self.layouts
        )
        pipeline = Pipeline(self.threaded, self.schedule, rings, walk.rank, self.cluster.size)
        machine = self.engine.machine
        moving = Moving(pipeline, self.numbers, machine, self.producer_warps)
        self.scratches.append(moving.scratch)
        regions = [moving.region(top, walk), self._consumer(top, walk, pipeline, tiles)]
        attributes: dict[str, Attribute] = {
            "names": ("producer", "consumer"),
            "warps": (self.producer_warps, self.consumer_warps), "registers": self.registers,
        }  # fmt: skip
        if residents := self.threaded.kernel.integer("residents", 0):
            lanes = WARP * (self.producer_warps + self.consumer_warps)
            attributes["launched"] = launched_registers(lanes, residents, machine)
        b.emit("tile.roles", (), (), attributes, regions)

    def _consumer(
        self, top: Body, walk: Walk, pipeline: Pipeline, tiles: Sequence[Operation]
    ) -> Region:
        b, grid = self.builder, self.threaded.grid
        (region,) = grid.regions
        axes = len(region.arguments) - len(grid.results)
        body = Consumer(b, self.facts, self.layouts, self.engine, self.scratch, pipeline)
        body.values = dict(top.values)
        with b.region() as role:
            body.init_order()
            body.lower(tiles)
            start = [b.index(0, v.name) for v in region.arguments[axes:]]

            def tile(variables: Sequence[Value], carried: Sequence[Value]) -> list[Value]:
                _bind(body, region.arguments, (*variables, *carried))
                body.lower(region.operations[:-1])
                body.end_tile()
                return body.scalars(region.terminator.operands)

            over_tiles(walk, start, tile)
            if self.engine.leaving:
                epilogue.all_gone(body, self.engine.leaving.values())
            b.yield_()
        check_turns(role.region)
        return role.region

    # --- rings --------------------------------------------------------------------------------

    def _rings(self, uses: Sequence[RingUse]) -> list[Buffered]:
        """The rings by number; those that read tiles of another a second time have its buffers."""
        made = {u.number: self._ring(u) for u in uses if u.ring.reread is None}
        said = {u.ring.said: u for u in uses}
        for use in uses:
            if use.ring.reread is not None:
                other = said[use.ring.reread]
                lent = made[other.number] = replace(made[other.number], lent=True)
                made[use.number] = _borrowed(use, other, lent)
        return [made[u.number] for u in uses]

    def _ring(self, use: RingUse) -> Buffered:
        buffers: dict[Value, Value] = {}
        boxes: dict[Value, Boxes] = {}
        copied: dict[Value, int] = {}
        shared = False
        offset = self.places.at.get(use.number, -1)
        for load in use.ring.loads:
            result = load.operation.result
            name = load.operation.result.name or "tile"
            place = use.ring.loads.index(load)
            again = [loads[place].operation.result for loads in use.ring.others]
            if is_by_lanes(load):
                layout = lanes_layout(load, self.schedule)
                assert layout is not None
                pieces = self._pieces(load, layout)
                copied.update(dict.fromkeys((result, *again) if pieces else (), pieces))
            else:
                found = self.maps.boxes(access_of(load.operation), load.tile,
                                        self._share(load.starts))  # fmt: skip
                shared, layout = shared or found.share != (0, 0), found.layout
                boxes.update(dict.fromkeys((result, *again), found))
            shape = (use.stages, *load.tile.sizes)
            buffer = self.scratch.allocate(load.tile.dtype, shape, name, "staged", layout, offset)
            offset += staged_bytes(load, use.stages, self.schedule) if offset >= 0 else 0
            buffers.update(dict.fromkeys((result, *again), buffer))
        consumers = self.consumer_warps // WARP_GROUP * (self.cluster.size if shared else 1)
        sizes = [tile_bytes(x.tile) for x in use.ring.loads if not is_by_lanes(x)]
        written = len(use.ring.loads) - len(sizes) - sum(x in copied for x in use.ring.results)
        lanes = 32 * self.producer_warps * any(x in copied for x in use.ring.results)
        full = self._barriers(use, "full", bool(sizes) + bool(written) + lanes)
        empty = self._barriers(use, "empty", consumers)
        return Buffered(full, empty, buffers, boxes, copied, sum(sizes), shared)

    def _pieces(self, load: Load, layout: SharedLayout) -> int:
        """Bytes of the pieces that lanes copy; 0 where the schedule has them hold the tile."""
        if load.operation.attributes.get("copy") != "async":
            return 0
        machine, warps = self.engine.machine, self.producer_warps
        pieces = piece_bytes(load, layout, self.facts, machine, warps)
        if not pieces:
            reason = "lanes cannot copy a tile without holding it in registers"
            raise NotHonoured("async_copy", reason, load.operation.span)
        return pieces

    def _share(self, starts: Sequence[Value]) -> int:
        """How many groups of a cluster read the same tile."""
        if self.cluster.size == 1:
            return 1
        variable = self.threaded.grid.regions[0].arguments[self.cluster.axis]
        return 1 if depends_on(starts, variable, self.schedule) else self.cluster.size

    def _barriers(self, use: RingUse, what: str, arrivals: int) -> Value:
        name = f"{what}{use.number}"
        value = Value(BarrierType(use.stages), name)
        attributes = {"name": name, "arrivals": arrivals}
        self.barriers.append(Operation("tile.mbarrier.alloc", (), (value,), attributes))
        return value

    # --- the whole ----------------------------------------------------------------------------

    def _finish(self, region: Region) -> tuple[Program, LaunchPlan]:
        kernel = self.threaded.kernel
        allocations: list[Operation] = []
        operations = region.operations
        for scratch in self.scratches:
            made, replaced = scratch.finish()
            allocations += made
            operations = replace_values(operations, replaced)
        operations = (*allocations, *self.barriers, *operations)
        body = Region((*region.arguments, *self.maps.arguments), operations)
        lanes = 32 * (self.producer_warps + self.consumer_warps)
        names = kernel.strings("parameters")
        attributes = {
            "sym_name": kernel.attributes["sym_name"], "group": (lanes,), "grid_rank": 1,
            "shared_budget": -1,
            "parameters": (*names, *(v.name for v in self.maps.arguments)),
        }  # fmt: skip
        if self.cluster.size > 1:
            attributes["cluster"] = (self.cluster.size,)
        if residents := kernel.integer("residents", 0):
            attributes["registers"] = launched_registers(lanes, residents, self.engine.machine)
        whole = Operation("tile.kernel", (), (), attributes, (body,), kernel.span)
        return Program("tile", (self._by_parts(whole, region),)), self._plan(lanes)

    def _by_parts(self, whole: Operation, region: Region) -> Operation:
        """The kernel with work on results where the schedule says that it is done."""
        kernel, written = self.threaded.kernel, self._written(region)
        form = kernel.attributes.get("epilogue", "whole")
        if form == "whole":
            return whole
        made, early = work_by_parts(whole, written, form == "prefetch")
        if made is whole:
            raise NotHonoured("epilogue_parts", "the work cannot be done part by part", kernel.span)
        if form != "prefetch":
            return made
        if not early:
            reason = "nothing that the first part reads is known before the loop"
            raise NotHonoured("epilogue_prefetch", reason, kernel.span)
        machine = self.engine.machine
        over = crowding(made, kernel, machine)[0]
        later = work_by_parts(whole, written, False)[0] if over else made
        if over and crowding(later, kernel, machine)[0] < over:
            reason = f"it takes {over} registers of a lane more than there are"
            raise NotHonoured("epilogue_prefetch", reason, kernel.span)
        return made

    def _written(self, region: Region) -> frozenset[Value]:
        """The pointers of the arrays that the kernel does not only read."""
        views = {v: o.operands[0] for v, o in self.schedule.definitions.items()
                 if o.name == "tile.view"}  # fmt: skip
        used = {views[v] for o in self.threaded.kernel.walk() if o.name not in ARRAY_READS
                for v in o.operands if v in views}  # fmt: skip
        own = self.threaded.kernel.regions[0].arguments
        return frozenset(made for v, made in zip(own, region.arguments, strict=True) if v in used)

    def _plan(self, lanes: int) -> LaunchPlan:
        size = self.cluster.size
        total: Dim = size
        for axis, count in enumerate(tile_counts(self.threaded.grid, self.numbers)):
            clusters = dim_op("ceil_div", count, size) if axis == self.cluster.axis else count
            total = dim_op("*", total, clusters)
        return replace(
            self.plan, slots=(*self.plan.slots, *self.maps.slots), group=(lanes,), grid=(total,),
            cluster=(size,) if size > 1 else (),
            scratch=dim_op("*", self.plan.scratch, self.scratch.of_a_part),
            persistent=bool(self.threaded.kernel.attributes.get("persistent")),
        )  # fmt: skip


def _borrowed(use: RingUse, other: RingUse, lent: Buffered) -> Buffered:
    """A ring with the barriers and buffers of another."""
    firsts = other.ring.results
    buffers = {
        x.operation.result: lent.buffers[firsts[x.operation.integers("reread")[1]]]
        for x in use.ring.everywhere
    }
    return replace(lent, buffers=buffers, boxes={}, copied={}, bytes=0, lent=False, borrowed=True)


def _of_tiles(operations: Sequence[Operation]) -> list[Operation]:
    """Those that tiles go in or come out of, and those that read what these make."""
    found: list[Operation] = []
    made = set[Value]()
    for operation in operations:
        if _has_tiles(operation) or any(v in made for o in operation.walk() for v in o.operands):
            found.append(operation)
            made.update(operation.results)
    return found


def _has_tiles(operation: Operation) -> bool:
    """Whether a tile goes in or comes out anywhere in an operation."""
    return any(
        isinstance(v.type, TileType) for o in operation.walk() for v in (*o.operands, *o.results)
    )


def _bind(body: Body, values: Sequence[Value], made: Sequence[Value]) -> None:
    for value, one in zip(values, made, strict=True):
        body.bind(value, one)
