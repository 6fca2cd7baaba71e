"""Accesses that no walk over lanes can place: whether or where they happen depends on data.

Whoever looks for two lanes that surely meet need not follow lanes for these. What a loop carries
is taken to be known. Must not know what is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable

from tessera_lang.analysis.lanes.lane_rules import INTEGERS, UNARY
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import GROUP_IDS, LANE_IDS
from tessera_lang.record import dataclass, field

_FOLLOWED = frozenset(f"tile.{name}" for name in (*INTEGERS, *UNARY, "cmp", "cast", "not"))
_KNOWN = {"tile.constant", *LANE_IDS, *GROUP_IDS}


@dataclass(slots=True)
class _Walk:
    unknown: set[Value] = field(default_factory=set[Value])
    found: set[Operation] = field(default_factory=set[Operation])

    def region(self, region: Region, skipped: bool) -> None:
        for operation in region.operations:
            name = operation.name
            if name in BUFFER_AT:
                indices = operation.operands[BUFFER_AT[name] + 1 :]
                if skipped or not self.unknown.isdisjoint(indices):
                    self.found.add(operation)
                self.unknown.update(operation.results)
            elif operation.regions:
                self._control(operation, skipped)
            elif name == "tile.select":
                condition, a, b = operation.operands
                if condition in self.unknown or {a, b} <= self.unknown:
                    self.unknown.add(operation.result)
            elif name in _FOLLOWED:
                if not self.unknown.isdisjoint(operation.operands):
                    self.unknown.add(operation.result)
            elif name not in _KNOWN:
                self.unknown.update(operation.results)

    def _control(self, operation: Operation, skipped: bool) -> None:
        decides = {"tile.if": 1, "tile.for": 3}.get(operation.name, 0)
        open_ = not self.unknown.isdisjoint(operation.operands[:decides])
        for region in operation.regions:
            self.region(region, skipped or open_)
        if open_:
            self.unknown.update(operation.results)
        elif operation.name == "tile.if":
            ends = [r.terminator for r in operation.regions if r.terminator.name == "tile.yield"]
            for i, result in enumerate(operation.results):
                if all(end.operands[i] in self.unknown for end in ends):
                    self.unknown.add(result)


def untraced(kernel: Operation, known: Iterable[Value]) -> frozenset[Operation]:
    """The accesses of a kernel, with numbers for the arguments in ``known``."""
    (region,) = kernel.regions
    walk = _Walk(set(region.arguments) - set(known))
    walk.region(region, False)
    return frozenset(walk.found)
