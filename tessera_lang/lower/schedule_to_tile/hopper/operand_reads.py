"""How the products of a role read their operands: what the schedule says of each.

Must not know buffers or barriers.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, BufferType, Operation, Value
from tessera_lang.opt.schedule.loops.pipeline_partition import is_rounding
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Dot, Facts
from tessera_lang.opt.schedule.query.unit_legality import SHARED, said_places


def first_operands(facts: Facts, place: str) -> set[Value]:
    """The loads of first operands that are read from a place."""
    return {
        d.a.load.operation.result for d in facts.dots
        if d.a.load is not None and places(d)[0] == place
    }  # fmt: skip


def places(dot: Dot) -> tuple[str, str]:
    """Where each operand is read; of products by lanes from the buffers."""
    return said_places(dot) if dot.operation.attributes.get("unit") == "wgmma" else (SHARED, SHARED)


def instruction(dot: Dot, left: Value) -> dict[str, Attribute]:
    """The attributes of a product: which of its operands lie the other way round."""
    turned = isinstance(left.type, BufferType) and dot.a.load is not None and dot.a.swapped
    precision = dot.operation.attributes["precision"]
    return {"transpose_a": turned, "transpose_b": dot.b.swapped, "precision": precision}


def refills(facts: Facts) -> dict[int, Operation]:
    """Operations that fill, for the next iteration, the registers a product of this one reads: the
    last that round a carried first operand; each with the end of its region."""
    out: dict[int, Operation] = {}
    for dot in facts.dots:
        loop = dot.inside[-1] if dot.inside else None
        if loop is None or loop.name != FOR or dot.a.value not in loop.regions[0].arguments:
            continue
        arguments, end = loop.regions[0].arguments, loop.regions[0].terminator
        place = arguments.index(dot.a.value) - (len(arguments) - len(end.operands))
        at = facts.definitions.get(end.operands[place])
        while at is not None and is_rounding(at):
            out[id(at)] = end
            at = facts.definitions.get(at.operands[0])
    return out
