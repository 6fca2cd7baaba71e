"""Which operations of a kernel are looked at. Must not know LLVM."""

from __future__ import annotations

from collections.abc import Mapping

from tessera_backend.cpu.checked.shadow_elision import Root
from tessera_backend.cpu.group_plan import carried_owners
from tessera_backend.cpu.interchange import ARRAY_OPERAND
from tessera_backend.cpu.uniform_values import handed_values
from tessera_backend.llvm.emitter import scalar_type
from tessera_lang.analysis.ranges.integer_ranges import Ranges
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import BLOCKS, LOOPS
from tessera_lang.types.dtype import integer_range

EXACT = {"tile.add": "sadd", "tile.sub": "ssub", "tile.mul": "smul"}
"""What may wrap, with the name of LLVM's form that tells."""
_THROUGH = (*EXACT, "tile.neg", "tile.min", "tile.max", "tile.select", "tile.cast")


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
    """Sums and products that become an index of an access and may leave their type, if it is
    signed: unsigned numbers are meant to wrap."""
    used = _made_into_indices(kernel)
    return {
        o for o in kernel.walk()
        if o.name in EXACT and o.result in used
        and (t := scalar_type(o.result)).is_integer and t.is_signed
        and known.interval(o.result) == integer_range(t)
    }  # fmt: skip


def _made_into_indices(kernel: Operation) -> set[Value]:
    """Indices of accesses, and the numbers that they are sums, products and choices of."""
    sources = _sources(kernel)
    left = [
        v for o in kernel.walk() if o.name in ARRAY_OPERAND
        for v in o.operands[ARRAY_OPERAND[o.name] + 1 :]
    ]  # fmt: skip
    found: set[Value] = set()
    while left:
        value = left.pop()
        if value not in found:
            found.add(value)
            left += sources.get(value, ())
    return found


def _sources(kernel: Operation) -> dict[Value, list[Value]]:
    """What numbers are made of, where all of it counts in full; and what loops hand on."""
    found: dict[Value, list[Value]] = {}
    for o in kernel.walk():
        if o.name in _THROUGH:
            found[o.result] = list(o.operands)
        elif o.name in BLOCKS | LOOPS:
            _handed(found, o)
    return found


def _handed(found: dict[Value, list[Value]], o: Operation) -> None:
    onward, final = handed_values(o)
    begin = {"tile.for": o.operands[3:], "tile.while": o.operands}.get(o.name, ())
    for n, owner in enumerate(carried_owners(o)):
        found[owner] = [s[n] for s in onward]
        if begin:
            found[owner].append(begin[n])
            found[o.results[n]] = [owner, *(s[n] for s in (*onward, *final))]
        if o.name == "tile.while":
            found[o.regions[1].arguments[n]] = [owner, *(s[n] for s in onward)]
    if o.name == "tile.for":
        found[o.regions[0].arguments[0]] = list(o.operands[:3])
