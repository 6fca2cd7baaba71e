"""Loop-invariant code motion: numbers, and reads of arrays that the loop does not write.

Owns the walk. Must not know which loops are large: a tile that is read once is held longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import (
    ARRAY_READS,
    PERMUTES,
    is_number,
)
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.array_dependence import FOR, access_of
from tessera_lang.opt.schedule.query.def_use import arrays_of
from tessera_lang.record import replace

_MOVES = {"tile.cast", PREFIX + "expand", *PERMUTES}


def hoist(program: Program) -> Program:
    """``program`` with what does not change in a loop in front of it; the grid is no loop."""
    (kernel,) = program.operations
    arrays = arrays_of(kernel)
    region = kernel.regions[0]
    operations = _block(region.operations, arrays)
    if all(a is b for a, b in zip(operations, region.operations, strict=False)) and len(
        operations
    ) == len(region.operations):
        return program
    made = replace(kernel, regions=(Region(region.arguments, tuple(operations)),))
    return replace(program, operations=(made,))


def _block(operations: Sequence[Operation], arrays: Mapping[Value, Value]) -> list[Operation]:
    out: list[Operation] = []
    for o in operations:
        if not o.regions:
            out.append(o)
            continue
        regions = [Region(r.arguments, tuple(_block(r.operations, arrays))) for r in o.regions]
        same = all(
            len(a.operations) == len(b.operations)
            and all(x is y for x, y in zip(a.operations, b.operations, strict=True))
            for a, b in zip(regions, o.regions, strict=True)
        )
        made = o if same else replace(o, regions=tuple(regions))
        if o.name == FOR and "grid" not in cast("tuple[str, ...]", o.attributes["mapping"]):
            front, made = _out_of(made, arrays)
            out.extend(front)
        out.append(made)
    return out


def _out_of(loop: Operation, arrays: Mapping[Value, Value]) -> tuple[list[Operation], Operation]:
    """What can stand in front of a loop, and the loop without it."""
    (region,) = loop.regions
    written: list[Value] = []
    for inner in loop.walk():
        access = access_of(inner, arrays)
        if access is not None and access.writes:
            written.append(access.array)
    changing: set[Value] = set(region.arguments)
    moved: set[Value] = set()
    front: list[Operation] = []
    kept: list[Operation] = []
    for o in region.operations:
        fixed = not any(v in changing for v in o.operands) and not o.regions
        if fixed and _movable(o, moved, written, arrays):
            front.append(o)
            moved.update(o.results)
        else:
            kept.append(o)
            changing.update(o.results)
    if not front:
        return [], loop
    return front, replace(loop, regions=(Region(region.arguments, tuple(kept)),))


def _movable(
    o: Operation, moved: set[Value], written: Sequence[Value], arrays: Mapping[Value, Value]
) -> bool:
    if o.name in ARRAY_READS:
        array = arrays.get(o.operands[0], o.operands[0])
        return not any(array is w for w in written)
    if o.name in _MOVES and o.operands[0] in moved:
        return True
    return is_number(o)
