"""How the products of a role read their operands: what the schedule says of each.

Must not know buffers or barriers.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, BufferType, Value
from tessera_lang.opt.schedule.query.kernel_facts import Dot, Facts
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
