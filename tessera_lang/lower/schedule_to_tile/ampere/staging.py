"""Tiles in shared memory: which loads go there, in what layout, and what copies them.

A staged tile lies as its users see it (transposed loads too), contiguous along the axis the
array is contiguous along, swizzled so that neither copies nor matrix loads wait for banks.
Owns the buffers, and single copies. Must not know loops, or decide what is staged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.analysis.resources.register_layouts import blocked, canonical, transposed
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.layout import RegisterLayout, SharedLayout
from tessera_lang.lower.schedule_to_tile.common.body import Body
from tessera_lang.lower.schedule_to_tile.common.errors import NotHonoured, NotTiled
from tessera_lang.opt.schedule.query.operand_loads import (
    LOAD,
    needed_in_registers,
    operand_of,
    products_of,
)
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.record import (
    dataclass,
    field,
    replace,
)
from tessera_lang.target.arch.isa_constants import COPY_BYTES, VECTOR_BYTES


@dataclass(slots=True, eq=False)
class Staged:
    """One load in shared memory. ``slot`` is the stage that is read now."""

    load: Operation
    swapped: bool
    asynchronous: bool
    vector: int
    stages: int = 1
    buffer: Value | None = None
    slot: Value | None = None
    shape: tuple[int, ...] = ()

    @property
    def access(self) -> TileAccess:
        """Where it lies in the array, by the axes of the buffer."""
        access = access_of(self.load)
        if not self.swapped:
            return access
        tile = replace(access.tile, shape=access.tile.shape[::-1])
        transposed = (access.extents[::-1], access.dims[::-1], access.steps[::-1])
        return TileAccess(tile, access.view, access.starts, *transposed)


@dataclass(slots=True, eq=False)
class Staging:
    """The staged loads of a kernel, by load and orientation."""

    facts: Facts
    found: dict[tuple[Operation, bool], Staged] = field(
        default_factory=dict[tuple[Operation, bool], Staged]
    )
    registers: set[Value] = field(default_factory=set[Value])
    between: set[Value] = field(default_factory=set[Value])

    def plan(self, kernel: Operation) -> None:
        """Find what the schedule stages; buffers are made when sizes are known."""
        staged: set[Value] = set()
        for dot in products_of(kernel):
            for value in dot.operands[:2]:
                operand = operand_of(self.facts, value)
                if operand.load is None or operand.load.attributes.get("stage") != "shared":
                    continue
                staged.add(value)
                self._stage(operand.load, operand.swapped, dot.attributes.get("unit") == "mma")
                self.between.update(o.result for o in (*operand.path, operand.load))
        self.registers = needed_in_registers(self.facts, kernel, staged)
        for operation in kernel.walk():
            if operation.name == LOAD and operation.attributes.get("stage") == "shared":
                if not any(load is operation for load, _ in self.found):
                    self._stage(operation, False)
                    self.registers.add(operation.result)
                    self.between.add(operation.result)

    def of(self, load: Operation) -> list[Staged]:
        return list(dict.fromkeys(s for (held, _), s in self.found.items() if held is load))

    def in_registers(self, operation: Operation) -> bool:
        """Whether an operation between a staged load and products has a register tile."""
        value = operation.results[0]
        return value not in self.between or value in self.registers

    def in_place(self, value: Value) -> bool:
        """Whether an operand that is a load goes to registers at once."""
        return value not in self.between

    def _stage(self, load: Operation, swapped: bool, either: bool = False) -> None:
        """``either``: whoever reads it can do so from a buffer with its axes in either order."""
        if (load, swapped) in self.found:
            return
        if either and (load, not swapped) in self.found:
            self.found[load, swapped] = self.found[load, not swapped]
            return
        vector = self.facts.vector_bytes(access_of(load))
        asynchronous = load.attributes.get("copy") == "async"
        if asynchronous and vector < COPY_BYTES:
            reason = f"only {vector} bytes in a row are aligned, and a copy moves 4 at least"
            raise NotHonoured("async_copy", reason, load.span)
        stages = load.attributes.get("stages")
        self.found[load, swapped] = Staged(
            load, swapped, asynchronous, vector, stages if isinstance(stages, int) else 1
        )

    # --- buffers ------------------------------------------------------------------------------

    def allocate(self, body: Body, staged: Staged) -> Value:
        """The buffer of a staged load, made once."""
        if staged.buffer is not None:
            return staged.buffer
        value = staged.load.result
        t = value.tile_type
        shape = body.layouts.shape(value)
        staged.shape = shape[::-1] if staged.swapped else shape
        staged.stages = max(1, staged.stages)
        layout = self._layout(staged, t.dtype.bytes)
        whole = (staged.stages, *staged.shape) if staged.stages > 1 else staged.shape
        name = self._name(staged)
        sizes = " x ".join(map(str, staged.shape))
        what = f"{sizes} {t.dtype} of `{name}`, {staged.stages} stages"
        staged.buffer = body.scratch.allocate(t.dtype, whole, f"{name}_tile", what, layout)
        return staged.buffer

    def _name(self, staged: Staged) -> str:
        view = access_of(staged.load).view
        return view.name or staged.load.result.name or "tile"

    def _layout(self, staged: Staged, element: int) -> SharedLayout | None:
        if len(staged.shape) != 2:
            return None
        axis = self.facts.tile_unit_axis(staged.access)
        major = 1 if axis is None else axis
        padding = self.facts.kernel.attributes.get("padding")
        swizzle = staged.load.integer("swizzle", 0)
        if swizzle and staged.shape[major] * element % swizzle:
            raise NotTiled(f"its lines are no multiple of {swizzle} bytes", staged.load.span)
        return shared_layout(
            staged.shape, element, major, swizzle,
            padding if isinstance(padding, int) else 0,
        )  # fmt: skip

    # --- copies -----------------------------------------------------------------------------------

    def copy(
        self, body: Body, staged: Staged, slot: Value | None, valid: Value | None = None
    ) -> None:
        """Start an asynchronous copy into a stage; where ``valid`` is false of nothing, so that
        zeros are written."""
        access = staged.access
        buffer = self.allocate(body, staged)
        operands = [body.scalar(access.view), buffer, *body.scalars(access.starts)]
        operands += extents(body, access, valid)
        operands += starts(body, staged, slot)
        attributes = {"dims": access.dims, "steps": access.steps, "vector": staged.vector}
        body.builder.emit("tile.memcpy.async", operands, (), attributes)

    def fetch(self, body: Body, staged: Staged, valid: Value | None = None) -> Value:
        """The tile of a load in registers, on its way to its buffer."""
        access = staged.access
        self.allocate(body, staged)
        t = staged.load.result.tile_type
        layout = self.way(body, staged)
        operands = [body.scalar(access.view), *body.scalars(access.starts)]
        operands += extents(body, access, valid)
        whole = self.facts.is_whole(access, staged.vector)
        attributes = {
            "dims": access.dims, "steps": access.steps, "vector": staged.vector, "whole": whole,
        }  # fmt: skip
        to = TileType(t.dtype, staged.shape, layout)
        return body.builder.emit("tile.load_tile", operands, (to,), attributes).result

    def put(self, body: Body, staged: Staged, tile: Value, slot: Value | None) -> None:
        """A fetched tile into a stage."""
        buffer = self.allocate(body, staged)
        body.builder.emit("tile.write_tile", (tile, buffer, *starts(body, staged, slot)))

    def way(self, body: Body, staged: Staged) -> RegisterLayout:
        """The layout in which a tile goes through registers."""
        axis = self.facts.tile_unit_axis(staged.access)
        rank = len(staged.shape)
        order = tuple(a for a in (axis, *reversed(range(rank))) if a is not None)
        order = tuple(dict.fromkeys(order))
        t = staged.load.result.tile_type
        vector = max(1, staged.vector // t.dtype.bytes) if axis is not None else 1
        while vector > 1 and prod(staged.shape) < vector * 32 * body.engine.warps:
            vector //= 2
        return blocked(staged.shape, vector, body.engine.warps, order)

    def read(
        self, body: Body, staged: Staged, layout: RegisterLayout, at: Sequence[int] = (),
        shape: Sequence[int] = (),
    ) -> Value:  # fmt: skip
        """A part of what lies in the stage that is read now, the whole without ``shape``."""
        t = staged.load.result.tile_type
        to = TileType(t.dtype, tuple(shape) or staged.shape, layout)
        buffer = self.allocate(body, staged)
        place = starts(body, staged, staged.slot, at)
        return body.builder.emit("tile.read_tile", (buffer, *place), (to,)).result

    def read_swapped(
        self, body: Body, staged: Staged, layout: RegisterLayout, at: Sequence[int] = (),
        shape: Sequence[int] = (),
    ) -> Value:  # fmt: skip
        """``read`` by axes in the other order than the buffer's. Registers stay where they are."""
        turned = self.read(
            body, staged, canonical(transposed(layout, (1, 0))), at[::-1], shape[::-1]
        )
        t = turned.tile_type
        to = TileType(t.dtype, t.shape[::-1], layout)
        attributes = {"permutation": (1, 0)}
        return body.builder.emit("tile.transpose_tile", (turned,), (to,), attributes).result


def starts(body: Body, staged: Staged, slot: Value | None, at: Sequence[int] = ()) -> list[Value]:
    """Where a part of a stage begins in its buffer."""
    builder = body.builder
    inner = [builder.index(n) for n in (at or (0,) * len(staged.shape))]
    if staged.stages <= 1:
        return inner
    return [slot if slot is not None else builder.index(0), *inner]


def extents(body: Body, access: TileAccess, valid: Value | None) -> list[Value]:
    """The extents of an access; 0 along its first axis where it is not to be made."""
    found = body.scalars(access.extents)
    if valid is not None and found:
        found[0] = body.builder.select(valid, found[0], body.builder.index(0))
    return found


def shared_layout(
    shape: Sequence[int], element: int, major: int, swizzle: int, padding: int = 0
) -> SharedLayout:
    """How a matrix lies that is copied in lines and read in fragments.

    With a ``swizzle`` of so many bytes, which lines are multiples of; else lines are apart, by
    ``padding`` elements where pieces of 16 bytes stay aligned.
    """
    line = shape[major] * element
    if swizzle:
        return SharedLayout(major, swizzle // element, swizzle // element, swizzle)
    if padding and padding * element % VECTOR_BYTES == 0 and line % VECTOR_BYTES == 0:
        return SharedLayout(major, 0, shape[major] + padding, 0)
    pitch = -(-line // VECTOR_BYTES) * VECTOR_BYTES
    # An odd number of pieces meets all banks.
    pitch += VECTOR_BYTES * (pitch // VECTOR_BYTES % 2 == 0)
    return SharedLayout(major, 0, pitch // element, 0)
