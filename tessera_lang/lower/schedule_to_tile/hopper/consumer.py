"""The consumer role: what it waits for, and when it frees what it has used.

``Consumer`` runs the body. Where loads stood it waits for a slot; products are issued on the
buffers, and waited for where their result is first needed; a slot is freed when the last
product that reads it is done. A chain (``chains``) is never waited for inside its loop; its
slots are freed one iteration later. Computed operands are written to buffers of their own.

Owns this side of the protocol. Must not know the grid, or how results leave.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tessera_lang.analysis.resources.register_layouts import canonical, transposed, wgmma_a, wgmma_c
from tessera_lang.ir.core import Attribute, BufferType, Operation, TileType, Value
from tessera_lang.ir.definitions import ENDS
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.engine import Engine
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch
from tessera_lang.lower.schedule_to_tile.hopper.computed_beside import last_made, refills
from tessera_lang.lower.schedule_to_tile.hopper.inflight_accumulators import is_zero
from tessera_lang.lower.schedule_to_tile.hopper.pipeline_state import Iterations, RingUse
from tessera_lang.lower.schedule_to_tile.hopper.producer_pipeline import Pipeline
from tessera_lang.opt.schedule.query.accumulator_registers import is_promoted
from tessera_lang.opt.schedule.query.computed_operands import written_buffers
from tessera_lang.opt.schedule.query.kernel_facts import DOT, Dot, Operand
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tessera_lang.opt.schedule.query.unit_legality import (
    REGISTERS,
    SHARED,
    WRITTEN,
    computed_layout,
    said_places,
)
from tessera_lang.record import dataclass, field, replace
from tessera_lang.types.dtype import BOOL

_ORDER = 4  # the first of the named barriers by which warp groups take turns


@dataclass(slots=True, eq=False)
class _Issued:
    """A product on its way: what it gives, and the rings it reads."""

    result: Value
    rings: tuple[int, ...]
    chained: bool


@dataclass(slots=True, eq=False)
class _Reading:
    """A ring in the region that is being lowered. ``last``: the last operation that reads it;
    ``over``: it has been lowered; ``by_lanes``: registers were filled from it."""

    use: RingUse
    last: Operation
    over: bool = False
    by_lanes: bool = False
    released: bool = False


@dataclass(slots=True)
class _State:
    """``coming``: rings of the region whose slots are not waited for yet."""

    issued: list[_Issued] = field(default_factory=list[_Issued])
    reading: dict[int, _Reading] = field(default_factory=dict[int, _Reading])
    coming: dict[int, RingUse] = field(default_factory=dict[int, RingUse])


class Consumer(Body):
    """Computes with what the rings hold; runs by all warps of the role."""

    def __init__(
        self, builder: Builder, facts: Facts, layouts: Layouts, engine: Engine, scratch: Scratch,
        pipeline: Pipeline,
    ) -> None:  # fmt: skip
        super().__init__(builder, facts, layouts, engine, scratch)
        self.pipeline = pipeline
        self._state = _State()
        self._added: set[int] = set()
        self._ordered = bool(pipeline.schedule.kernel.attributes.get("pingpong"))
        self._may_issue = False
        self._computed: dict[tuple[int, tuple[int, ...]], Value] = {}
        self._buffers = {
            place: number
            for number, buffer in enumerate(written_buffers(pipeline.schedule))
            for place in buffer.places
        }
        self._late = {n for t in pipeline.threaded.iterations for n in t.chain.late}
        self._read = {
            d.a.load.operation.result for d in pipeline.schedule.dots
            if d.a.load is not None and _places(d)[0] == REGISTERS
        }  # fmt: skip
        self._refills = refills(pipeline.schedule)
        self._dots = {id(d.operation): d for d in pipeline.schedule.dots}
        self._ends = {id(u.end): u for u in pipeline.threaded.uses}
        self._loops = {id(t.loop): t for t in pipeline.threaded.iterations}
        self._chain_ends = {
            id(t.loop.regions[0].terminator): t for t in pipeline.threaded.iterations
        }
        self._chained = {
            id(d): (t, zero)
            for t in pipeline.threaded.iterations
            for d, zero in zip(t.chain.dots, t.chain.zero, strict=True)
        }

    # --- values: whoever asks for the result of a product waits for it ----------------------

    def tile(self, value: Value) -> Value:
        self._settle(value)
        return super().tile(value)

    def demand(self, value: Value, layout: object) -> Value:
        self._settle(value)
        return super().demand(value, layout)  # type: ignore[arg-type]

    def _settle(self, value: Value) -> None:
        issued = self._state.issued
        for i, product in enumerate(issued):
            if product.result is value:
                self._complete(i + 1)
                return

    def _complete(self, count: int, beside: Sequence[Value] = (), computed: bool = False) -> None:
        """Wait until the first ``count`` products that are on their way are done. ``beside``:
        what is to be computed before, as the products run; ``computed``: and surely is."""
        done, rest = self._state.issued[:count], self._state.issued[count:]
        self._arrive_in_order()
        if not done:
            return
        last = set(last_made(beside, self.pipeline.schedule)) if computed else set[Value]()
        self._wait([*(p.result for p in done), *beside], len(rest), last)
        self._state.issued = rest
        self._release_free()

    def _wait(
        self, values: Sequence[Value], pending: int, computed: Collection[Value] = ()
    ) -> None:  # fmt: skip
        held = [self.values[v] for v in values]
        attributes: dict[str, Attribute] = {"pending": pending}
        if computed:
            attributes["computed"] = tuple(i for i, v in enumerate(values) if v in computed)
        made = self.builder.emit(
            "tile.mma.wait", held, [v.type for v in held], attributes, (), [v.name for v in held]
        )
        for value, result in zip(values, made.results, strict=True):
            self.bind(value, result)

    # --- the walk -----------------------------------------------------------------------------

    def operation(self, operation: Operation) -> None:
        use = self.pipeline.use_of(operation)
        if use is not None:
            self._arrived(operation, use)
        elif operation.results and not self.engine.in_registers(operation):
            pass
        elif operation.name == DOT:
            self._product(operation)
        elif id(operation) in self._added:
            pass
        elif operation.regions:
            self._nested(operation)
        elif operation.name in ENDS:
            self._end(operation)
        else:
            filling = self._refills.get(id(operation))
            if filling is not None:
                before = filling.roundings if filling.reads else [operation]
                beside = self._beside(*before, filling.end)
                self._complete(len(self._state.issued), beside, filling.reads)
            super().operation(operation)
        for reading in self._state.reading.values():
            if reading.last is operation:
                reading.over = True
        self._release_free()

    def _nested(self, operation: Operation) -> None:
        """Regions begin and end with nothing on its way, but for chains."""
        self._complete(len(self._state.issued))
        outer = self._state
        self._state = _State()
        super().operation(operation)
        self._state = outer
        iterations = self._loops.get(id(operation))
        if iterations is not None:
            self._after_chain(iterations)

    def _end(self, end: Operation) -> None:
        iterations = self._chain_ends.get(id(end))
        chained = 0
        issued = self._state.issued
        while (
            iterations is not None
            and chained < len(issued)
            and self._may_stay(issued[-1 - chained])
        ):
            chained += 1
        self._complete(len(issued) - chained, self._beside(end))
        for reading in self._state.reading.values():
            reading.over = True
        if iterations is not None:
            self._end_iteration(iterations)
        self._release_free()
        self._state = _State()
        super().operation(end)

    def _beside(self, *operations: Operation) -> list[Value]:
        """The tiles that operations take, where they are there and no product on its way gives
        them."""
        on_way = {p.result for p in self._state.issued}
        read = [v for o in operations for v in o.operands]
        tiles = dict.fromkeys(v for v in read if isinstance(v.type, TileType))
        return [v for v in tiles if v in self.values and v not in on_way]

    def _may_stay(self, product: _Issued) -> bool:
        """Whether a product may be on its way into the next iteration: its slots are freed late, or
        not by this region."""
        here = self._state.reading
        return product.chained and all(n in self._late or n not in here for n in product.rings)

    # --- rings --------------------------------------------------------------------------------

    def _arrived(self, load: Operation, use: RingUse) -> None:
        b, ring = self.builder, self.pipeline.rings[use.number]
        if load.result is use.first:
            self._leave(use.number)
            self._state.reading[use.number] = _Reading(use, self._last_reader(use))
            if ring.borrowed:  # the tile is there: it was waited for where it was read first
                self._state.reading[use.number].by_lanes = self._read_by_lanes(use.number)
            elif self._beside_computed(use):
                self._state.coming[use.number] = use
            else:
                self._wait_for(use)
        if self.engine.in_registers(load):
            zero = b.index(0)
            t = self.layouts.type_of(load.result)
            at = (self.scalar(use.slot), *(zero for _ in t.shape))
            buffer = ring.buffers[load.result]
            made = b.emit("tile.read_tile", (buffer, *at), (t,), None, (), (load.result.name,))
            self.bind(load.result, made.result)
            self._state.reading[use.number].by_lanes = True
        if load.result in self._read:
            self._state.reading[use.number].by_lanes = True

    def _read_by_lanes(self, borrowed: int) -> bool:
        """Whether lanes have read the tiles of a ring where they were read first."""
        lent = self.pipeline.lent_to(borrowed)
        loads = [x.operation for u in self.pipeline.threaded.uses if u.number in lent
                 for x in u.ring.loads]  # fmt: skip
        return any(self.engine.in_registers(o) or o.result in self._read for o in loads)

    def _wait_for(self, use: RingUse) -> None:
        b, ring = self.builder, self.pipeline.rings[use.number]
        b.emit("tile.mbarrier.wait", (ring.full, self.scalar(use.slot), self.scalar(use.phase)))
        if ring.copied:
            b.emit("tile.fence_async")  # lanes have copied what products read

    def _beside_computed(self, use: RingUse) -> bool:
        """Whether a ring is first read by a product of its region that waits for an operand which
        lanes compute: it may be filled until that is there."""
        names = set(use.results)
        for operation in use.region:
            if not any(v in names for o in operation.walk() for v in o.operands):
                continue
            if operation.results and not self.engine.in_registers(operation):
                names.update(operation.results)
                continue
            dot = self._dots.get(id(operation))
            return dot is not None and WRITTEN in _places(dot)
        return False

    def _leave(self, number: int) -> None:
        """Free the slot of a ring that a place before this one in the same region has filled."""
        before = self._state.reading.get(number)
        if before is not None and not before.released:
            before.over = True
            self._complete(len(self._state.issued))
            self._release_free()

    def _last_reader(self, use: RingUse) -> Operation:
        """The last operation of the ring's region that reads a buffer of it."""
        names = set(use.results)
        last = next(o for o in use.region if o.results and o.results[0] is use.last)
        for operation in use.region:
            inner = [o for o in operation.walk() if any(v in names for v in o.operands)]
            if not inner:
                continue
            if operation.results and not self.engine.in_registers(operation):
                names.add(operation.results[0])
            else:
                last = operation
        return last

    def _release_free(self) -> None:
        """Free the slots that nobody reads any more, those of late rings excepted."""
        for number, reading in self._state.reading.items():
            if number in self._late or not reading.over or reading.released:
                continue
            lent = self.pipeline.lent_to(number)
            if any(n in p.rings for p in self._state.issued for n in (number, *lent)):
                continue
            if any(n in self._state.reading and not self._state.reading[n].over for n in lent):
                continue
            if self.pipeline.rings[number].lent:  # who reads it a second time frees it
                reading.released = True
                continue
            if reading.by_lanes:
                self._meet()
            reading.released = True
            self._release(number, self.scalar(reading.use.slot))

    def _meet(self) -> None:
        """The lanes of a warp group have read: one of them frees the slot for all."""
        attributes = {"id": 0, "lanes": 128, "wait": True, "each": "warp_group"}
        self.builder.emit("tile.named_barrier", (), (), attributes)

    def _release(self, number: int, slot: Value) -> None:
        ring = self.pipeline.rings[number]
        across = "cluster" if ring.shared else "group"
        self.builder.emit("tile.mbarrier.arrive", (ring.empty, slot), (), {"across": across})

    # --- products -----------------------------------------------------------------------------

    def _product(self, operation: Operation) -> None:
        b, dot = self.builder, self._dots[id(operation)]
        a, right, accumulator = operation.operands
        result = self.layouts.type_of(operation.result)
        assert result.layout is not None
        if operation.attributes.get("unit") != "wgmma":
            self._multiply_adds(dot, result)
            return
        rings: list[int] = []
        if dot.b.load is None:  # what is computed first, what is brought has time until then
            buffer, right_at = self._right(dot, right, rings)
            left, left_at = self._left(dot, a, result, rings)
        else:
            left, left_at = self._left(dot, a, result, rings)
            buffer, right_at = self._right(dot, right, rings)
        if is_promoted(operation, self.pipeline.schedule):
            self._promoted(dot, result, (left, buffer), (left_at, right_at))
            return
        flag = self._accumulates(operation, accumulator)
        start = self.demand(accumulator, result.layout)
        self._wait_for_order()
        made = b.emit(
            "tile.mma.async", (start, left, buffer, flag, *left_at, *right_at), (result,),
            _instruction(dot, left), (), (operation.result.name or "acc",),
        )  # fmt: skip
        b.emit("tile.mma.commit")
        self.bind(operation.result, made.result)
        chained = id(operation) in self._chained
        self._state.issued.append(_Issued(operation.result, tuple(rings), chained))

    def _multiply_adds(self, dot: Dot, result: TileType) -> None:
        """A product of lanes, which have read the buffers when it is done."""
        operation, rings = dot.operation, list[int]()
        a, b, accumulator = operation.operands
        left, left_at = self._left(dot, a, result, rings)
        right, right_at = self._right(dot, b, rings)
        assert result.layout is not None
        operands = (left, right, self.demand(accumulator, result.layout), *left_at, *right_at)
        attributes = {"precision": operation.attributes["precision"]}
        name = operation.result.name or "acc"
        made = self.builder.emit("tile.dot", operands, (result,), attributes, (), (name,))
        for number in rings:
            self._state.reading[number].by_lanes = True
        self.bind(operation.result, made.result)

    def init_order(self) -> None:
        """Before all products: the first warp group may issue."""
        if self._ordered:
            self.builder.emit("tile.ordered_barrier", (), (), {"id": _ORDER, "step": "init"})

    def _wait_for_order(self) -> None:
        """The products of a row are issued when the other warp groups have issued theirs: these
        run while this one works on results."""
        if self._ordered and not self._may_issue:
            self.builder.emit("tile.ordered_barrier", (), (), {"id": _ORDER, "step": "wait"})
            self._may_issue = True

    def _arrive_in_order(self) -> None:
        if self._may_issue:
            self.builder.emit("tile.ordered_barrier", (), (), {"id": _ORDER, "step": "arrive"})
            self._may_issue = False

    def _promoted(
        self, dot: Dot, result: TileType, operands: tuple[Value, Value],
        at: tuple[Sequence[Value], Sequence[Value]],
    ) -> None:  # fmt: skip
        """A product whose sum is added outside the unit, columns by columns where registers hold
        no second accumulator. The next columns, and another warp group, multiply while these are
        added."""
        b, operation = self.builder, dot.operation
        (add,) = self.pipeline.schedule.users[operation.result]
        total = next(v for v in add.operands if v is not operation.result)
        held = self.demand(total, result.layout)
        self._complete(len(self._state.issued))
        parts, ahead = operation.integers("parts")
        width = result.sizes[1] // parts
        layout = canonical(wgmma_c((result.sizes[0], width), self.engine.warps // 4))
        part = replace(result, shape=(result.sizes[0], width), layout=layout)
        nothing = b.emit("tile.splat", (b.constant(0.0, result.dtype),), (part,)).result
        before = [held]
        if parts > 1:
            starts = ({"starts": (0, number * width)} for number in range(parts))
            before = [b.emit("tile.slice_tile", (held,), (part,), s).result for s in starts]
        issued: list[Value] = []
        sums: list[Value] = []

        def add_first() -> None:
            self._arrive_in_order()
            part_of = issued.pop(0)
            waiting = {"pending": len(issued)}
            made = b.emit("tile.mma.wait", (part_of,), (part,), waiting, (), ("part",))
            sums.append(b.emit("tile.add", (before[len(sums)], made.result), (part,)).result)

        for number in range(parts):
            places = [*at[0], *_moved(b, at[1], -2 if dot.b.swapped else -1, number * width)]
            operand = (nothing, *operands, b.constant(False, BOOL), *places)
            self._wait_for_order()
            made = b.emit("tile.mma.async", operand, (part,), _instruction(dot, operands[0]), (),
                          ("part",))  # fmt: skip
            b.emit("tile.mma.commit")
            issued.append(made.result)
            if len(issued) > ahead:
                add_first()
        while issued:
            add_first()
        if parts > 1:
            sums = [b.emit("tile.join_tiles", sums, (result,), {"axis": 1}).result]
        self.bind(add.result, sums[0])
        self._added.add(id(add))

    def _left(
        self, dot: Dot, value: Value, result: TileType, rings: list[int]
    ) -> tuple[Value, list[Value]]:
        if dot.a.load is not None:
            buffer, at = self._buffer(dot.a.load.operation, rings)
            if _places(dot)[0] == REGISTERS:
                return self._read_left(dot, buffer, at), []
            return buffer, at
        if _places(dot)[0] == WRITTEN:
            return self._written(dot, dot.a)
        t = value.tile_type
        groups = self.engine.warps // 4
        shape = (result.sizes[0], t.sizes[1])
        return self.demand(value, wgmma_a(shape, groups, t.dtype)), []

    def _read_left(self, dot: Dot, buffer: Value, at: Sequence[Value]) -> Value:
        """A first operand in registers, from a buffer in which it lies in another order."""
        t = dot.a.value.tile_type
        t = replace(t, layout=wgmma_a(t.sizes, self.engine.warps // 4, t.dtype))
        if not dot.a.swapped:
            return self.builder.emit("tile.read_tile", (buffer, *at), (t,)).result
        assert t.layout is not None
        layout = canonical(transposed(t.layout, (1, 0)))
        lying = replace(t, shape=(t.sizes[1], t.sizes[0]), layout=layout)
        read = self.builder.emit("tile.read_tile", (buffer, *at), (lying,)).result
        attributes = {"permutation": (1, 0)}
        return self.builder.emit("tile.transpose_tile", (read,), (t,), attributes).result

    def _right(self, dot: Dot, value: Value, rings: list[int]) -> tuple[Value, list[Value]]:
        if dot.b.load is None:
            return self._written(dot, dot.b)
        return self._buffer(dot.b.load.operation, rings)

    def _written(self, dot: Dot, operand: Operand) -> tuple[Value, list[Value]]:
        """A computed operand, in a buffer of its own: nobody reads what was there any more, and
        everybody's part is there before the product. Where that of the iteration before may still
        be on its way there are two buffers; loops one behind the other share them."""
        b, layout = self.builder, computed_layout(dot, operand, self.pipeline.schedule)
        tile = self.tile(operand.value)
        t = tile.tile_type
        iteration = self._odd_iteration(dot)
        shape = t.sizes if iteration is None else (2, *t.sizes)
        key = (self._buffers[id(dot.operation), operand is dot.b], shape)
        if key not in self._computed:
            name = operand.value.name or "operand"
            self._computed[key] = self.scratch.allocate(
                t.dtype, shape, name, "a computed operand", layout
            )
        at = [b.index(0), b.index(0)]
        if iteration is None:
            self._complete(len(self._state.issued))
        else:
            at.insert(0, iteration)
        b.barrier()
        b.emit("tile.write_tile", (tile, self._computed[key], *at))
        b.emit("tile.fence_async")
        b.barrier()
        return self._computed[key], at

    def _odd_iteration(self, dot: Dot) -> Value | None:
        """0 and 1 in the iterations of a product that may be on its way into the next one, None of
        others. It is the number of steps that a ring of the loop has gone."""
        found = self._chained.get(id(dot.operation))
        if found is None:
            return None
        end = found[0].loop.regions[0].terminator
        use = next(u for u in self.pipeline.threaded.uses if u.end is end)
        b = self.builder
        rounds = b.binary("mul", self.scalar(use.phase), b.index(use.stages))
        steps = b.binary("add", self.scalar(use.slot), rounds)
        return b.binary("and", steps, b.index(1))

    def _buffer(self, load: Operation | None, rings: list[int]) -> tuple[Value, list[Value]]:
        """The buffer of a load, and where its matrix begins."""
        use = self.pipeline.use_of(load) if load is not None else None
        assert use is not None
        assert load is not None
        if use.number not in rings:
            rings.append(use.number)
        if self._state.coming.pop(use.number, None) is not None:
            self._wait_for(use)
        zero = self.builder.index(0)
        buffer = self.pipeline.rings[use.number].buffers[load.result]
        return buffer, [self.scalar(use.slot), zero, zero]

    def _accumulates(self, operation: Operation, accumulator: Value) -> Value:
        """Whether a product adds to what its accumulator holds."""
        b = self.builder
        chained = self._chained.get(id(operation))
        if chained is not None and chained[1]:
            return b.cmp("ne", self.scalar(chained[0].iteration), b.index(0))
        return b.constant(not is_zero(accumulator, self.pipeline.schedule), BOOL)

    def _end_iteration(self, iterations: Iterations) -> None:
        """Products of the iteration before are done: their slots are free."""
        chained = [p.result for p in self._state.issued]
        if chained:
            self._wait(chained, len(chained))
        self._free_late(iterations, self.scalar(iterations.iteration), {
            n: self.scalar(self._use(n).slot) for n in iterations.chain.late
        })  # fmt: skip
        self._state.issued = []

    def _after_chain(self, iterations: Iterations) -> None:
        """Behind the loop everything is done, and the slots of its last iteration are free."""
        places = [d.operands[2] for d in iterations.chain.dots]
        arguments = iterations.loop.regions[0].arguments
        axes = len(arguments) - len(iterations.loop.results)
        results = [iterations.loop.results[arguments.index(v) - axes] for v in places]
        self._wait(results, 0)
        slots = {n: self.scalar(iterations.slots[n]) for n in iterations.chain.late}
        self._free_late(iterations, self.scalar(iterations.after), slots)

    def _free_late(
        self, iterations: Iterations, iteration: Value, slots: Mapping[int, Value]
    ) -> None:
        """Free the slot before each of these, unless there was none."""
        b = self.builder
        if not slots:
            return
        with b.region() as then:
            for number, slot in slots.items():
                self._release(number, self._before(slot, self._use(number).stages))
            b.yield_()
        with b.region() as otherwise:
            b.yield_()
        b.if_(b.cmp("ne", iteration, b.index(0)), then.region, otherwise.region)

    def _before(self, slot: Value, stages: int) -> Value:
        b = self.builder
        first = b.cmp("eq", slot, b.index(0))
        return b.select(first, b.index(stages - 1), b.binary("sub", slot, b.index(1)))

    def end_tile(self) -> None:
        """At the end of a tile everything is done, and all slots of it are free."""
        self._complete(len(self._state.issued))
        for reading in self._state.reading.values():
            reading.over = True
        self._release_free()
        self._state = _State()

    def _use(self, number: int) -> RingUse:
        return next(u for u in self.pipeline.threaded.uses if u.number == number)


def _places(dot: Dot) -> tuple[str, str]:
    """Where each operand is read; of products by lanes from the buffers."""
    return said_places(dot) if dot.operation.attributes.get("unit") == "wgmma" else (SHARED, SHARED)


def _instruction(dot: Dot, left: Value) -> dict[str, Attribute]:
    """The attributes of a product: which of its operands lie the other way round."""
    turned = isinstance(left.type, BufferType) and dot.a.load is not None and dot.a.swapped
    precision = dot.operation.attributes["precision"]
    return {"transpose_a": turned, "transpose_b": dot.b.swapped, "precision": precision}


def _moved(b: Builder, at: Sequence[Value], axis: int, by: int) -> list[Value]:
    """Starts in a buffer, ``by`` further along an axis."""
    out = list(at)
    if by:
        out[axis] = b.index(by)  # matrices begin at their first line
    return out
