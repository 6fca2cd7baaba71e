"""Reductions along an axis of a register tile.

First the registers of a lane, then lanes by shuffles, then warps through scratch. The order is
fixed by the layout, so equal layouts give equal bits. Must not know memory beyond the scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera_backend.llvm.emitter import LaneEmitter, Rule
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx.tiles import words
from tessera_backend.nvptx.tiles.element_places import (
    Term,
    bases,
    bits_below,
    first_copy,
    lane_terms,
    plus,
    sum_of,
    warp_terms,
)
from tessera_backend.nvptx.tiles.elementwise import (
    Coordinates,
    apply,
    bind_at,
    held_at,
    layout_of,
    tile_type,
)
from tessera_backend.nvptx.tiles.shared_addressing import base_of
from tessera_backend.nvptx.tiles.shared_memory import begin_scratch, check_scratch, end_scratch
from tessera_lang.analysis.resources.register_layouts import reduce_scratch, warps_along
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.layout import Mode, RegisterLayout
from tessera_lang.types.dtype import BOOL, I32, DType

Parts = tuple[str, ...]
"""What is combined: a value, or a value and its place."""

Combine = Callable[[LaneEmitter, Parts, Parts], Parts]

_NAMES = {"add": "add", "mul": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


def _combine(kind: str, dtype: DType) -> Combine:
    if kind.startswith("arg"):
        return _placed(kind, dtype)
    name = f"tile.{_NAMES[kind]}"
    return lambda e, a, b: (apply(e, name, dtype, a[0], b[0]),)


def _compared(e: LaneEmitter, predicate: str, dtype: DType, a: str, b: str) -> str:
    arguments = (Value(dtype), Value(dtype))
    e.bind(arguments[0], a)
    e.bind(arguments[1], b)
    result = Value(BOOL)
    e.emit(Operation("tile.cmp", arguments, (result,), {"predicate": predicate}))
    return e.operand(result)


def _placed(kind: str, dtype: DType) -> Combine:
    """The better of two with the smaller place; NaN is better than any number."""
    predicate = "gt" if kind == "argmax" else "lt"

    def combine(e: LaneEmitter, a: Parts, b: Parts) -> Parts:
        f, register = e.f, register_type(dtype)
        better = _compared(e, predicate, dtype, b[0], a[0])
        equal = _compared(e, "eq", dtype, b[0], a[0])
        if dtype.is_float:
            a_nan, b_nan = (_compared(e, "ne", dtype, v[0], v[0]) for v in (a, b))
            only = f.value(f"and i1 {b_nan}, {f.value(f'xor i1 {a_nan}, true')}")
            better = f.value(f"or i1 {better}, {only}")
            equal = f.value(f"or i1 {equal}, {f.value(f'and i1 {a_nan}, {b_nan}')}")
        before = f.value(f"icmp ult i32 {b[1]}, {a[1]}")
        tie = f.value(f"and i1 {equal}, {before}")
        take = f.value(f"or i1 {better}, {tie}")
        return (
            f.value(f"select i1 {take}, {register} {b[0]}, {register} {a[0]}"),
            f.value(f"select i1 {take}, i32 {b[1]}, i32 {a[1]}"),
        )

    return combine


def _tree(e: LaneEmitter, items: Sequence[Parts], combine: Combine) -> Parts:
    """Neighbours first: short chains, and a sum as exact as its depth."""
    level = list(items)
    while len(level) > 1:
        paired = [combine(e, a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = paired + level[len(level) - len(level) % 2 :]
    return level[0]


def _dtypes(kind: str, dtype: DType) -> tuple[DType, ...]:
    return (dtype, I32) if kind.startswith("arg") else (dtype,)


def _shuffled(e: LaneEmitter, parts: Parts, dtypes: Sequence[DType], mode: str, at: str) -> Parts:
    return tuple(
        words.shuffled(e, part, dtype, mode, at) for part, dtype in zip(parts, dtypes, strict=True)
    )


# --- reductions -------------------------------------------------------------------------------


def _reduce(e: LaneEmitter, op: Operation) -> None:
    tile = tile_type(op.operands[0])
    axis, kind = op.integer("axis"), str(op.attributes["kind"])
    layout, combine, dtypes = layout_of(tile), _combine(kind, tile.dtype), _dtypes(kind, tile.dtype)
    held = _in_registers(e, op.operands[0], axis, kind, combine)
    for step in _lane_steps(layout, axis):
        held = {
            at: combine(e, parts, _shuffled(e, parts, dtypes, "bfly", str(step)))
            for at, parts in held.items()
        }
    if warps_along(layout, axis) > 1:
        held = _across_warps(e, op, axis, held, combine, dtypes)
    _bind_reduced(e, op, held, kind)


def _in_registers(
    e: LaneEmitter, value: Value, axis: int, kind: str, combine: Combine
) -> dict[Coordinates, Parts]:
    tile = tile_type(value)
    groups: dict[Coordinates, list[Parts]] = {}
    places = kind.startswith("arg")
    base = bases(e, layout_of(tile), len(tile.shape))[axis] if places else ""
    found: dict[int, str] = {}
    for at, operand in sorted(held_at(e, value).items()):
        parts: Parts = (operand,)
        if places:
            if at[axis] not in found:
                found[at[axis]] = plus(e, base, at[axis])
            parts = (operand, found[at[axis]])
        groups.setdefault((*at[:axis], *at[axis + 1 :]), []).append(parts)
    return {at: _tree(e, items, combine) for at, items in groups.items()}


def _lane_steps(layout: RegisterLayout, axis: int) -> list[int]:
    """Distances of lanes that hold different elements of the axis, each a power of two."""
    steps: list[int] = []
    before = 1
    for mode in layout.lanes:
        if mode.axis == axis:
            steps += [before << i for i in range(mode.extent.bit_length() - 1)]
        before *= mode.extent
    return steps


def _bind_reduced(e: LaneEmitter, op: Operation, held: dict[Coordinates, Parts], kind: str) -> None:
    result = op.result.type
    dtype = result.dtype if isinstance(result, TileType) else result
    wide = kind.startswith("arg") and dtype != I32
    out: dict[Coordinates, str] = {}
    for at, parts in held.items():
        out[at] = e.f.value(f"zext nneg i32 {parts[-1]} to i64") if wide else parts[-1]
    if isinstance(result, TileType):
        bind_at(e, op.result, out.__getitem__)
    else:
        (operand,) = out.values()
        e.bind(op.result, operand)


# --- across warps -----------------------------------------------------------------------------


class Partials:
    """Rows of partial results in scratch: one row per warp of the axis (and ``rows`` of them a
    warp), as wide as the tile without the axis."""

    def __init__(
        self, e: LaneEmitter, scratch: Value, tile: TileType, axis: int, rows: int,
        dtypes: Sequence[DType],
    ) -> None:  # fmt: skip
        self.e, self.scratch, self.dtypes, self.rows = e, scratch, tuple(dtypes), rows
        layout = layout_of(tile)
        rest = layout.without_axis(axis)
        sizes = [n for i, n in enumerate(tile.sizes) if i != axis]
        self.width = prod(sizes)
        self._strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
        self.parts = warps_along(layout, axis)
        # Among lanes of the axis all hold the same by now; other copies are written once.
        self.once = first_copy(e, RegisterLayout((), rest.lanes, layout.warps))
        terms = [*lane_terms(e, rest.lanes), *warp_terms(e, rest.warps)]
        placed = [Term(0, t.operand, t.factor * self._strides[t.axis], t.bits) for t in terms]
        self._base = base_of(e, e.places[scratch].pointer)
        self._column = sum_of(e, placed)
        self.part = sum_of(e, self._part_terms(layout, axis))

    def _part_terms(self, layout: RegisterLayout, axis: int) -> list[Term]:
        out: list[Term] = []
        reached = 1
        for mode in layout.warps:
            if mode.axis == axis:
                alone = tuple(m if m is mode else Mode(m.extent, None) for m in layout.warps)
                out += [
                    Term(0, t.operand, reached, bits_below(mode.extent))
                    for t in warp_terms(self.e, alone)
                ]
                reached *= mode.extent
        return out

    def cell(
        self, number: int, part: tuple[str, int], row: int, at: Coordinates, predicate: str = ""
    ) -> words.Cell:
        """Result ``number`` (of value and place) of a part, an operand and a constant."""
        f, size = self.e.f, self.dtypes[number].bytes
        column = sum(c * s for c, s in zip(at, self._strides, strict=True))
        each = self.rows * self.width * size
        first = -(-self.parts * self.rows * self.width * self.dtypes[0].bytes // 4) * 4 * number
        address = self._base
        if self._column:
            scaled = f.value(f"mul i32 {self._column}, {size}")
            address = f.value(f"add i32 {address}, {scaled}")
        if part[0]:
            scaled = f.value(f"mul i32 {part[0]}, {each}")
            address = f.value(f"add i32 {address}, {scaled}")
        offset = first + part[1] * each + (row * self.width + column) * size
        return words.Cell("shared", "i32", address, offset, predicate)

    def write(self, row: int, at: Coordinates, parts: Parts) -> None:
        for number, (part, dtype) in enumerate(zip(parts, self.dtypes, strict=True)):
            cell = self.cell(number, (self.part, 0), row, at, self.once)
            words.store(self.e, cell, [part], dtype)

    def read(self, part: tuple[str, int], row: int, at: Coordinates) -> Parts:
        return tuple(
            words.load(self.e, self.cell(number, part, row, at), dtype, 1)[0]
            for number, dtype in enumerate(self.dtypes)
        )


def _scratch(op: Operation) -> Value:
    if len(op.operands) < 2:
        raise ValueError("warps hold different parts of the axis: a scratch buffer is needed")
    return op.operands[1]


def _across_warps(
    e: LaneEmitter, op: Operation, axis: int, held: dict[Coordinates, Parts], combine: Combine,
    dtypes: Sequence[DType],
) -> dict[Coordinates, Parts]:  # fmt: skip
    tile, scratch = tile_type(op.operands[0]), _scratch(op)
    check_scratch(scratch, reduce_scratch(tile, axis, str(op.attributes["kind"])))
    partials = Partials(e, scratch, tile, axis, 1, dtypes)
    if not op.attributes.get("fresh"):
        begin_scratch(e, scratch)
    for at, parts in held.items():
        partials.write(0, at, parts)
    e.dialect.barrier(e)
    out: dict[Coordinates, Parts] = {}
    for at in held:
        found = [partials.read(("", part), 0, at) for part in range(partials.parts)]
        out[at] = _tree(e, found, combine)
    end_scratch(e, scratch)
    return out


RULES: dict[str, Rule] = {"tile.reduce_tile": _reduce}
