"""What constructs carry: the buffers of their tiles, and their scalars.

A loop's tiles lie in one buffer each, which the tile that goes in first may bring along; a branch
writes straight into the buffer of the loop around it where it can. Must not know regions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import IRType, Operation, Value
from tessera_lang.lower.schedule_to_lanes.buffers import Buffer
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile, tile_type
from tessera_lang.lower.schedule_to_lanes.state import Lowering
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import (
    destination,
    is_dead_after,
    sources_of,
    store_tile,
)
from tessera_lang.lower.schedule_to_lanes.tile_extents import carried_values
from tessera_lang.types.dtype import DType


def scalars_of(values: Sequence[Value]) -> list[Value]:
    return [v for v in values if not is_tile(v)]


def bind_scalars(s: Lowering, values: Sequence[Value], to: Sequence[Value]) -> None:
    s.values.update(zip(scalars_of(values), to, strict=True))


def hold(s: Lowering, values: Sequence[Value], buffers: Sequence[Buffer | None]) -> None:
    """From here on the buffers hold these tiles."""
    for value, buffer in zip(values, buffers, strict=True):
        if buffer is not None:
            s.stored[value], buffer.holder = buffer, value


def types_of_scalars(values: Sequence[Value]) -> list[tuple[str, IRType]]:
    return [(v.name, v.type) for v in scalars_of(values)]


def begin(s: Lowering, op: Operation) -> list[Buffer | None]:
    """The buffers of a loop's tiles, with what goes in first."""
    carried, initial = carried_values(op)
    buffers: list[Buffer | None] = []
    for number, value in enumerate(initial):
        if not is_tile(value):
            buffers.append(None)
            continue
        owner = carried[0][number]
        dtype = s.stored_dtype(owner)
        buffer = s.stored.get(value)
        taken = (
            buffer is not None
            and buffer not in buffers
            and buffer.key == (dtype, tile_type(owner).sizes)
            and is_dead_after(s, buffer, op, inside=False)
        )
        if not taken or buffer is None:
            reads = sources_of(s, value)
            for other in initial[number + 1 :]:  # what is still to be read stays as it is
                reads.update(dict.fromkeys(sources_of(s, other), False))
            reads.update({b: False for b in buffers if b is not None})
            buffer = destination(s, op, carried[-1][number], dtype, reads)
            store_tile(s, value, buffer, s.domains.at(owner, op))
        buffers.append(buffer)
    return buffers


def result_buffers(s: Lowering, op: Operation) -> list[Buffer | None]:
    """Buffers for the tiles that a branch gives; nothing is in them yet that anyone needs."""
    buffers: list[Buffer | None] = []
    for result in op.results:
        if not is_tile(result):
            buffers.append(None)
            continue
        dtype = s.stored_dtype(result)
        found = _handed_slot(s, op, result, dtype)
        if found is None or found in buffers:
            found = s.take(dtype, tile_type(result).sizes, result.name)
        buffers.append(found)
    return buffers


def _handed_slot(s: Lowering, op: Operation, result: Value, dtype: DType) -> Buffer | None:
    """The buffer of the construct around in which ``result`` will be handed over, if its content
    is not needed behind ``op`` (inside, it may be: what is written there looks after that)."""
    owner, number = s.source.place[op]
    last = owner.regions[number].terminator
    if last.name != "tile.yield" or not s.slots or s.slots[-1].operation is not owner:
        return None
    for value, buffer in zip(last.operands, s.slots[-1].buffers, strict=True):
        fits = buffer is not None and buffer.key == (dtype, tile_type(result).sizes)
        if value is result and fits and buffer is not None and is_dead_after(s, buffer, op):
            return buffer
    return None
