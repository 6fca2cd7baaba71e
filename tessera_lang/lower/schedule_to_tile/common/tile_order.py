"""The rasterization of a grid: which tile has which number, in the order that groups take them.

The last two axes are counted in blocks of rows, so that neighbours in the order read the same
lines of arrays; the axes before them are outermost, the last of these fastest. Where tiles along
an axis differ in how much they are to do, it is outermost, the heaviest of its tiles first. Must
not know who counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tessera_lang.ir.core import Value


class Arithmetic(Protocol):
    def binary(self, name: str, a: Value, b: Value, /) -> Value: ...


def heaviest_first(
    b: Arithmetic, tile: Value, counts: Sequence[Value], axis: int, one: Value | None
) -> list[Value]:
    """Where a tile is along each axis, where those at the end of ``axis`` come first, or, where no
    number ``one`` is given, those at its beginning."""
    count, others = counts[axis], [n for i, n in enumerate(counts) if i != axis]
    place, rest = tile, list[Value]()
    if others:
        plane = others[0]
        for n in others[1:]:
            plane = b.binary("mul", plane, n)
        place = b.binary("floordiv", tile, plane)
        rest = places(b, _rest(b, tile, place, plane), others, None)
    if one is not None:
        place = b.binary("sub", b.binary("sub", count, one), place)
    return [*rest[:axis], place, *rest[axis:]]


def places(
    b: Arithmetic, tile: Value, counts: Sequence[Value], height: Value | None
) -> list[Value]:
    """Where a tile is along each axis; ``counts`` tiles there are, ``height`` rows in a block
    (one: None)."""
    if len(counts) == 1:
        return [tile]
    *outer, rows, columns = counts
    inner: list[Value] = []
    rest = tile
    if outer:
        plane = b.binary("mul", rows, columns)
        block = b.binary("floordiv", tile, plane)
        rest = _rest(b, tile, block, plane)
        for count in reversed(outer[1:]):
            quotient = b.binary("floordiv", block, count)
            inner.insert(0, _rest(b, block, quotient, count))
            block = quotient
        inner.insert(0, block)
    return [*inner, *_matrix(b, rest, rows, columns, height)]


def _matrix(
    b: Arithmetic, tile: Value, rows: Value, columns: Value, height: Value | None
) -> tuple[Value, Value]:
    if height is None:
        row = b.binary("floordiv", tile, columns)
        return row, _rest(b, tile, row, columns)
    band_size = b.binary("mul", height, columns)
    band = b.binary("floordiv", tile, band_size)
    within = _rest(b, tile, band, band_size)
    first = b.binary("mul", band, height)
    left = b.binary("min", b.binary("sub", rows, first), height)
    column = b.binary("floordiv", within, left)
    return b.binary("add", first, _rest(b, within, column, left)), column


def _rest(b: Arithmetic, number: Value, quotient: Value, divisor: Value) -> Value:
    return b.binary("sub", number, b.binary("mul", quotient, divisor))
