"""Reductions along an axis, in an order that is fixed.

**The order.** One lane, the last axis: P partial results (P a power of two, by the capacity);
element i goes to partial i mod P, each in order of i; then partial l takes in l + P/2, l + P/4, ...
One lane, another axis: runs of 64 elements in order, the runs in order. Many lanes: each of S
lanes takes in elements s, s + S, ... in order; then they are combined in order of s.

16- and 8-bit floats are summed in f32 and rounded once.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Value
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile, tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import nest, phase
from tessera_lang.lower.schedule_to_lanes.reduce_across_lanes import by_lanes, first_index
from tessera_lang.lower.schedule_to_lanes.reduce_by_one_lane import columns, rows
from tessera_lang.lower.schedule_to_lanes.reduction_steps import Reduction
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import destination, sources_of
from tessera_lang.types.dtype import F32, DType


def reduce(s: Lowering, op: Operation) -> None:
    r = _taken_apart(s, op)
    if not is_tile(op.result):
        buffer = s.take(r.dtype, (1,), op.result.name)
        _into(s, r, buffer, scalar=True)
        s.ready([buffer.value], [])
        read = uniform_load(s, buffer.value, [s.index(0)], r.dtype)
        s.values[op.result] = s.b.cast(read, op.result.dtype)
        return
    wanted = s.stored_dtype(op.result)
    reads = dict.fromkeys(sources_of(s, r.value), False)
    if wanted == r.dtype:
        buffer = destination(s, op, op.result, wanted, reads)
        _into(s, r, buffer, scalar=False)
        s.stored[op.result] = buffer
        return
    exact = s.take(r.dtype, tile_type(op.result).sizes, op.result.name)
    _into(s, r, exact, scalar=False)
    buffer = destination(s, op, op.result, wanted, {**reads, exact: False})

    def rounded(index: Index) -> None:
        s.touched[exact.value] = None
        read = s.b.cast(s.b.load(exact.value, index, "proved"), tile_type(op.result).dtype)
        s.b.store(s.b.cast(read, wanted), buffer.value, index, "proved")

    phase(s, [buffer.value], lambda: nest(s, r.sizes, r.extents, rounded))
    s.stored[op.result] = buffer


def uniform_load(s: Lowering, buffer: Value, index: list[Value], dtype: DType) -> Value:
    """One element, which all lanes read."""
    attributes: dict[str, Attribute] = {"bounds": "proved", "site": -1}
    if s.lanes > 1:
        attributes["uniform"] = True
    return s.b.emit("tile.load", (buffer, *index), (dtype,), attributes).result


def _taken_apart(s: Lowering, op: Operation) -> Reduction:
    value, extent = op.operands
    axis, kind = op.integer("axis"), str(op.attributes["kind"])
    sizes, domain = list(tile_type(value).sizes), list(s.domains.at(value, op))
    dtype = tile_type(value).dtype
    if kind.startswith("arg"):
        result = op.result.type if isinstance(op.result.type, DType) else tile_type(op.result).dtype
        dtype = result
    elif dtype.is_float and dtype.bits < 32 and kind in ("add", "mul"):
        dtype = F32
    known = s.numbers.constant(extent)
    size = sizes.pop(axis)
    domain.pop(axis)
    return Reduction(op, value, kind, axis, size, extent if known is None else known, sizes,
                     domain, dtype)  # fmt: skip


def _into(s: Lowering, r: Reduction, buffer: Buffer, *, scalar: bool) -> None:
    """The result into ``buffer``, whose shape is that of the axes that stay (or one element)."""
    if r.kind.startswith("arg"):
        first_index(s, r, buffer, scalar)
    elif s.lanes > 1:
        by_lanes(s, r, buffer, scalar)
    elif r.axis == len(r.sizes):
        rows(s, r, buffer, scalar)
    else:
        columns(s, r, buffer)
