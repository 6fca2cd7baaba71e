"""Tensor maps: which boxes move a tile between an array and a shared buffer.

Owns the further arguments of a kernel that are maps, and the boxes of a tile: where each one
lies in the buffer and in the array. A box is one panel of the buffer's layout, or part of its
lines. Must not know who issues the copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import TensorMapType, TileType, Value
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.opt.schedule.query.copy_rules import (
    contiguous_axis,
    shared_layout,
)
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tessera_lang.opt.schedule.query.tile_access import TileAccess
from tessera_lang.record import dataclass, field
from tessera_lang.target.arch.isa_constants import MAP_BOX, SWIZZLE_LINES
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.shape import Sym


@dataclass(frozen=True, slots=True)
class Box:
    """One box of a tile. ``panel`` and ``line`` are where it begins in the buffer's matrix
    (along and across its contiguous axis), and as far from the tile's start in the array."""

    panel: int
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """How a tile is moved: the map, its boxes, and by how much the part of one group of a
    cluster lies behind that of the group before (0, 0: nothing is shared)."""

    map: Value
    layout: SharedLayout
    boxes: tuple[Box, ...]
    dims: tuple[int, int]
    axes: tuple[int, ...]
    share: tuple[int, int] = (0, 0)


@dataclass(slots=True, eq=False)
class Maps:
    """The maps of a kernel, one for each array and box."""

    facts: Facts
    plan: LaunchPlan
    _slots: dict[Slot, Value] = field(default_factory=dict[Slot, Value])

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    @property
    def arguments(self) -> tuple[Value, ...]:
        return tuple(self._slots.values())

    def boxes(self, access: TileAccess, tile: TileType, share: int = 1) -> Boxes:
        """The boxes of a tile that lies in the array as ``access`` says; ``tile`` may be a part
        of it. With ``share`` groups each brings one part of it for all."""
        axis = contiguous_axis(access, self.facts)
        layout = shared_layout(tile, axis)
        rank = len(tile.shape)
        if layout is None or rank < 2:
            raise NotTiled("a staged tile has no boxes")
        across = rank - 1 if axis == rank - 2 else rank - 2
        along, lines = tile.sizes[axis], tile.sizes[across]
        panels = along // layout.panel
        moved = (0, 0)
        if share > 1 and panels % share == 0:
            panels //= share
            moved = (panels * layout.panel, 0)
        elif share > 1 and lines % (share * SWIZZLE_LINES) == 0:
            lines //= share
            moved = (0, lines)
        height = next(n for n in range(min(lines, MAP_BOX), 0, -1) if lines % n == 0)
        made = [
            Box(panel * layout.panel, line)
            for panel in range(panels) for line in range(0, lines, height)
        ]  # fmt: skip
        dims = (access.dims[axis], access.dims[across])
        array, axes = self.array(access.view)
        order = self._order(axes, dims[0])
        box = tuple(layout.panel if d == dims[0] else height if d == dims[1] else 1 for d in order)
        slot = Slot(
            "tensor_map", array, dtype=tile.dtype.name, box=box,
            axes=tuple(axes[d] for d in order), swizzle=layout.swizzle,
        )  # fmt: skip
        name = access.view.name or "array"
        value = self._slots.setdefault(
            slot, Value(TensorMapType(tile.dtype, box, layout.swizzle), f"{name}.map")
        )
        return Boxes(value, layout, tuple(made), dims, order, moved)

    def _order(self, axes: Sequence[int], unit: int) -> tuple[int, ...]:
        """The view's axes, the contiguous one last."""
        return (*(d for d in range(len(axes)) if d != unit), unit)

    def array(self, view: Value) -> tuple[int, tuple[int, ...]]:
        """The parameter a view shows, and the parameter's axis for each of the view's."""
        pointer, sizes, strides = self.facts.argument_numbers(view)
        slots = self.plan.slots
        if pointer < 0 or slots[pointer].kind != "data":
            raise NotTiled("a staged tile is of an array that is no parameter")
        definition = self.facts.definitions.get(view)
        if definition is not None and definition.attributes.get("reshaped"):
            raise NotTiled("a staged tile is of an array that is seen with other sizes")
        number = slots[pointer].parameter
        t = view.view_type
        rank = self._rank(number)
        if rank != len(t.shape):
            raise NotTiled("a staged tile is of a view with other axes than its array")
        if t.contiguous and self.plan.copy_of(number) is None:
            return number, tuple(range(rank))  # row by row as the array, whatever names its sizes
        axes = tuple(self._axis(number, d, sizes, strides) for d in range(rank))
        if sorted(axes) != list(range(rank)):
            raise NotTiled("a staged tile is of a view with other axes than its array")
        return number, axes

    def _rank(self, number: int) -> int:
        copy = self.plan.copy_of(number)
        if copy is not None:
            return len(copy.axes)
        parameters = self.plan.parameters
        if number < len(parameters):
            return parameters[number].rank or len(parameters[number].dims)
        return len(self.plan.results[number - len(parameters)].dims)

    def _axis(
        self, number: int, dim: int, sizes: Sequence[int | None], strides: Sequence[int | None]
    ) -> int:
        """The parameter's axis behind one of the view's, by its stride or its size."""
        copy = self.plan.copy_of(number)
        if copy is not None and strides[dim] is None:
            return copy.axes[-1]
        for candidates in (strides, sizes):
            found = candidates[dim] if dim < len(candidates) else None
            slot = self.plan.slots[found] if found is not None else None
            if slot is not None and slot.kind in ("stride", "size") and slot.parameter == number:
                return slot.axis
            if slot is not None and slot.kind == "symbol" and not self._shows(number, dim, slot):
                raise NotTiled("a staged tile is of a view with other axes than its array")
        return dim

    def _shows(self, number: int, dim: int, slot: Slot) -> bool:
        parameters = self.plan.parameters
        dims = (
            parameters[number].dims if number < len(parameters)
            else self.plan.results[number - len(parameters)].dims
        )  # fmt: skip
        return not dims or dims[dim] == Sym(slot.symbol)


def buffer_starts(slot: Value, panel: Value, line: Value, layout: SharedLayout) -> list[Value]:
    """Stage, row and column of a box in its buffer."""
    return [slot, line, panel] if layout.major == 1 else [slot, panel, line]


def coordinates(boxes: Boxes, starts: Sequence[Value], along: Value, across: Value) -> list[Value]:
    """Where a box lies in its array; ``along`` and ``across`` replace two of the starts."""
    placed = list(starts)
    placed[boxes.dims[0]], placed[boxes.dims[1]] = along, across
    return [placed[d] for d in boxes.axes]
