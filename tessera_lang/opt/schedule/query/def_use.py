"""Definitions and uses of the values of a kernel, or of an operation with all that it holds.

Owns the questions that need no more than that; ``kernel_facts`` answers those on loops, loads
and products.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value


def definitions_of(operation: Operation) -> dict[Value, Operation]:
    """What defines a value; arguments of regions are not in it."""
    return {v: o for o in operation.walk() for v in o.results}


def users_of(operation: Operation) -> dict[Value, list[Operation]]:
    """What reads a value, once for each time."""
    found: dict[Value, list[Operation]] = {}
    for o in operation.walk():
        for v in o.operands:
            found.setdefault(v, []).append(o)
    return found


def values_inside(operation: Operation) -> frozenset[Value]:
    """What regions of an operation define: results, and arguments of the regions."""
    found: set[Value] = set()
    for o in operation.walk():
        if o is not operation:
            found.update(o.results)
        found.update(v for r in o.regions for v in r.arguments)
    return frozenset(found)


def arrays_of(kernel: Operation) -> dict[Value, Value]:
    """The pointer of each view."""
    return {o.result: o.operands[0] for o in kernel.nested("tile.view")}
