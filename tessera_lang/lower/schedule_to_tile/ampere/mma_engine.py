"""The engine of machines with ``mma.sync``: products from fragments, staged by plain and
asynchronous copies. Exact f32 and f64 products are multiply-adds from shared buffers.

Owns the fragments, and when a staged tile is waited for. Must not
know grids.
"""

from __future__ import annotations

from tessera_lang.analysis.resources.register_layouts import (
    canonical,
    conversion,
    mma_a,
    mma_b,
    mma_c,
    mma_depth,
)
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.lower.schedule_to_tile.ampere.multistage import Multistage, ahead_of, encloses
from tessera_lang.lower.schedule_to_tile.ampere.staging import (
    Staged,
    Staging,
    shared_layout,
    starts,
)
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.dot_layouts import Product
from tessera_lang.lower.schedule_to_tile.common.engine import Engine
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.fma_products import (
    by_multiply_adds,
    warp_grid,
    with_copies,
)
from tessera_lang.lower.schedule_to_tile.common.operations import masked
from tessera_lang.opt.schedule.query.operand_loads import operand_of
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tessera_lang.opt.schedule.query.swizzle_widths import widest_swizzle
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine
from tessera_lang.types.dtype import F16, DType


class MatrixEngine(Engine):
    """``persistent``: the body is run again and again by one group."""

    def __init__(
        self, machine: Machine, warps: int, kernel: Operation, facts: Facts,
        persistent: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(machine, warps)
        self.facts = facts
        self.persistent = persistent
        self.staging = Staging(facts)
        self.staging.plan(kernel)
        self._open: list[Staged] = []

    # --- layouts ----------------------------------------------------------------------------

    def product(self, dot: Operation) -> Product | None:
        accumulator = tile_of(dot.operands[2])
        if len(accumulator.shape) != 2:
            return None
        dtype = self._dtype(dot)
        if dtype is None:
            return by_multiply_adds(dot, self.warps, self._reads_contractions(dot))
        rows, columns = warp_grid(dot)
        copies = self.warps // (rows * columns)
        return Product(
            "mma", (16 * rows, 8 * columns, mma_depth(dtype)),
            lambda shape: with_copies(mma_c(shape, rows, columns), copies),
            lambda shape: with_copies(mma_a(shape, rows, columns, dtype), copies),
            lambda shape: with_copies(mma_b(shape, rows, columns, dtype), copies),
            mma_depth(dtype),
        )  # fmt: skip

    def _reads_contractions(self, dot: Operation) -> bool:
        """Whether the second factor of a product lies in shared memory along its contraction."""
        staged = self.staged(dot, 1)
        return staged is not None and self.facts.tile_unit_axis(staged.access) == 0

    def fragments(self, value: Value) -> bool:
        return operand_of(self.facts, value).load is not None and self.staging.in_place(value)

    def _dtype(self, dot: Operation) -> DType | None:
        """What fragments hold; None where no matrix unit does the product."""
        unit, dtype = dot.attributes.get("unit"), tile_of(dot.operands[0]).dtype
        if unit == "fma":
            return None
        if unit != "mma":
            raise NotTiled(f"warps that all do the same have no products by {unit}", dot.span)
        widened = dtype.is_float8 and not self.machine.has("f8_mma")
        return F16 if widened else dtype  # which holds each of their values

    def in_registers(self, load: Operation) -> bool:
        return self.staging.in_registers(load)

    # --- operations ---------------------------------------------------------------------------

    def load(self, body: Body, operation: Operation) -> None:
        staged = self.staging.of(operation)
        if not staged:
            super().load(body, operation)
            return
        for one in staged:
            if one.slot is None:
                self._stage_here(body, one)
        if self.staging.in_registers(operation):
            body.bind(operation.result, self._to_registers(body, operation, staged[0]))

    def _to_registers(self, body: Body, operation: Operation, staged: Staged) -> Value:
        self.settle(body)
        layout = body.layouts.of(operation.result)
        read = self.staging.read_swapped if staged.swapped else self.staging.read
        return read(body, staged, layout)

    def _stage_here(self, body: Body, staged: Staged) -> None:
        """Copy where the load stands; it is waited for where the tile is first used."""
        if staged.stages > 1:
            raise NotTiled("a tile that is copied where it stands has a ring", staged.load.span)
        body.read_staged(staged.load)
        if self.repeats(staged.load) and not self._open:
            body.builder.barrier()  # between reads of the tile before and its being overwritten
        if staged.asynchronous:
            self.staging.copy(body, staged, None)
            body.builder.emit("tile.memcpy.commit")
        else:
            self.staging.put(body, staged, self.staging.fetch(body, staged), None)
        self._open.append(staged)

    def repeats(self, operation: Operation) -> bool:
        """Whether one group runs an operation more than once."""
        return self.persistent or encloses(self.facts, operation)

    def settle(self, body: Body) -> None:
        """Wait for what was staged where its load stood."""
        if not self._open:
            return
        if any(s.asynchronous for s in self._open):
            body.builder.emit("tile.memcpy.wait", (), (), {"pending": 0})
        body.builder.barrier()  # between copies into shared memory and their reads
        self._open.clear()

    def before_control(self, body: Body, operation: Operation) -> None:
        self.settle(body)

    def loop(self, body: Body, operation: Operation) -> None:
        ahead = ahead_of(self.staging, operation)
        if ahead is None:
            self.settle(body)
            body.plain_loop(operation)
            return
        if not ahead.copies:
            self.settle(body)
        waiting = list(self._open)
        self._open.clear()  # the first wait and barrier of the loop are theirs too
        made = Multistage(body, self.staging, operation, ahead)
        body.plain_loop(operation, made.innermost)
        self._open = waiting  # where the loop ran no iteration

    # --- products -------------------------------------------------------------------------------

    def dot(self, body: Body, operation: Operation) -> None:
        product = body.layouts.product(operation)
        accumulator = body.demand(operation.operands[2], body.layouts.of(operation.result))
        wanted = canonical(product.accumulator(body.layouts.shape(operation.result)))
        accumulator = body.convert(accumulator, wanted)
        if product.unit == "fma":
            made = self._from_buffers(body, operation, accumulator)
        else:
            made = self._from_fragments(body, operation, product, accumulator)
        body.bind(operation.result, body.convert(made, body.layouts.of(operation.result)))

    def _from_fragments(
        self, body: Body, dot: Operation, product: Product, accumulator: Value
    ) -> Value:
        left, right = (_Side(self, body, dot, product, i) for i in range(2))
        k = left.shape[1]
        attributes = {"precision": dot.attributes["precision"]}
        for start in range(0, k, product.step):
            parts = (left.part(start), right.part(start), accumulator)
            accumulator = body.builder.emit(
                "tile.dot", parts, (accumulator.type,), attributes
            ).result
        return accumulator

    def _from_buffers(self, body: Body, dot: Operation, accumulator: Value) -> Value:
        operands: list[Value] = []
        places: list[Value] = []
        for i in range(2):
            buffer, place = self._buffered(body, dot, i)
            operands.append(buffer)
            places += place
        attributes = {"precision": dot.attributes["precision"]}
        operands.append(accumulator)
        return body.builder.emit(
            "tile.dot", (*operands, *places), (accumulator.type,), attributes
        ).result

    def _buffered(self, body: Body, dot: Operation, side: int) -> tuple[Value, list[Value]]:
        """The buffer that holds an operand, and where it begins there."""
        staged = self.staged(dot, side)
        if staged is not None:
            self.settle(body)
            return self.staging.allocate(body, staged), starts(body, staged, staged.slot)
        buffer = self.written(body, computed(body, dot, side), side)
        t = tile_of(dot.operands[side])
        return buffer, [body.builder.index(0) for _ in t.shape]

    def staged(self, dot: Operation, side: int) -> Staged | None:
        """The staged load an operand is, if it is one."""
        operand = operand_of(self.facts, dot.operands[side])
        if operand.load is None:
            return None
        return self.staging.found.get((operand.load, operand.swapped))

    def swapped(self, dot: Operation, side: int) -> bool:
        """Whether the buffer of a staged operand has its axes in the other order."""
        staged, operand = self.staged(dot, side), operand_of(self.facts, dot.operands[side])
        return staged is not None and staged.swapped != operand.swapped

    def written(self, body: Body, tile: Value, side: int) -> Value:
        """A buffer that holds a computed operand, for all warps to read."""
        t = tile_of(tile)
        swizzle = widest_swizzle(t.sizes[1] * t.dtype.bytes)
        layout = shared_layout(t.sizes, t.dtype.bytes, 1, swizzle)
        name = ("left", "right")[side]
        what = f"computed {name} operands of products"
        buffer = body.scratch.shared(t.dtype, t.sizes, name, what, layout)
        body.through(buffer, tile)
        return buffer


class _Side:
    """One operand of a product, handed out in pieces along the contraction."""

    def __init__(
        self, engine: MatrixEngine, body: Body, dot: Operation, product: Product, side: int
    ) -> None:
        self.engine, self.body = engine, body
        self.step, self.axis = product.step, 1 - side
        make = product.right if side else product.left
        assert make is not None
        self.make = make
        self.shape = body.layouts.shape(dot.operands[side])
        self.layout = canonical(make(self.shape))
        self.dtype = engine._dtype(dot)  # pyright: ignore[reportPrivateUsage]
        self.staged = engine.staged(dot, side)
        self.swapped = engine.swapped(dot, side)
        self.tile: Value | None = None
        self.buffer: Value | None = None
        if self.staged is not None:
            engine.settle(body)
        else:
            self._compute(dot, side)

    def _compute(self, dot: Operation, side: int) -> None:
        tile = computed(self.body, dot, side)
        t = tile_of(tile)
        assert t.layout is not None
        if conversion(t.layout, self.layout, 2) == "shared":
            self.buffer = self.engine.written(self.body, tile, side)
        else:
            self.tile = self._fitting(self.body.convert(tile, self.layout))

    def part(self, start: int) -> Value:
        """The piece of the contraction that begins at ``start``."""
        shape = tuple(self.step if i == self.axis else n for i, n in enumerate(self.shape))
        layout = canonical(self.make(shape))
        at = tuple(start if i == self.axis else 0 for i in range(2))
        if self.staged is not None:
            staging = self.engine.staging
            read = staging.read_swapped if self.swapped else staging.read
            return self._fitting(read(self.body, self.staged, layout, at, shape))
        builder = self.body.builder
        if self.buffer is not None:
            t = TileType(tile_of(self.buffer).dtype, shape, layout)
            place = [builder.index(n) for n in at]
            return self._fitting(builder.emit("tile.read_tile", (self.buffer, *place), (t,)).result)
        assert self.tile is not None
        if shape == self.shape:
            return self.tile
        t = replace(tile_of(self.tile), shape=shape, layout=layout)
        return builder.emit("tile.slice_tile", (self.tile,), (t,), {"starts": at}).result

    def _fitting(self, tile: Value) -> Value:
        """In the dtype of the fragments."""
        t = tile_of(tile)
        mixed = t.dtype.bits == 8 and self.dtype is not None and self.dtype.bits == 8
        if self.dtype is None or t.dtype == self.dtype or mixed:
            return tile  # an instruction takes 8-bit floats of two kinds
        to = replace(t, dtype=self.dtype)
        return self.body.builder.emit("tile.cast", (tile,), (to,)).result


def computed(body: Body, dot: Operation, side: int) -> Value:
    """The register tile of an operand, with zeros where the contraction is padded."""
    value = dot.operands[side]
    tile = body.tile(value)
    capacity, axis = value.tile_type.sizes, 1 - side
    if tile_of(tile).sizes[axis] == capacity[axis]:
        return tile
    dtype = tile_of(tile).dtype
    zero = body.builder.constant(0, dtype)
    return masked(body, tile, zero, [(axis, capacity[axis])])


def tile_of(value: Value) -> TileType:
    """The type of a tile, or of what a buffer holds."""
    t = value.type
    if isinstance(t, TileType):
        return t
    return TileType(t.dtype, t.shape)  # type: ignore[union-attr]
