"""Values that are better stored than computed again by each kernel that needs them.

A residual stream is a sum of one more array for each layer: each kernel that reads it would read
all of them. Owns the choice, by bytes. Must not know which kernels there will be.
"""

from __future__ import annotations

import math
from collections import defaultdict

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.graph.operators import is_operator
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    is_elementwise,
    moves_nothing,
    sizes_of,
)
from tessera_lang.record import dataclass, field
from tessera_lang.target.tuned_constants import LONGEST_LINE_OF_A_TILE

_REDUCTIONS = ("graph.sum", "graph.mean", "graph.reduce_max", "graph.reduce_min", "graph.logsumexp",
               "graph.softmax")  # fmt: skip


@dataclass(slots=True, eq=False)
class _Sources:
    """What values are made of. ``of``: arrays in memory, one bit each; ``sizes``: bytes of each;
    ``nested``: values made of products that are not stored; ``in_loops``: those made of products
    that a loop may compute, for which nothing is stored."""

    of: dict[Value, int] = field(default_factory=lambda: defaultdict[Value, int](int))
    sizes: list[int] = field(default_factory=list[int])
    nested: set[Value] = field(default_factory=set[Value])
    in_loops: set[Value] = field(default_factory=set[Value])

    def add(self, value: Value) -> None:
        """A value in memory."""
        self.of[value] = 1 << len(self.sizes)
        self.sizes.append(_bytes(value))

    def read(self, value: Value) -> tuple[int, int]:
        """Bytes of what a value is made of, and of the largest of it."""
        bits = self.of[value]
        sizes = [n for i, n in enumerate(self.sizes) if bits >> i & 1]
        return sum(sizes), max(sizes, default=0)


def kept_values(function: Operation, large: set[Value]) -> set[Value]:
    """Values of which there are k readers (what is in memory behind them), and which are made of
    arrays of S bytes: stored, these are read once, else k times. A value of n bytes is stored where
    k * S > S + k * n, and no array that it is made of is larger: such a one is read for more than
    for what its rows are reduced to. ``large``: what is made of products element by element."""
    body = function.regions[0]
    all_sources = _sources(body, large, {})
    readers = _readers(body, all_sources)
    _sources(body, large, readers)
    return {*readers}


def _sources(body: Region, large: set[Value], readers: dict[Value, int]) -> _Sources:
    """What values are made of, where those of which ``readers`` says how many they have are stored;
    of these the ones that are not worth it are removed."""
    found = _Sources()
    for value in body.arguments:
        found.add(value)
    for o in body.operations[:-1]:
        if not _passes(o):
            for v in o.results:
                found.add(v)
            if o.name == "graph.matmul":
                _look_at_product(o, found)
            continue
        value = o.result
        for v in o.operands:
            found.of[value] |= found.of[v]
        if any(v in found.nested for v in o.operands if v in large):
            found.nested.add(value)
        if any(v in found.in_loops for v in o.operands):
            found.in_loops.add(value)
        if value in readers and not _is_worth_it(value, readers[value], found):
            del readers[value]
        if value in readers:
            found.nested.discard(value)
            found.add(value)
    return found


def _is_worth_it(value: Value, count: int, sources: _Sources) -> bool:
    size, (read, largest) = _bytes(value), sources.read(value)
    return count > 1 and size >= largest and count * read > read + count * size


def _look_at_product(product: Operation, sources: _Sources) -> None:
    """Whether a loop may compute a product: its factors are in memory, or are made of products and
    smaller than it is."""
    value = product.result
    sources.nested.add(value)
    nested = [v for v in product.operands if v in sources.nested]
    short = sizes_of(product.operands[0])[-1] <= LONGEST_LINE_OF_A_TILE
    if short and sum(map(_bytes, nested)) < _bytes(value):
        sources.in_loops.add(value)


def _readers(body: Region, sources: _Sources) -> dict[Value, int]:
    """The values that are worth it, the last first, and how many readers each has: results of the
    function, these values, and what operators read that do not go element by element or along
    rows."""
    bits: dict[Value, int] = defaultdict(int)
    memory, kept = dict[Value, int](), dict[Value, int]()
    results = {*body.terminator.operands}

    def bit(value: Value) -> int:
        return memory.setdefault(value, 1 << len(memory))

    for o in reversed(body.operations[:-1]):
        for v in o.results:
            if v in results:
                bits[v] |= bit(v)
        passes = _passes(o)
        if passes and is_elementwise(o) and o.result not in sources.in_loops:
            count = bits[o.result].bit_count()
            if o.result.tensor_type.rank and _is_worth_it(o.result, count, sources):
                kept[o.result] = count
                bits[o.result] = bit(o.result)
        for v in o.operands:
            bits[v] |= bits[o.result] if passes else bit(v)
    return kept


def _passes(o: Operation) -> bool:
    """Whether an operator may be computed where its result is read."""
    return is_operator(o) and (
        o.name in _REDUCTIONS or is_elementwise(o) or moves_nothing(o)
        or o.name in ("graph.full", "graph.arange")
    )  # fmt: skip


def _bytes(value: Value) -> int:
    return math.prod(sizes_of(value)) * value.tensor_type.dtype.bytes
