"""Tiles made of no memory (places, numbers, and what is computed of them element by element).

Where somebody needs such a tile in another layout, lanes make it there: they know the places of
their elements. An exchange through shared memory would have all warps meet. Owns what counts as
such a tile, and the making. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.analysis.resources.register_layouts import canonical
from tessera_lang.ir.core import Attribute, TileType, Value
from tessera_lang.ir.definitions import ELEMENT_WISE, is_pure
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile.common.assign_layouts import Layouts
from tessera_lang.opt.schedule.query.scalar_facts import Facts, is_tile
from tessera_lang.record import dataclass

_EXPAND = "tessera.schedule.expand"
_BROADCAST = "tessera.schedule.broadcast"
_NAMES = {
    "tessera.schedule.full": "tile.splat", "tessera.schedule.iota": "tile.coordinate",
    _EXPAND: "tile.expand_tile",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generating:
    """What tiles are made with: ``values`` has what numbers have become."""

    builder: Builder
    facts: Facts
    layouts: Layouts
    values: dict[Value, Value]

    def made(self, value: Value, layout: RegisterLayout) -> Value | None:
        """The tile in that layout; None where it is made of memory or of what a loop carries."""
        if not self._is_generated(value):
            return None
        return self._make(value, self.layouts.shape(value), layout)

    def _is_generated(self, value: Value) -> bool:
        if not is_tile(value):
            return value in self.values
        operation = self.facts.operation(value)
        if operation is None:
            return False
        name = operation.name
        computes = name in ELEMENT_WISE and is_pure(operation)
        if not (name in _NAMES or name == _BROADCAST or computes):
            return False
        return all(self._is_generated(v) for v in operation.operands)

    def _make(self, value: Value, sizes: tuple[int, ...], layout: RegisterLayout) -> Value:
        """A tile whose axes of one element are stretched to ``sizes``."""
        if not is_tile(value):
            return self.values[value]
        operation, dtype = self.facts.operation(value), value.tile_type.dtype
        assert operation is not None
        if operation.name == _BROADCAST:
            return self._make(operation.operands[0], sizes, layout)
        name = _NAMES.get(operation.name, operation.name)
        attributes: Mapping[str, Attribute] | None = operation.attributes
        given, inner = sizes, layout
        if operation.name == _EXPAND:
            axis = operation.integer("axis")
            given, inner = sizes[:axis] + sizes[axis + 1 :], canonical(layout.without_axis(axis))
        operands = [self._make(v, given, inner) for v in operation.operands]
        if name == "tile.coordinate" and value.tile_type.sizes[operation.integer("axis")] == 1:
            name, attributes, operands = "tile.splat", None, [self.builder.constant(0, dtype)]
        t = TileType(dtype, sizes, layout)
        return self.builder.emit(name, operands, (t,), attributes, (), (value.name,)).result
