"""Register tiles to and from global memory: ``load_tile``, ``store_tile``, ``gather_tile``.

Owns the choice of an access: as many neighbours at once as the layout holds, the view allows and
alignment permits. What is not known now is tested once a tile, the same for all lanes: whole
tiles need no predicates, aligned ones go by vectors, the rest by elements. Must not know how an
access is spelt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tessera_backend.llvm.cast import as_index
from tessera_backend.llvm.emitter import LaneEmitter, Place, Rule
from tessera_backend.llvm.types import register_type
from tessera_backend.nvptx import words
from tessera_backend.nvptx.numbers import Number, number, product, total
from tessera_backend.nvptx.places import conjunction, first_copy
from tessera_backend.nvptx.tile_values import (
    Coordinates,
    bind_at,
    held_at,
    layout_of,
    tile_type,
)
from tessera_backend.nvptx.windows import (
    Window,
    at_lane,
    ints,
    known_alignment,
    moved,
    strides_of,
    window_of,
)
from tessera_lang.analysis.layouts import registers_at
from tessera_lang.ir.core import Operation
from tessera_lang.ir.layout import RegisterLayout
from tessera_lang.types.dtype import DType

Values = dict[Coordinates, str]

# --- paths ------------------------------------------------------------------------------------

Path = Callable[[Window, int, bool], Values]
"""An access of all registers: window, neighbours at once, whether with predicates."""


def by_paths(e: LaneEmitter, window: Window, path: Path) -> Values:
    """The access by the best path that holds, chosen when the kernel runs."""
    whole, vector, known = window.whole(e), window.vector, min(window.known, window.vector)
    branches: list[tuple[str, int, bool]] = []
    if known < vector:
        branches.append((conjunction(e, [window.aligned, whole]), vector, False))
        if whole:
            cut = _cut(e, window, vector)
            branches.append((conjunction(e, [window.aligned, cut]), vector, True))
    elif whole:
        branches.append((whole, known, False))
    if not whole:
        branches.append(("", known, False))
    else:
        branches.append((_cut(e, window, known), known, True))
        branches.append(("", 1, True))
    kind = register_type(window.place.dtype)
    return _choose(e, branches, lambda width, guarded: path(window.fresh(), width, guarded), kind)


def _cut(e: LaneEmitter, window: Window, width: int) -> str:
    """Whether the extent ends no vector of ``width`` in its middle ("" if surely)."""
    if width <= window.cut:
        return ""
    extent = window.extents[window.unit]
    if isinstance(extent, int):
        return "" if extent % width == 0 else "false"
    rest = e.f.value(f"and i64 {extent}, {width - 1}")
    return e.f.value(f"icmp eq i64 {rest}, 0")


def _choose(
    e: LaneEmitter, branches: Sequence[tuple[str, int, bool]],
    path: Callable[[int, bool], Values], kind: str,
) -> Values:  # fmt: skip
    """The first branch whose condition holds; one without a condition always does."""
    if not branches[0][0]:
        return path(*branches[0][1:])
    f, join = e.f, e.f.label("accessed")
    ends: list[tuple[Values, str]] = []
    for condition, width, guarded in branches:
        here, after = f.label("access"), f.label("otherwise")
        if condition:
            f.branch_if(condition, here, after)
            f.place(here)
        ends.append((path(width, guarded), f.block))
        f.branch(join)
        if not condition:
            break
        f.place(after)
    f.place(join)
    merged: Values = {}
    for at in ends[0][0]:
        sources = ", ".join(f"[ {values[at]}, %{block} ]" for values, block in ends)
        merged[at] = f.value(f"phi {kind} {sources}")
    return merged


def vectors(window: Window, layout: RegisterLayout, width: int) -> list[Coordinates]:
    """The first coordinates of every run of ``width`` neighbours."""
    held = registers_at(layout, len(window.tile.shape))
    if width == 1:
        return list(held)
    return [at for at in held if at[window.unit] % width == 0]


def neighbours(at: Coordinates, axis: int, width: int) -> list[Coordinates]:
    if width == 1:
        return [at]
    return [(*at[:axis], at[axis] + i, *at[axis + 1 :]) for i in range(width)]


# --- rules ------------------------------------------------------------------------------------

_LOAD_HINTS = {"": "", "keep": "", "stream": ".L1::no_allocate"}
_STORE_HINTS = {"": "", "keep": "", "stream": ".cs"}


def _load(e: LaneEmitter, op: Operation) -> None:
    window = window_of(e, op, op.operands[0], op.operands[1:])
    layout, dtype = layout_of(window.tile), window.tile.dtype

    def path(w: Window, width: int, guarded: bool) -> Values:
        found: Values = {}
        for at in vectors(w, layout, width):
            predicate = w.inside(e, at, width) if guarded else ""
            hint = ("" if w.place.mut else ".nc") + _LOAD_HINTS[w.hint]
            values = words.load(e, w.cell(e, at, predicate), dtype, width, hint)
            found.update(zip(neighbours(at, w.unit, width), values, strict=True))
        return found

    values = by_paths(e, window, path)
    bind_at(e, op.result, values.__getitem__)


def _store(e: LaneEmitter, op: Operation) -> None:
    window = window_of(e, op, op.operands[1], op.operands[2:])
    layout, dtype = layout_of(window.tile), window.tile.dtype
    held = held_at(e, op.operands[0])
    once = first_copy(e, layout)

    def path(w: Window, width: int, guarded: bool) -> Values:
        for at in vectors(w, layout, width):
            inside = w.inside(e, at, width) if guarded else ""
            values = [held[n] for n in neighbours(at, w.unit, width)]
            cell = w.cell(e, at, conjunction(e, [once, inside]))
            words.store(e, cell, values, dtype, _STORE_HINTS[w.hint])
        return {}

    by_paths(e, window, path)


def _gather(e: LaneEmitter, op: Operation) -> None:
    """As a load; along axes with a tile of numbers every row has its own address, and one that
    is outside the view is all zeros."""
    view, *numbers = op.operands
    tile, dims, place = tile_type(op.result), ints(op, "dims"), e.places[view]
    rank, layout = len(place.sizes), layout_of(tile)
    of_view = strides_of(e, place)
    rows = {dims.index(d): held_at(e, v) for d, v in enumerate(numbers[:rank]) if v in e.tiles}
    first: Number = 0
    for axis, start in enumerate(numbers[:rank]):
        if start not in e.tiles:
            step = product(e, number(e.operand(start)), of_view[axis])
            first = total(e, first, step)
    base = moved(e, place.pointer, product(e, first, place.dtype.bytes))
    strides: list[Number] = [0 if a in rows else of_view[d] for a, d in enumerate(dims)]
    extents = [number(e.operand(v)) for v in numbers[rank:]]
    window = at_lane(e, tile, place, strides, extents, base, layout)
    bytes_ = window.vector * place.dtype.bytes
    if window.vector > 1:
        starts = [None if v in e.tiles else v for v in numbers[:rank]]
        known = known_alignment(e, view, starts, bytes_)
        window.vector = window.known = max(known // place.dtype.bytes, 1)
    jumps = {
        a: _jumps(e, held, tile_type(numbers[dims[a]]).dtype, place, of_view[dims[a]], dims[a])
        for a, held in rows.items()
    }

    def path(w: Window, width: int, guarded: bool) -> Values:
        found: Values = {}
        for at in vectors(w, layout, width):
            address, offset = w.address(e, at)
            tests = [w.inside(e, at, width) if guarded else ""]
            for axis, jump in jumps.items():
                distance, valid = jump[(at[axis],)]
                address = moved(e, address, distance)
                tests.append(valid)
            pointer = e.dialect.pointer_type(place.space)
            cell = words.Cell("global", pointer, address, offset, conjunction(e, tests))
            hint = "" if place.mut else ".nc"
            values = words.load(e, cell, tile.dtype, width, hint)
            found.update(zip(neighbours(at, w.unit, width), values, strict=True))
        return found

    values = by_paths(e, window, path)
    bind_at(e, op.result, values.__getitem__)


def _jumps(
    e: LaneEmitter, held: Mapping[Coordinates, str], dtype: DType, place: Place, stride: Number,
    axis: int,
) -> dict[Coordinates, tuple[Number, str]]:  # fmt: skip
    """Bytes to the row of each register of a tile of numbers, and whether it is in the view."""
    found: dict[Coordinates, tuple[Number, str]] = {}
    for at, narrow in held.items():
        operand = as_index(e, narrow, dtype)
        valid = e.f.value(f"icmp ult i64 {operand}, {place.sizes[axis]}")
        step = product(e, product(e, operand, stride), place.dtype.bytes)
        found[at] = (step, valid)
    return found


RULES: dict[str, Rule] = {
    "tile.load_tile": _load,
    "tile.store_tile": _store,
    "tile.gather_tile": _gather,
}
