"""Common subexpression elimination: what is computed or read alike is computed or read once.

``(p - t) * (p - t)`` names both arrays twice. Of tiles that holds within one block: one that is
carried into a loop, or over one, would take registers all that time. A read is the same until its
array is written. Of kernels with products only conversions are merged: one load may feed two
operands, which lie in shared memory in two ways. Owns the walk. Must not know a machine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import ARRAY_READS, ARRAY_WRITES, is_pure
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.array_dependence import FOR, accesses_in
from tessera_lang.opt.schedule.query.def_use import arrays_of
from tessera_lang.record import dataclass, field, replace

_DOT = PREFIX + "dot"


def merge_equal(program: Program) -> Program:
    """``program`` with one operation in place of several that give the same; itself where there
    are none."""
    (kernel,) = program.operations
    work = _Merging(arrays_of(kernel), kernel.holds(_DOT))
    region = work.region(kernel.regions[0], {})
    if not work.to:
        return program
    return replace(program, operations=(replace(kernel, regions=(region,)),))


@dataclass(slots=True, eq=False)
class _Merging:
    """``products``: only conversions are merged; ``to``: the value that stands for another;
    ``writes``: how often an array was written in front of where the walk is."""

    arrays: Mapping[Value, Value]
    products: bool
    to: dict[Value, Value] = field(default_factory=dict[Value, Value])
    writes: dict[Value, int] = field(default_factory=dict[Value, int])

    def region(self, region: Region, around: Mapping[Hashable, Operation]) -> Region:
        """``around``: the operations on numbers outside of a region, by what they do."""
        known = dict(around)
        kept: list[Operation] = []
        for o in region.operations:
            operands = tuple(self.to.get(v, v) for v in o.operands)
            if any(a is not b for a, b in zip(operands, o.operands, strict=True)):
                o = replace(o, operands=operands)
            key = self._key(o)
            found = None if key is None else known.setdefault(key, o)
            if found is not None and found is not o and len(found.results) == len(o.results):
                self.to.update(zip(o.results, found.results, strict=True))
                continue
            kept.append(self._inside(o, known) if o.regions else o)
            if o.name in ARRAY_WRITES:
                self._written(o)
        return Region(region.arguments, tuple(kept))

    def _inside(self, o: Operation, known: Mapping[Hashable, Operation]) -> Operation:
        numbers = {k: x for k, x in known.items() if _is_number(x)}
        self._written(o)  # the iteration before may have written
        regions = tuple(self.region(r, numbers) for r in o.regions)
        self._written(o)
        return replace(o, regions=regions)

    def _written(self, o: Operation) -> None:
        for access in accesses_in(o, self.arrays):
            if access.writes:
                self.writes[access.array] = self.writes.get(access.array, 0) + 1

    def _key(self, o: Operation) -> Hashable | None:
        """What an operation gives, in terms of what it is made of; None where it does more."""
        if self.products and o.name != "tile.cast":
            return None
        if o.name == FOR and o.results:
            return self._loop(o)
        reads = o.name in ARRAY_READS
        if o.regions or len(o.results) != 1 or not (reads or is_pure(o)):
            return None
        attributes = tuple(sorted((n, repr(a)) for n, a in o.attributes.items()))
        version = 0
        if reads:
            version = self.writes.get(self.arrays.get(o.operands[0], o.operands[0]), 0)
        return o.name, o.result.type, attributes, version, *o.operands

    def _loop(self, loop: Operation) -> Hashable | None:
        """The same of a loop that writes nothing: its operations, whose values have numbers."""
        numbers: dict[Value, int] = {}

        def number(v: Value) -> int | Value:
            return numbers.get(v, v)

        def of(o: Operation) -> Hashable | None:
            inner: list[Hashable] = []
            known = o.name in ARRAY_READS or o.name == "tile.yield" or o.name == FOR or is_pure(o)
            if not known or (o.regions and o.name != FOR):
                return None
            operands = tuple(number(self.to.get(v, v)) for v in o.operands)
            for region in o.regions:
                for v in region.arguments:
                    numbers[v] = len(numbers)
                found = [of(x) for x in region.operations]
                if any(x is None for x in found):
                    return None
                inner.append((tuple(v.type for v in region.arguments), tuple(found)))
            for v in o.results:
                numbers[v] = len(numbers)
            version = 0
            if o.name in ARRAY_READS:
                version = self.writes.get(self.arrays.get(o.operands[0], o.operands[0]), 0)
            attributes = tuple(sorted((n, repr(a)) for n, a in o.attributes.items()))
            types = tuple(v.type for v in o.results)
            return o.name, types, attributes, version, operands, tuple(inner)

        return of(loop)


def _is_number(o: Operation) -> bool:
    return not o.regions and not isinstance(o.result.type, TileType)
