"""The producer role: copies into the rings, and what both roles know of the rings between them.

``Producer`` runs what the staged loads need and, in place of the loads, waits for a free slot
and asks for its next content, or brings it itself. Owns this side of the protocol. Must not
know the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.analysis.resources.register_layouts import gathered
from tessera_lang.ir.core import Attribute, Operation, TileType, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.chunked_lane_copies import bring
from tessera_lang.lower.schedule_to_tile.common.engine import Engine
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch
from tessera_lang.lower.schedule_to_tile.common.tensor_maps import Boxes, buffer_starts, coordinates
from tessera_lang.lower.schedule_to_tile.hopper.pipeline_state import RingUse, Threaded
from tessera_lang.opt.schedule.query.kernel_facts import GATHER, Load
from tessera_lang.opt.schedule.query.kernel_facts import Facts as ScheduleFacts
from tessera_lang.opt.schedule.query.scalar_facts import (
    Facts,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import MAP_BEFORE, VECTOR_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Buffered:
    """A ring in shared memory: barriers, and by the result of a load its buffer and boxes; what
    lanes bring has no boxes. ``copied``: what of it they copy without registers, in pieces of so
    many bytes. ``bytes``: what the copy engine brings to a slot. ``shared``: some of it is
    brought for the whole cluster. ``borrowed``: barriers and buffers are those of another ring,
    whose tiles are read a second time; ``lent``: of this one, and its places are freed there."""

    full: Value
    empty: Value
    buffers: Mapping[Value, Value]
    boxes: Mapping[Value, Boxes]
    copied: Mapping[Value, int]
    bytes: int
    shared: bool
    lent: bool = False
    borrowed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """What both roles know: the threaded kernel, its facts, and the rings by number."""

    threaded: Threaded
    schedule: ScheduleFacts
    rings: Sequence[Buffered]
    rank: Value | None
    cluster: int

    def lent_to(self, borrowed: int) -> list[int]:
        """The ring whose tiles a ring reads a second time; none of others."""
        this = self.rings[borrowed]
        if not this.borrowed:
            return []
        return [i for i, r in enumerate(self.rings) if r.lent and r.full is this.full]

    def use_of(self, operation: Operation) -> RingUse | None:
        """The ring that a load belongs to."""
        if not operation.results:
            return None
        result = operation.results[0]
        return next((u for u in self.threaded.uses if result in u.results), None)


def copy_by_lanes(body: Body, read: Load, ring: Buffered, slot: Value) -> None:
    """Start the copies of all lanes into a slot."""
    b, access, result = body.builder, access_of(read.operation), read.operation.result
    vector, rank = ring.copied[result], len(access.dims)
    inner = [slot, *(b.index(0) for _ in range(rank))]
    view, buffer, extents = body.scalar(access.view), ring.buffers[result], access.extents
    attributes: dict[str, Attribute] = {"dims": access.dims, "vector": vector}
    if read.operation.name != GATHER:
        operands = [view, buffer, *body.scalars((*access.starts, *extents)), *inner]
        b.emit("tile.memcpy.async", operands, (), {**attributes, "steps": access.steps})
        return
    starts: list[Value] = []
    for dim, start in enumerate(access.starts):
        if isinstance(start.type, TileType):
            width = vector // read.tile.dtype.bytes
            axis = access.dims.index(dim)
            _, rows = gathered(read.tile.sizes, width, body.engine.warps, axis)
            starts.append(body.demand(start, rows))
        else:
            starts.append(body.scalar(start))
    operands = [view, buffer, *starts, *body.scalars(extents), *inner]
    b.emit("tile.memcpy.gather", operands, (), attributes)


class Producer(Body):
    """Fills the rings; runs by one lane, or by all (``lanes``) where they bring tiles."""

    def __init__(
        self, builder: Builder, facts: Facts, layouts: Layouts, engine: Engine, scratch: Scratch,
        pipeline: Pipeline, lanes: bool,
    ) -> None:  # fmt: skip
        super().__init__(builder, facts, layouts, engine, scratch)
        self.pipeline = pipeline
        self.lanes = lanes
        pieces = pipeline.schedule.kernel.attributes.get("pieces", 0)
        self._pieces = pieces if isinstance(pieces, int) else 0

    def operation(self, operation: Operation) -> None:
        use = self.pipeline.use_of(operation)
        for result in operation.results:
            for number, slot, phase in self.pipeline.threaded.turns.get(result, ()):
                self._drain(number, self.scalar(slot), self.scalar(phase))
        if use is None:
            super().operation(operation)
        elif operation.results[0] is use.last and not self.pipeline.rings[use.number].borrowed:
            self._fill(use)

    def _fill(self, use: RingUse) -> None:
        b, ring = self.builder, self.pipeline.rings[use.number]
        slot = self.scalar(use.slot)
        by_lanes = [x for x in use.loads if x.operation.result not in ring.boxes]
        brought = [x for x in by_lanes if x.operation.result not in ring.copied]
        for read in brought if not self._pieces else ():  # on its way while no slot is free yet
            super().operation(read.operation)
        b.emit("tile.mbarrier.wait", (ring.empty, slot, self.scalar(use.phase)))
        if ring.bytes and not self.lanes:
            self._copies(use, ring, slot)
        elif ring.bytes:
            with b.region() as one:
                self._copies(use, ring, slot)
                b.yield_()
            b.emit("tile.once", regions=(one.region,))
        for read in by_lanes:
            if read.operation.result in ring.copied:
                copy_by_lanes(self, read, ring, slot)
        if any(x in ring.copied for x in use.results):
            b.emit("tile.memcpy.arrive", (ring.full, slot))
        if brought:
            self._written(brought, ring, slot)

    def _drain(self, number: int, slot: Value, phase: Value) -> None:
        """Wait until a ring is empty that is to be filled next at this position. Where lanes have
        written it, the copy engine may write there next."""
        b, ring = self.builder, self.pipeline.rings[number]
        stages = next(u.stages for u in self.pipeline.threaded.uses if u.number == number)
        for step in range(stages):
            b.emit("tile.mbarrier.wait", (ring.empty, slot, phase))
            if step + 1 < stages:
                following = b.binary("add", slot, b.index(1))
                wraps = b.cmp("eq", following, b.index(stages))
                slot = b.select(wraps, b.index(0), following)
                phase = b.select(wraps, b.binary("xor", phase, b.index(1)), phase)
        if any(result not in ring.boxes for result in ring.buffers):
            b.emit("tile.fence_async")

    def _written(self, brought: Sequence[Load], ring: Buffered, slot: Value) -> None:
        """What lanes have read goes to the slot, and is there for products when all arrive."""
        b = self.builder
        for read in brought:
            buffer = ring.buffers[read.operation.result]
            if self._pieces and bring(self, read.operation, buffer, slot, self._pieces):
                continue
            if self._pieces:
                super().operation(read.operation)
            tile = self.tile(read.operation.result)
            starts = [b.index(0) for _ in read.tile.shape]
            b.emit("tile.write_tile", (tile, buffer, slot, *starts))
        b.emit("tile.fence_async")
        b.barrier()
        b.emit("tile.mbarrier.arrive", (ring.full, slot), (), {"across": "group"})

    def _copies(self, use: RingUse, ring: Buffered, slot: Value) -> None:
        attributes = {"bytes": ring.bytes}
        self.builder.emit("tile.mbarrier.expect", (ring.full, slot), (), attributes)
        for load in use.loads:
            if load.operation.result in ring.boxes:
                self._copy(load.operation, ring, slot)

    def _copy(self, load: Operation, ring: Buffered, slot: Value) -> None:
        b, result = self.builder, load.result
        boxes = ring.boxes[result]
        starts = self.scalars(access_of(load).starts)
        if load.attributes.get("outside"):
            starts = self._coordinates(load, starts)
        shared = boxes.share != (0, 0)
        attributes: dict[str, Attribute] = {}
        if shared:
            attributes["multicast"] = (1 << self.pipeline.cluster) - 1
        if "hint" in load.attributes:
            attributes["hint"] = load.attributes["hint"]
        moved = [self._moved(step) for step in boxes.share]
        for box in boxes.boxes:
            panel = self._plus(moved[0], box.panel)
            line = self._plus(moved[1], box.line)
            along = self._at(starts[boxes.dims[0]], panel)
            across = self._at(starts[boxes.dims[1]], line)
            where = buffer_starts(slot, panel or b.index(0), line or b.index(0), boxes.layout)
            operands = (boxes.map, ring.buffers[result], ring.full, slot, *where,
                        *coordinates(boxes, starts, along, across))  # fmt: skip
            b.emit("tma.load", operands, (), attributes)

    def _coordinates(self, load: Operation, starts: Sequence[Value]) -> list[Value]:
        """Starts that 32 bits hold: a window that is as far outside of the array as they tell
        begins right behind it, or far before it, at a multiple of 16 bytes of a line."""
        b, view = self.builder, access_of(load).view
        sizes = self.pipeline.schedule.definitions[view].operands[1 : 1 + len(starts)]
        least, chunk = b.index(-MAP_BEFORE), b.index(VECTOR_BYTES)
        found: list[Value] = []
        for start, size in zip(starts, self.scalars(sizes), strict=True):
            up = b.binary("add", size, b.index(VECTOR_BYTES - 1))
            behind = b.binary("mul", b.binary("floordiv", up, chunk), chunk)
            found.append(b.binary("max", b.binary("min", start, behind), least))
        return found

    def _moved(self, step: int) -> Value | None:
        """How far this group's part of a shared tile lies from the tile's start."""
        if not step or self.pipeline.rank is None:
            return None
        return self.builder.binary("mul", self.pipeline.rank, self.builder.index(step))

    def _plus(self, value: Value | None, number: int) -> Value | None:
        if not number:
            return value
        constant = self.builder.index(number)
        return constant if value is None else self.builder.binary("add", value, constant)

    def _at(self, start: Value, offset: Value | None) -> Value:
        return start if offset is None else self.builder.binary("add", start, offset)
