"""The part of a region that a slice names, as a region of its own.

Owns the cut: operations outside the slice go, and so do values that loops and conditions carry
for them. What is left is Schedule IR without computed tiles. Must not know why the slice is
what it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.opt.schedule.query.backward_slices import Slice
from tessera_lang.opt.schedule.query.kernel_facts import FOR
from tessera_lang.record import replace


def pruned(region: Region, part: Slice, arguments: Sequence[Value]) -> Region:
    """``region`` with these arguments; its terminator hands over the last of what it did."""
    end = region.terminator
    kept = len(arguments)
    operations = _operations(region.operations[:-1], part)
    handed = end.operands[len(end.operands) - kept :] if kept else ()
    return Region(tuple(arguments), (*operations, replace(end, operands=handed)))


def _operations(operations: Sequence[Operation], part: Slice) -> tuple[Operation, ...]:
    return tuple(_operation(o, part) if o.regions else o for o in operations if part.has(o))


def _operation(operation: Operation, part: Slice) -> Operation:
    count = len(operation.results)
    fixed = len(operation.operands) - count if operation.name != "tile.if" else 0
    first = _variables(operation)
    kept = [i for i in range(count) if _is_kept(operation, i, first, part)]
    operands = operation.operands
    if operation.name != "tile.if":
        operands = (*operands[:fixed], *(operands[fixed + i] for i in kept))
    return replace(
        operation, operands=operands, results=tuple(operation.results[i] for i in kept),
        regions=tuple(_region(r, operation, kept, first, part) for r in operation.regions),
    )  # fmt: skip


def _is_kept(operation: Operation, i: int, first: int, part: Slice) -> bool:
    if operation.results[i] in part.values:
        return True
    if operation.name == "tile.if":
        return False
    return any(r.arguments[first + i] in part.values for r in operation.regions)


def _region(
    region: Region, owner: Operation, kept: Sequence[int], first: int, part: Slice
) -> Region:
    arguments = region.arguments
    if owner.name != "tile.if":
        arguments = (*arguments[:first], *(arguments[first + i] for i in kept))
    end = region.terminator
    skip = 1 if end.name == "tile.condition" else 0
    handed = (*end.operands[:skip], *(end.operands[skip + i] for i in kept))
    operations = _operations(region.operations[:-1], part)
    return Region(arguments, (*operations, replace(end, operands=handed)))


def _variables(operation: Operation) -> int:
    """How many arguments of a region come before what is carried."""
    if operation.name == FOR:
        return len(operation.strings("axes"))
    return 1 if operation.name == "tile.for" else 0
