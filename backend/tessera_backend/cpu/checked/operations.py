"""Which operations of a kernel are looked at. Must not know LLVM."""

from __future__ import annotations

from collections.abc import Mapping

from tessera_backend.cpu.checked.roots import Root
from tessera_backend.cpu.interchange import ARRAY_OPERAND
from tessera_backend.llvm.emitter import scalar_type
from tessera_lang.analysis.ranges import Ranges
from tessera_lang.ir.core import Operation, Value
from tessera_lang.types.dtype import INDEX, integer_range

EXACT = {"tile.add": "sadd", "tile.sub": "ssub", "tile.mul": "smul"}
"""What may wrap, with the name of LLVM's form that tells."""


def seen(kernel: Operation, roots: Mapping[Value, Root]) -> set[Operation]:
    """Accesses of memory that has a shadow."""
    views = {o.result: o.operands[0] for o in kernel.walk() if o.name == "tile.view"}
    found: set[Operation] = set()
    for o in kernel.walk():
        if o.name in ARRAY_OPERAND:
            array = o.operands[ARRAY_OPERAND[o.name]]
            if views.get(array, array) in roots:
                found.add(o)
    return found


def unproved(kernel: Operation, known: Ranges) -> set[Operation]:
    """Sums and products of indices that may leave their type: of type index, and what an access
    takes as an index, if it is signed. Unsigned numbers are meant to wrap."""
    found, used = set[Operation](), _made_into_indices(kernel)
    for o in kernel.walk():
        if o.name in EXACT and (o.result.type == INDEX or o.result in used):
            t = scalar_type(o.result)
            if t.is_integer and t.is_signed and known.interval(o.result) == integer_range(t):
                found.add(o)
    return found


def _made_into_indices(kernel: Operation) -> set[Value]:
    """Indices of accesses, and what they are sums, products and casts of."""
    made = {r: o for o in kernel.walk() for r in o.results if o.name in (*EXACT, "tile.cast")}
    left = [
        v for o in kernel.walk() if o.name in ARRAY_OPERAND
        for v in o.operands[ARRAY_OPERAND[o.name] + 1 :]
    ]  # fmt: skip
    found: set[Value] = set()
    while left:
        value = left.pop()
        if value not in found:
            found.add(value)
            left += made[value].operands if value in made else ()
    return found
