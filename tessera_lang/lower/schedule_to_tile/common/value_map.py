"""The Tile value of each Schedule value, converted on demand to the layout that a use needs.

``bind(value, made)`` says what a Schedule value became; ``tile``, ``demand`` and ``scalar`` give
it back. Owns conversions between layouts, accesses of memory from registers and the order of
accesses to arrays. Must not know single operations, control flow or machines.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tessera_lang.analysis.resources.register_layouts import convert_scratch
from tessera_lang.ir.core import Attribute, IRType, Operation, Value
from tessera_lang.ir.definitions import (
    COPIES,
)
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.common.generated_tiles import Generating
from tessera_lang.lower.schedule_to_tile.common.global_hazard_barriers import Order
from tessera_lang.lower.schedule_to_tile.common.shared_scratch import Scratch
from tessera_lang.opt.schedule.query.scalar_facts import (
    Facts,
    is_tile,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import replace


class Lowered:
    """The values of a body."""

    def __init__(self, builder: Builder, facts: Facts, layouts: Layouts, scratch: Scratch) -> None:
        self.builder = builder
        self.facts = facts
        self.layouts = layouts
        self.scratch = scratch
        self.order = Order(facts)
        self.values: dict[Value, Value] = {}

    # --- values -----------------------------------------------------------------------------

    def bind(self, value: Value, made: Value) -> None:
        """``made`` is what the Schedule value became."""
        self.values[value] = made

    def scalar(self, value: Value) -> Value:
        """What a value that is no tile became."""
        return self.values[value]

    def scalars(self, values: Sequence[Value]) -> list[Value]:
        return [self.values[v] for v in values]

    def tile(self, value: Value) -> Value:
        """The register tile of a value, in the layout chosen for it."""
        made = self.values.get(value)
        if made is None:
            raise NotTiled("a tile that was only staged is used as a value")
        return self.convert(made, self.layouts.of(value))

    def demand(self, value: Value, layout: RegisterLayout) -> Value:
        """The register tile of a value in a layout that its user needs."""
        made = self.values.get(value)
        if made is None:
            raise NotTiled("a tile that was only staged is used as a value")
        if convert_scratch(made.tile_type, layout):
            made = self.generated(value, layout) or made
        return self.convert(made, layout)

    def generated(self, value: Value, layout: RegisterLayout) -> Value | None:
        """The tile in a layout, where lanes can make it of places and numbers alone."""
        return Generating(self.builder, self.facts, self.layouts, self.values).made(value, layout)

    def convert(self, tile: Value, layout: RegisterLayout) -> Value:
        """``tile`` in another layout; itself where it has that one."""
        t = tile.tile_type
        assert t.layout is not None
        if t.layout == layout:
            return tile
        operands = [tile, *self.scratch.buffer(convert_scratch(t, layout))]
        return self.builder.emit("tile.convert", operands, (replace(t, layout=layout),)).result

    def repeats(self, operation: Operation) -> bool:
        """Whether one group may run an operation more than once."""
        return True

    def type_of(self, value: Value) -> IRType:
        """The type a Schedule value takes in Tile IR."""
        return self.layouts.type_of(value) if is_tile(value) else value.type

    # --- memory ---------------------------------------------------------------------------------

    def read(self, view: Value, operation: Operation) -> None:
        """Note a read of an array before it is emitted; a barrier where one is needed."""
        if self.order.reads(view, self._place(operation)):
            self.builder.barrier()  # between a write of the array and this read

    def read_staged(self, load: Operation) -> None:
        """Note that a load is copied into shared memory here."""
        if self.order.reads(access_of(load).view, load):
            self.builder.barrier()  # between a write of the array and this copy

    def write(self, view: Value, operation: Operation) -> None:
        if operation.attributes.get("apart"):
            return  # it meets no other access
        if self.order.writes(view, self._place(operation)):
            self.builder.barrier()  # between an access to the array and this write

    def _place(self, operation: Operation) -> Hashable:
        """Equal for two accesses in which each lane touches the same elements, and no other
        lane does: of copies one is written, and it does not wait for the others to be read."""
        if operation.name not in COPIES:
            return operation
        access = access_of(operation)
        layout = self.layouts.memory_layout(operation)
        if any(m.axis is None for m in (*layout.lanes, *layout.warps)):
            return operation
        return (access.starts, access.dims, access.steps, str(layout))

    def through(self, buffer: Value, tile: Value) -> None:
        """Write a tile to the start of a buffer that others use too, for all lanes to read."""
        t = buffer.buffer_type
        zeros = [self.builder.index(0) for _ in t.shape]
        self.builder.barrier()  # between the last reads of the buffer and these writes
        self.builder.emit("tile.write_tile", (tile, buffer, *zeros))
        self.builder.barrier()  # between these writes and the reads behind

    def load_tile(self, operation: Operation, layout: RegisterLayout | None = None) -> Value:
        """A load to registers, in the layout that suits memory or in the given one."""
        access = access_of(operation)
        vector = self.facts.vector_bytes(access)
        t = self.layouts.type_of(operation.result)
        assert t.layout is not None
        wanted = layout or self.layouts.memory_layout(operation)
        attributes: dict[str, Attribute] = {
            "dims": access.dims, "steps": access.steps, "vector": vector,
            "whole": self.facts.is_whole(access, vector),
        }  # fmt: skip
        if layout is None:
            self.read(access.view, operation)
        if "ahead" in operation.attributes:
            attributes["ahead"] = operation.attributes["ahead"]
        operands = self.scalars((access.view, *access.starts, *access.extents))
        made = self.builder.emit(
            "tile.load_tile", operands, (replace(t, layout=wanted),), attributes,
            names=(operation.result.name,),
        )  # fmt: skip
        return made.result if layout is not None else self.convert(made.result, t.layout)

    def store_tile(self, operation: Operation) -> None:
        """A store from registers, in the layout that suits memory."""
        access = access_of(operation)
        vector = self.facts.vector_bytes(access)
        tile = self.demand(operation.operands[0], self.layouts.memory_layout(operation))
        attributes = {
            "dims": access.dims, "steps": access.steps, "vector": vector,
            "whole": self.facts.is_whole(access, vector),
        }  # fmt: skip
        self.write(access.view, operation)
        operands = self.scalars((access.view, *access.starts, *access.extents))
        self.builder.emit("tile.store_tile", (tile, *operands), (), attributes)
