"""Stores into rows that a tile of numbers chooses.

Owns what becomes of two rows with one number: the later one stands, as if they were written one
after the other. Places that a later row of the same tile takes are put outside of the array, where
nothing is written; tiles after each other are written in their order. Must not know syntax.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_schedule.state import Refused, State
from tessera_lang.lower.ast_to_schedule.value_nodes import Node, Read, Window, Windows
from tessera_lang.source import Span
from tessera_lang.target.tuned_constants import SCATTER_MOST_ROWS, SCATTER_PAIRS, SCATTER_ROWS
from tessera_lang.types.dtype import INDEX


def scatter(s: State, place: Read, root: Node, span: Span) -> None:
    """Elements of ``root`` into the rows of ``place``."""
    b = s.b
    along = next(i for i, d in enumerate(place.dims) if place.numbers[d] is not None)
    axis = root.axes[along]
    if axis.capacity is not None:
        _rows(s, place, root, along, Window(b.number(0), axis.capacity, axis.extent), span)
        return
    with b.region(("row", INDEX)) as inside:
        (at,) = inside.arguments
        left = b.arithmetic("sub", axis.extent, at)
        window = Window(at, SCATTER_ROWS, b.arithmetic("min", b.number(SCATTER_ROWS), left))
        _rows(s, place, root, along, window, span)
        b.yield_()
    b.loops([b.number(0)], [axis.extent], [b.number(SCATTER_ROWS)], (), inside.region, ["row"])


def _rows(s: State, place: Read, root: Node, along: int, rows: Window, span: Span) -> None:
    """These rows, in loops over what has no capacity beside them."""
    if not isinstance(rows.size, int) or rows.size > SCATTER_MOST_ROWS:
        raise Refused(Diagnostic(
            "T0700", f"a store takes at most {SCATTER_MOST_ROWS} rows that a tile chooses", span,
            f"this takes {rows.size} at once",
            helps=("write a loop over fewer rows: `for i in op.tile_range(n, step=64):`",),
        ))  # fmt: skip
    numbers = place.numbers[place.dims[along]]
    assert numbers is not None
    found = _last_ones(s, numbers, rows)
    windows = [
        rows if i == along
        else None if a.capacity is None else Window(s.b.number(0), a.capacity, a.extent)
        for i, a in enumerate(root.axes)
    ]  # fmt: skip

    def body(parts: Windows) -> None:
        b, starts = s.b, list(place.starts)
        for dim, step, w in zip(place.dims, place.steps, parts, strict=True):
            starts[dim] = b.add(starts[dim], b.arithmetic("mul", w.start, b.number(step)))
            if step != 1:
                starts[dim] = s.demand.places(starts[dim], step, w.size)
        starts[place.dims[along]] = found
        order = sorted(range(len(place.dims)), key=lambda i: place.dims[i])
        tile = s.demand.permute(s.demand(root, parts), order)
        extents = [parts[i].extent for i in order]
        b.scatter(tile, place.view, starts, extents, dims=[place.dims[i] for i in order])

    s.nests.over(root, windows, body)


def _last_ones(s: State, numbers: Node, rows: Window) -> Value:
    """The places of some rows as indices, -1 where a later row has the same one."""
    b, size = s.b, rows.size
    assert isinstance(size, int)
    places = s.demand(numbers, (rows,))
    hidden: Value | None = None
    width = min(size, max(1, SCATTER_PAIRS // size))
    for first in range(0, size, width):
        count = min(width, size - first)
        one = _taken_later(s, numbers, places, rows, first, count)
        hidden = one if hidden is None else b.binary("or", hidden, one)
    outside = b.full(b.index(-1), (size,))
    made = b.cast(places, INDEX)
    return made if hidden is None or size == 1 else b.select(hidden, outside, made)


def _taken_later(
    s: State, numbers: Node, places: Value, rows: Window, first: int, count: int
) -> Value:
    """Of each row whether one of some others has its place and is behind it."""
    b, size = s.b, rows.size
    assert isinstance(size, int)
    left = b.arithmetic("sub", rows.extent, b.number(first))
    extent = b.arithmetic("max", b.number(0), b.arithmetic("min", b.number(count), left))
    window = Window(b.add(rows.start, b.number(first)), count, extent)
    others = places if count == size else s.demand(numbers, (window,))
    shape = (size, count)
    mine, theirs = (
        b.broadcast(b.expand(tile, axis), shape) for tile, axis in ((places, 1), (others, 0))
    )
    behind = b.iota(shape, 1)
    if first:
        behind = b.binary("add", behind, b.full(b.index(first), shape))
    same = b.binary("and", b.cmp("eq", mine, theirs), b.cmp("lt", b.iota(shape, 0), behind))
    return b.reduce("any", same, extent, 1)
