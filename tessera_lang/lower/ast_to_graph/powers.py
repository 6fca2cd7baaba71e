"""Powers by numbers that are known.

Owns what products and roots they are. Must not know a world.
"""

from __future__ import annotations

from tessera_lang.ir.core import Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.sema.operators import MOST_POWER
from tessera_lang.target.host_world import WorldFault


def known_power(builder: GraphBuilder, value: Value, exponent: float) -> Value | None:
    """A power of integers, and a square or a root of floats, as others make them; None for the
    other powers of floats."""
    dtype = value.tensor_type.dtype
    if dtype.is_float:
        if exponent == 0.5:
            return builder.op("sqrt", value)
        return builder.op("mul", value, value) if exponent == 2 else None
    if isinstance(exponent, float):
        return None
    if not 0 <= exponent <= MOST_POWER:
        raise WorldFault(f"`**` of integers takes an exponent from 0 to {MOST_POWER}",
                         code="T0209")  # fmt: skip
    found = builder.like(value, 1)
    for _ in range(exponent):
        found = builder.mul(found, value)
    return found
