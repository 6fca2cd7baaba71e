"""Scans along an axis: each line in order, by one lane.

The order is that of the elements: element i is the combination of 0 .. i (or i - 1); where it is
reversed, of those behind.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.schedule_to_lanes.def_use import tile_type
from tessera_lang.lower.schedule_to_lanes.element_loops import know, nest, phase
from tessera_lang.lower.schedule_to_lanes.elements import element
from tessera_lang.lower.schedule_to_lanes.reduction_steps import combined, identity
from tessera_lang.lower.schedule_to_lanes.state import Index, Lowering
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import destination, sources_of
from tessera_lang.types.dtype import INDEX


def scan(s: Lowering, op: Operation) -> None:
    value, kind, axis = op.operands[0], str(op.attributes["kind"]), op.integer("axis")
    sizes, dtype = tile_type(value).sizes, tile_type(value).dtype
    extents = s.domains.at(value, op)
    reads = sources_of(s, value)
    buffer = destination(s, op, op.result, s.stored_dtype(op.result), reads)
    inclusive = bool(op.attributes["inclusive"])
    reverse = bool(op.attributes.get("reverse"))

    def line(outer: Index) -> None:
        upper = s.bound(extents[axis])
        with s.b.region(("i", INDEX), ("total", dtype)) as body, s.inside():
            at, total = body.arguments
            if reverse:
                last = s.b.binary("sub", upper, s.index(1))
                at = s.b.binary("sub", last, at)
            know(s, at, sizes[axis], extents[axis])
            index = (*outer[:axis], at, *outer[axis:])
            after = combined(s, kind, total, element(s, value, index))
            given: Value = after if inclusive else total
            s.b.store(s.b.cast(given, buffer.dtype), buffer.value, index, "proved")
            s.b.yield_(after)
        first = identity(s, kind, dtype)
        s.b.for_(s.index(0), upper, s.index(1), (first,), body.region)

    others = [i for i in range(len(sizes)) if i != axis]
    kept, there = [sizes[i] for i in others], [extents[i] for i in others]
    phase(s, [buffer.value], lambda: nest(s, kept, there, line))
    s.stored[op.result] = buffer
