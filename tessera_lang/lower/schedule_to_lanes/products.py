"""Products of tiles.

On the CPU ``tile.dot_into``, which multiplies buffers; elsewhere, lanes over the elements of the
result, each with a loop along the contraction. The contraction stops where an operand is known to
be 0 from there on. Must not know how the CPU multiplies.
"""

from __future__ import annotations

from collections.abc import Hashable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.def_use import tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import nest, phase
from tessera_lang.lower.schedule_to_lanes.elements import element
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import (
    destination,
    sources_of,
    store_tile,
)
from tessera_lang.types.dtype import INDEX, DType


def dot(s: Lowering, op: Operation) -> None:
    a, b, accumulator = op.operands
    dtype = tile_type(op.result).dtype
    factors = {**sources_of(s, a), **sources_of(s, b)}
    reads = {**sources_of(s, accumulator), **dict.fromkeys(factors, False)}
    target = destination(s, op, op.result, dtype, reads)
    store_tile(s, accumulator, target, s.domains.at(op.result, op))
    contraction = _contraction(s, op)
    if s.on_cpu:
        _blocked(s, op, target, contraction, dtype)
    else:
        _in_lanes(s, op, target, contraction, dtype)
    s.stored[op.result] = target


def _contraction(s: Lowering, op: Operation) -> list[int | Value]:
    """How far the contraction goes, the least of these: beyond, one of the factors is 0."""
    a, b, _ = op.operands
    rank, size = len(tile_type(a).sizes), tile_type(a).sizes[-1]
    found: dict[Hashable, int | Value] = {}
    for value, axis in ((a, rank - 1), (b, rank - 2)):
        zeros = s.domains.zeros_beyond(value, axis)
        if isinstance(zeros, Value):
            known = s.numbers.constant(zeros)
            zeros = zeros if known is None else min(known, size)
            if isinstance(zeros, Value) and not s.source.visible(zeros, op):
                continue
        if zeros is not None and zeros != size:
            found[s.numbers.key(zeros)] = zeros
    return list(found.values()) or [size]


def _least(s: Lowering, extents: list[int | Value]) -> Value:
    least = s.bound(extents[0])
    for extent in extents[1:]:
        least = s.b.binary("min", least, s.bound(extent))
    return least


def _blocked(
    s: Lowering, op: Operation, target: Buffer, contraction: list[int | Value], dtype: DType
) -> None:
    (a, turn_a), (b, turn_b) = (_factor(s, op, v, dtype) for v in op.operands[:2])
    result = tile_type(op.result)
    domain = s.domains.at(op.result, op)
    rows, columns = _extent(s, op, 0), _extent(s, op, 1)
    numbers = [s.bound(rows), s.bound(columns), _least(s, contraction)]

    def one(batch: Index) -> None:
        s.b.emit(
            "tile.dot_into", (a.value, b.value, target.value, *numbers, *batch), (),
            {"transpose_a": turn_a, "transpose_b": turn_b},
        )  # fmt: skip

    phase(s, [target.value], lambda: nest(s, result.sizes[:-2], domain[:-2], one))


def _extent(s: Lowering, op: Operation, number: int) -> int | Value:
    """Rows (0) or columns (1) of the result that have to be computed."""
    value = op.operands[number]
    return s.domains.at(value, op)[-2 + number]


def _factor(s: Lowering, op: Operation, value: Value, dtype: DType) -> tuple[Buffer, bool]:
    """A factor in memory in the dtype of the product, and whether transposed."""
    inner, transposed = s.placement.stored_factor(value)
    buffer = s.stored.get(inner)
    if buffer is None or buffer.dtype != dtype:
        buffer = s.take(dtype, tile_type(inner).sizes, inner.name)
        store_tile(s, inner, buffer, s.domains.at(inner, op))
    return buffer, transposed


def _in_lanes(
    s: Lowering, op: Operation, target: Buffer, contraction: list[int | Value], dtype: DType
) -> None:
    a, b, _ = op.operands
    size = tile_type(a).sizes[-1]
    result = tile_type(op.result)

    def one(index: Index) -> None:
        *batch, row, column = index
        upper = _least(s, contraction)
        start = s.b.load(target.value, index, "proved")
        with s.b.region(("k", INDEX), ("sum", dtype)) as body, s.inside():
            k, total = body.arguments
            s.below[k] = [size, *map(s.numbers.key, contraction)]
            x = s.b.cast(element(s, a, (*batch, row, k)), dtype)
            y = s.b.cast(element(s, b, (*batch, k, column)), dtype)
            if dtype.is_float and dtype.bits >= 32:
                s.b.yield_(s.b.fma(x, y, total))
            else:
                s.b.yield_(s.b.binary("add", total, s.b.binary("mul", x, y)))
        total = s.b.for_(s.index(0), upper, s.index(1), (start,), body.region)[0]
        s.b.store(total, target.value, index, "proved")

    phase(s, [target.value], lambda: nest(s, result.sizes, s.domains.at(op.result, op), one))
