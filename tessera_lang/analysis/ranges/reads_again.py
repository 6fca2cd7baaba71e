"""Reads of one element that are taken to give one number.

Code reads as often as the program says, so no pass may build on it: only what is told of a program
does. Must not know what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from tessera_lang.analysis.ranges.state import Reads
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import ATOMICS, ELEMENT_ACCESSES, LOOPS, WRITES, effect_of
from tessera_lang.types.dtype import DType

_SAME: object = None
_LOADS = (ELEMENT_ACCESSES | ATOMICS) - WRITES


def reads_again(kernel: Operation, reads: Reads) -> dict[Operation, object]:
    """A mark for each read of an integer: reads of an element with one mark give one number. With
    ``"steady"``, of an array that the kernel changes, those have one mark between which no lane can
    change it, as nothing that lanes meet at stands there, and no store of the lane."""
    loads = [o for o in kernel.walk() if o.name in _LOADS and _gives_integer(o)]
    if reads == "apart" or len({o.operands[0] for o in loads}) == len(loads):
        return {}
    if reads == "alike":
        return dict.fromkeys(loads, _SAME)
    roots = {o.result: o.operands[0] for o in kernel.walk() if o.name == "tile.view"}
    found: dict[Operation, object] = {}
    for root in dict.fromkeys(roots.get(o.operands[0], o.operands[0]) for o in loads):
        own = [o for o in loads if roots.get(o.operands[0], o.operands[0]) is root]
        if not any(_writes(o, root, roots) for o in kernel.walk()):
            found |= dict.fromkeys(own, _SAME)
            continue
        time: Mapping[Operation, int] = _times(kernel, root, roots)
        found |= {o: o if o.name in ATOMICS else time[o] for o in own}
    return found


def _writes(operation: Operation, root: Value, roots: Mapping[Value, Value]) -> bool:
    written = operation.name in WRITES
    return written and any(roots.get(v, v) is root for v in operation.operands)


def _times(kernel: Operation, root: Value, roots: Mapping[Value, Value]) -> dict[Operation, int]:
    """Of each operation: between two of one time nothing can change the array."""

    def changes(operation: Operation) -> bool:
        sync = effect_of(operation) == "sync" or operation.name in ATOMICS
        return sync or _writes(operation, root, roots)

    found: dict[Operation, int] = {}
    moments = count()

    def walk(region: Region, time: int) -> int:
        for o in region.operations:
            within = bool(o.regions) and any(map(changes, o.walk()))
            if changes(o) or (within and o.name in LOOPS):
                time = next(moments)
            found[o] = time
            for inner in o.regions:
                time = walk(inner, time)
            if within:
                time = next(moments)
        return time

    for region in kernel.regions:
        walk(region, next(moments))
    return found


def _gives_integer(operation: Operation) -> bool:
    kind = operation.result.type
    return isinstance(kind, DType) and kind.is_integer
