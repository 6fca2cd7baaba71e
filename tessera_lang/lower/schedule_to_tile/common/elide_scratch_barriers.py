"""Reductions that need no barrier before they write their scratch.

A reduction across warps writes what each warp has, meets a barrier, and reads. Before it writes,
all lanes must have read what lay in the scratch before; where a barrier stands between anyway, no
other is needed. Owns the search for it. Must not know what is reduced.
"""

from __future__ import annotations

from tessera_lang.ir.core import BufferType, Operation, Program, Region, Value
from tessera_lang.lower.schedule_to_tile.common.shared_memory_reuse import has_roles
from tessera_lang.record import dataclass, field, replace

_REDUCE, _BARRIER = "tile.reduce_tile", "tile.barrier"

Read = frozenset[Value]
"""Scratch buffers that some lane may still read: no barrier stands behind the last reads."""


def elide_barriers(program: Program) -> Program:
    """The program in which reductions say whether their scratch is ``fresh``; itself where warps
    have roles, which share no scratch."""
    (kernel,) = program.operations
    if has_roles(kernel):
        return program
    made = _with_fresh(kernel)
    return program if made is kernel else replace(program, operations=(made,))


def _with_fresh(kernel: Operation) -> Operation:
    scratch = frozenset(v for o in kernel.walk() if o.name == _REDUCE for v in o.operands[1:])
    if not scratch:
        return kernel
    search = _Search(scratch)
    search.region(kernel.regions[0], frozenset())
    return _marked(kernel, search.fresh)


def _marked(operation: Operation, fresh: dict[Operation, bool]) -> Operation:
    regions = tuple(
        replace(r, operations=tuple(_marked(o, fresh) for o in r.operations))
        for r in operation.regions
    )
    if any(a is not b for r, s in zip(regions, operation.regions, strict=True)
           for a, b in zip(r.operations, s.operations, strict=True)):  # fmt: skip
        operation = replace(operation, regions=regions)
    if fresh.get(operation):
        operation = replace(operation, attributes={**operation.attributes, "fresh": True})
    return operation


@dataclass(slots=True, eq=False)
class _Search:
    """Walks in order; a reduction is fresh if it was on every way that leads to it."""

    scratch: Read
    fresh: dict[Operation, bool] = field(default_factory=dict[Operation, bool])

    def region(self, region: Region, read: Read) -> Read:
        for operation in region.operations:
            read = self._behind(operation, read)
        return read

    def _behind(self, operation: Operation, read: Read) -> Read:
        used = frozenset(v for v in operation.operands if isinstance(v.type, BufferType))
        if operation.name == _BARRIER:
            return frozenset()
        if operation.name == _REDUCE and used:
            self.fresh[operation] = self.fresh.get(operation, True) and not used & read
            return used
        if operation.name == "tile.if":
            return frozenset[Value]().union(*(self.region(r, read) for r in operation.regions))
        if operation.name == "tile.for":
            (region,) = operation.regions
            read |= self.region(region, read)
            return read | self.region(region, read)
        if operation.regions:
            for region in operation.regions:
                self.region(region, self.scratch)
            return self.scratch
        return read | (used & self.scratch)
