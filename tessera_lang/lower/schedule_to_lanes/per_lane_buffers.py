"""Buffers of a lane in the place of buffers of its group, where each lane works by itself.

Owns the rewriting. Must not know what a buffer is for.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.ir.definitions import ELEMENT_ACCESSES
from tessera_lang.record import replace
from tessera_lang.types.dtype import INDEX

_SHARED = "tile.shared.alloc"


def per_lane_buffers(body: Region, lanes: int) -> Region:
    """The body of a kernel with an axis of ``lanes`` more on every shared buffer, which each lane
    goes into at its own place."""
    to: dict[Value, Value] = {}
    for operation in body.operations:
        if operation.name == _SHARED:
            (old,) = operation.results
            assert isinstance(old.type, BufferType)
            to[old] = Value(BufferType(old.type.dtype, (*old.type.shape, lanes), "local"), old.name)
    if not to:
        return body
    lane = Value(INDEX, "lane")
    here = Operation("tile.lane_linear", (), (lane,), {})

    def moved(operation: Operation) -> Operation:
        if operation.name == _SHARED:
            made = to[operation.results[0]]
            return replace(operation, name="tile.local.alloc", results=(made,))
        regions = tuple(_through(r, moved) for r in operation.regions)
        if not any(v in to for v in operation.operands):
            return replace(operation, regions=regions) if regions else operation
        if operation.name not in ELEMENT_ACCESSES:
            raise ValueError(f"{operation.name} of a buffer that each lane has of its own")
        operands = (*(to.get(v, v) for v in operation.operands), lane)
        return replace(operation, operands=operands)

    found = [moved(o) for o in body.operations]
    first = next(i for i, o in enumerate(found) if o.name != "tile.local.alloc")
    return replace(body, operations=(*found[:first], here, *found[first:]))


def _through(region: Region, moved: Callable[[Operation], Operation]) -> Region:
    return replace(region, operations=tuple([moved(o) for o in region.operations]))
