"""Storing tiles: where the elements of a tile go, and when a buffer is used in place.

Owns ``store_tile`` (a tile into a buffer), ``materialise`` (a result into a buffer of its own,
that of a dying operand, or the one it will be handed over in), and ``hand_over`` (what terminators
put into the buffers of their construct). Must not know what gave a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile, tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import Extents, along, loop, nest, phase
from tessera_lang.lower.schedule_to_lanes.elements import element
from tessera_lang.lower.schedule_to_lanes.inner_axis import interchanged
from tessera_lang.lower.schedule_to_lanes.materialization_choice import DISPLACES
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.types.dtype import DType


def sources_of(s: Lowering, value: Value) -> dict[Buffer, bool]:
    """The buffers that are read for a tile; whether each only at the index that is asked for."""
    found: dict[Buffer, bool] = {}
    seen: set[tuple[Value, bool]] = set()

    def visit(value: Value, stays: bool) -> None:
        if not is_tile(value) or (value, stays) in seen:
            return
        seen.add((value, stays))
        buffer = s.stored.get(value)
        if buffer is not None:
            found[buffer] = found.get(buffer, True) and stays
            return
        op = s.source.definition[value]
        moves = op.name in DISPLACES or op.name == f"{PREFIX}gather"
        for operand in op.operands:
            visit(operand, stays and not moves)

    visit(value, True)
    return found


def store_tile(s: Lowering, value: Value, buffer: Buffer, extents: Extents) -> None:
    """The elements of ``value`` into ``buffer``; zeros behind where the program may read them."""
    if s.stored.get(value) is buffer:
        return
    sizes = tile_type(value).sizes

    def one(index: Index) -> None:
        read = s.b.cast(element(s, value, index), buffer.dtype)
        s.b.store(read, buffer.value, index, "proved")

    def everything() -> None:
        nest(s, sizes, extents, one, interchanged(s, value))
        if _is_read_beyond(s, value):
            _zeros(s, sizes, extents, buffer)

    phase(s, [buffer.value], everything)


def _is_read_beyond(s: Lowering, value: Value) -> bool:
    """Whether a tile is 0 beyond its extent and something may rely on that."""
    if all(s.domains.zeros_beyond(value, i) is None for i in range(len(tile_type(value).sizes))):
        return False
    users = s.source.users.get(value, [])
    return not all(u.name == f"{PREFIX}dot" and value in u.operands[:2] for u in users)


def _zeros(s: Lowering, sizes: Sequence[int], extents: Extents, buffer: Buffer) -> None:
    """0 in every element of the capacity beyond the extents."""
    if all(isinstance(e, int) and e >= n for e, n in zip(extents, sizes, strict=True)):
        return
    zero = s.b.constant(0, buffer.dtype)
    if s.lanes > 1:
        bounds = [s.bound(e) for e in extents]

        def beyond(index: Index) -> None:
            tests = [s.b.cmp("ge", at, e) for at, e in zip(index, bounds, strict=True)]
            outside = tests[0]
            for test in tests[1:]:
                outside = s.b.binary("or", outside, test)
            with s.b.region() as then, s.inside():
                s.b.store(zero, buffer.value, index, "proved")
                s.b.yield_()
            with s.b.region() as otherwise:
                s.b.yield_()
            s.b.if_(outside, then.region, otherwise.region)

        nest(s, sizes, sizes, beyond)
        return
    _zero_axis(s, sizes, extents, buffer, zero, ())


def _zero_axis(
    s: Lowering, sizes: Sequence[int], extents: Extents, buffer: Buffer, zero: Value,
    outer: Index,
) -> None:  # fmt: skip
    """Behind the extent of this axis everything; before it what is behind the later ones."""
    axis = len(outer)
    if axis == len(sizes):
        return
    rest = list(sizes[axis + 1 :])

    def clear(at: Value) -> None:
        nest(s, rest, rest, lambda i: s.b.store(zero, buffer.value, (*outer, at, *i), "proved"))

    extent, size = extents[axis], sizes[axis]
    if rest:
        along(s, size, extent,
              lambda at: _zero_axis(s, sizes, extents, buffer, zero, (*outer, at)))  # fmt: skip
    if not (isinstance(extent, int) and extent >= size):
        loop(s, s.bound(extent), s.index(size), clear)


def is_dead_after(s: Lowering, buffer: Buffer, op: Operation, inside: bool = True) -> bool:
    """Whether nobody needs the content of a buffer once ``op`` is done; without ``inside``:
    nor in the regions of ``op``."""
    holder = buffer.holder
    if holder is None:
        return True
    uses = s.placement.uses(holder)
    if not inside:
        place, at = s.source.place[op], s.source.index[op]
        if any(u is not op and s.source.index_in(u, place) == at for u in uses):
            return False
    return s.source.is_last(op, holder, uses)


def destination(
    s: Lowering, op: Operation, value: Value, dtype: DType, reads: dict[Buffer, bool]
) -> Buffer:
    """Where the result ``value`` of ``op`` is put; ``reads``: what is read for it meanwhile."""
    sizes = tile_type(value).sizes
    loops = op.name in LOOPS

    def fits(buffer: Buffer | None) -> bool:
        return (
            buffer is not None
            and buffer.key == (dtype, sizes)
            and reads.get(buffer, True)
            and is_dead_after(s, buffer, op, inside=not loops)
        )

    chosen = next((b for b in _handed_in(s, op, value) if fits(b)), None)
    if chosen is None:
        chosen = next((b for b in reads if fits(b) and b.holder is not None), None)
    if chosen is None:
        chosen = s.take(dtype, sizes, value.name)
    chosen.holder = value  # what it held is still read there, until the operation is done
    return chosen


def _handed_in(s: Lowering, op: Operation, value: Value) -> list[Buffer | None]:
    """The buffers of the construct around ``op`` in which its region hands ``value`` over."""
    owner, number = s.source.place[op]
    last = owner.regions[number].terminator
    if last.name != "tile.yield" or not s.slots or s.slots[-1].operation is not owner:
        return []
    return [b for v, b in zip(last.operands, s.slots[-1].buffers, strict=True) if v is value]


def materialise(s: Lowering, op: Operation, value: Value) -> None:
    """Stores a result that the element loop of ``store_tile`` can compute."""
    dtype = s.stored_dtype(value)
    buffer = destination(s, op, value, dtype, sources_of(s, value))
    store_tile(s, value, buffer, s.domains.at(value, op))
    s.stored[value] = buffer


def hand_over(
    s: Lowering, op: Operation, values: Sequence[Value], slots: Sequence[Buffer | None],
    owners: Sequence[Value],
) -> None:  # fmt: skip
    """Puts the tiles among ``values`` into ``slots``, as if all at once; ``owners``: the values
    of the construct that are then in them."""
    stored = dict(s.stored)
    waiting = [
        (v, slot, owner)
        for v, slot, owner in zip(values, slots, owners, strict=True)
        if slot is not None and s.stored.get(v) is not slot
    ]
    elsewhere = set[Value]()
    while waiting:
        at = next((i for i in range(len(waiting)) if _is_free(s, waiting, i)), None)
        if at is None:  # they take each other's places: one that is not yet elsewhere waits there
            value, slot, owner = next(w for w in waiting if w[0] not in elsewhere)
            elsewhere.add(value)
            buffer = s.take(slot.dtype, slot.sizes, value.name)
            store_tile(s, value, buffer, _extents(s, owner, op))
            s.stored[value], buffer.holder = buffer, value
            continue
        value, slot, owner = waiting.pop(at)
        store_tile(s, value, slot, _extents(s, owner, op))
    s.stored = stored  # what comes behind this exit has not taken it


def _extents(s: Lowering, owner: Value, op: Operation) -> tuple[int | Value, ...]:
    return s.domains.at(owner, op)


def _is_free(s: Lowering, waiting: Sequence[tuple[Value, Buffer, Value]], number: int) -> bool:
    """Whether the slot can be written now: not read by others, by its own value in place."""
    slot = waiting[number][1]
    for i, (value, _, _) in enumerate(waiting):
        reads = sources_of(s, value)
        if slot in reads and not (i == number and reads[slot]):
            return False
    return True
