"""Loop fusion: neighbouring nests with the same axes become one, where no two iterations then meet.

Owns which nests are looked at. ``independence.py`` judges the fused nest. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.opt.schedule.parallel.independence import verdicts
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import fused
from tessera_lang.opt.schedule.query.array_dependence import FOR, accesses_in
from tessera_lang.opt.schedule.query.def_use import arrays_of, definitions_of
from tessera_lang.record import replace


def fuse_loops(program: Program) -> Program:
    """The program whose nests at the top are fused as far as can be."""
    (kernel,) = program.operations
    made = _fuse(kernel)
    return program if made is kernel else replace(program, operations=(made,))


def _fuse(kernel: Operation) -> Operation:
    """Neighbouring nests with the same axes as one, where no two iterations then meet."""
    operations = list(kernel.regions[0].operations)
    i = 0
    while i < len(operations):
        j = next((j for j in range(i + 1, len(operations)) if operations[j].name == FOR), None)
        if operations[i].name != FOR or j is None:
            i += 1
            continue
        made = _fused_pair(kernel, operations, i, j)
        if made is None:
            i += 1
        else:
            operations = made
            i = next(k for k, o in enumerate(operations) if o.name == FOR and k >= i)
            region = Region(kernel.regions[0].arguments, tuple(operations))
            kernel = replace(kernel, regions=(region,))
    return kernel


def _fused_pair(
    kernel: Operation, operations: list[Operation], i: int, j: int
) -> list[Operation] | None:
    arrays, definitions = arrays_of(kernel), definitions_of(kernel)
    first, second, between = operations[i], operations[j], operations[i + 1 : j]
    if any(accesses_in(o, arrays) for o in between):
        return None
    if any(v in o.operands for o in between for v in first.results):
        return None
    made = fused(first, second, definitions)
    if made is None or not _writes(first, arrays) or not _writes(second, arrays):
        return None
    definitions = {**definitions, **definitions_of(made)}
    if not all(v.grid for v in verdicts(made, definitions, arrays)):
        return None
    return [*operations[:i], *between, made, *operations[j + 1 :]]


def _writes(o: Operation, arrays: Mapping[Value, Value]) -> bool:
    return any(a.writes for a in accesses_in(o, arrays))
