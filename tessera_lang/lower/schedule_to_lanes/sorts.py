"""Sorts along an axis: a network in memory, whose steps all lanes of a group take together.

Blocks of 2, 4, 8, ... elements become sorted one after the other. A block whose halves are sorted
is merged by comparing element i with its mirror image in the block, then in each half with the
element half as far away, and so on. The lesser element always goes to the lower place, so what is
behind the extent takes no part: it would stay where it is if it were greater than all others. Where
places are asked for, they go with the elements, and of two equal ones the first is the lesser.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.def_use import tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import loop, nest, phase
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import (
    destination,
    sources_of,
    store_tile,
)


def sort(s: Lowering, op: Operation) -> None:
    value, extent = op.operands
    sizes, extents = tile_type(value).sizes, s.domains.at(value, op)
    buffer = destination(s, op, op.result, s.stored_dtype(op.result), sources_of(s, value))
    keys, places = buffer, None
    if op.attributes.get("places"):
        keys, places = s.take(tile_type(value).dtype, sizes, "keys"), buffer
        _count(s, op.integer("axis"), sizes, places)
    store_tile(s, value, keys, extents)
    s.stored[op.result] = buffer
    size = sizes[op.integer("axis")]
    if size > 1:
        _Network(s, op, keys, places, s.scalar(extent)).run((size - 1).bit_length())
    if places is not None:
        s.give_back(keys)


def _count(s: Lowering, axis: int, sizes: Sequence[int], places: Buffer) -> None:
    """Each element of ``places`` is its number along an axis."""

    def one(index: Index) -> None:
        s.b.store(s.b.cast(index[axis], places.dtype), places.value, index, "proved")

    phase(s, [places.value], lambda: nest(s, sizes, sizes, one))


class _Network:
    def __init__(
        self, s: Lowering, op: Operation, keys: Buffer, places: Buffer | None, extent: Value
    ) -> None:
        self.s, self.keys, self.places, self.extent = s, keys, places, extent
        self.axis = op.integer("axis")
        value = op.operands[0]
        self.sizes = list(tile_type(value).sizes)
        self.extents = list(s.domains.at(value, op))

    def run(self, rounds: int) -> None:
        """``rounds``: of merges; the last makes blocks as long as the axis, or longer."""
        s, b = self.s, self.s.b
        self.sizes[self.axis] = self.extents[self.axis] = 1 << (rounds - 1)
        step = self._by_all if s.lanes > 1 else self._by_one

        def merge(number: Value) -> None:
            step(number, True)

            def nearer(k: Value) -> None:
                step(b.binary("sub", b.binary("sub", number, s.index(1)), k), False)

            loop(s, s.index(0), number, nearer)

        loop(s, s.index(0), s.index(rounds), merge)
        for buffer in (self.keys, self.places):
            if buffer is not None:
                s.unsafe[buffer.value] = True

    def _by_all(self, shift: Value, mirrored: bool) -> None:
        """All pairs of a step at once: element i of the lower half of a block of ``2 << shift``
        with the one as far from the end, or in the same place of the upper half."""
        s, b = self.s, self.s.b
        half = b.binary("shl", s.index(1), shift)
        b.barrier()

        def one(index: Index) -> None:
            number = index[self.axis]
            block = b.binary("shr", number, shift)
            inside = b.binary("sub", number, b.binary("shl", block, shift))
            start = b.binary("shl", block, b.binary("add", shift, s.index(1)))
            low = b.binary("add", start, inside)
            high = self._partner(start, inside, half, mirrored)
            with b.region() as then, s.inside():
                self._exchange(self._at(index, low), self._at(index, high))
                b.yield_()
            with b.region() as otherwise:
                b.yield_()
            b.if_(b.cmp("lt", high, self.extent), then.region, otherwise.region)

        nest(s, self.sizes, self.extents, one)

    def _by_one(self, shift: Value, mirrored: bool) -> None:
        """The same block after block, each half from its first element that has a partner on."""
        s, b = self.s, self.s.b
        half = b.binary("shl", s.index(1), shift)
        both = b.binary("add", half, half)
        before, behind = slice(0, self.axis), slice(self.axis + 1, None)

        def line(outer: Index) -> None:
            def block(number: Value) -> None:
                start = b.binary("mul", number, both)
                left = b.binary("sub", self.extent, start)
                first, count = s.index(0), b.binary("min", half, b.binary("sub", left, half))
                if mirrored:
                    first = b.binary("max", first, b.binary("sub", both, left))
                    count = half

                def pair(inside: Value) -> None:
                    low = b.binary("add", start, inside)
                    high = self._partner(start, inside, half, mirrored)
                    nest(
                        s, self.sizes[behind], self.extents[behind],
                        lambda i: self._exchange((*outer, low, *i), (*outer, high, *i)),
                    )  # fmt: skip

                loop(s, first, count, pair)

            up = b.binary("add", self.extent, b.binary("sub", both, s.index(1)))
            loop(s, s.index(0), b.binary("floordiv", up, both), block)

        nest(s, self.sizes[before], self.extents[before], line)

    def _partner(self, start: Value, inside: Value, half: Value, mirrored: bool) -> Value:
        b = self.s.b
        if not mirrored:
            return b.binary("add", b.binary("add", start, inside), half)
        last = b.binary("sub", b.binary("add", half, half), self.s.index(1))
        return b.binary("add", start, b.binary("sub", last, inside))

    def _at(self, index: Index, place: Value) -> Index:
        return (*index[: self.axis], place, *index[self.axis + 1 :])

    def _exchange(self, low: Index, high: Index) -> None:
        b, memory = self.s.b, self.keys.value
        first, second = b.load(memory, low, "proved"), b.load(memory, high, "proved")
        if self.places is None:
            b.store(b.binary("min", first, second), memory, low, "proved")
            b.store(b.binary("max", first, second), memory, high, "proved")
            return
        places = self.places.value
        here, there = b.load(places, low, "proved"), b.load(places, high, "proved")
        earlier = b.binary("and", b.cmp("eq", first, second), b.cmp("lt", there, here))
        swaps = b.binary("or", b.cmp("lt", second, first), earlier)
        for held, one, other in ((memory, first, second), (places, here, there)):
            b.store(b.select(swaps, other, one), held, low, "proved")
            b.store(b.select(swaps, one, other), held, high, "proved")
