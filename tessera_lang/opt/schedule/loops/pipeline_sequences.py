"""Loops that follow each other as one software pipeline.

Where a loop goes on with what the loop before it gave, the last late part of the first may run
beside the first iteration of the second, if the late part of the second does what that of the
first does, and their copies go through the same rings. Owns which loops these are. Must not know
how they are rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.opt.schedule.loops.pipeline_partition import CHANGES, Divided
from tessera_lang.opt.schedule.query.copy_rules import access_of
from tessera_lang.opt.schedule.query.kernel_facts import FOR, LOAD, Facts
from tessera_lang.opt.schedule.query.staging_rings import rings_of
from tessera_lang.record import replace
from tessera_lang.types.dtype import INDEX


def sequences(found: Sequence[Divided], facts: Facts) -> list[tuple[Divided, ...]]:
    """The loops, those together that can be one pipeline, in order. What crosses from the early
    to the late part stands in the same order in all of them."""
    parts = {id(p.loop.results): p for p in found}
    out: list[tuple[Divided, ...]] = []
    for region in (r for o in facts.kernel.walk() for r in o.regions):
        chain: list[Divided] = []
        between: list[Operation] = []
        for operation in region.operations:
            here = parts.get(id(operation.results)) if operation.name == FOR else None
            if here is None:
                between.append(operation)
                continue
            if chain and not (all(map(_stays, between)) and _goes_on(chain[-1], here, facts)):
                out.append(_in_one_order(chain, facts))
                chain = []
            chain.append(here)
            between = []
        if chain:
            out.append(_in_one_order(chain, facts))
    return out


def _stays(operation: Operation) -> bool:
    """Whether a loop that only reads may move behind an operation."""
    return not operation.regions and operation.name not in CHANGES


def _goes_on(first: Divided, second: Divided, facts: Facts) -> bool:
    """Whether the second loop begins with all that the first gives, which nobody else reads, and
    its late part may do the last one of the first."""
    given = first.loop.results
    if second.loop.operands[3:] != given or first.loop.operands[2] is not second.loop.operands[2]:
        return False
    if any(u is not second.loop for v in given for u in facts.users.get(v, ())):
        return False
    if _rings(first, facts) != _rings(second, facts):  # they may lie in the same memory
        return False
    return _matched(first, second, facts) is not None


def _rings(parts: Divided, facts: Facts) -> set[int]:
    """The rings that the loop's copies go through."""
    here = {id(o) for o in (*parts.early, *parts.late)}
    rings = enumerate(rings_of(facts))
    return {i for i, ring in rings if any(id(x.operation) in here for x in ring.everywhere)}


def _in_one_order(chain: Sequence[Divided], facts: Facts) -> tuple[Divided, ...]:
    """The loops of a sequence; what crosses is in the order of the last."""
    out = [chain[-1]]
    for parts in reversed(chain[:-1]):
        same = _matched(parts, out[0], facts)
        assert same is not None
        back = {b: a for a, b in same.items()}
        out.insert(0, replace(parts, crossing=tuple(back[v] for v in out[0].crossing)))
    return tuple(out)


def _matched(first: Divided, second: Divided, facts: Facts) -> dict[Value, Value] | None:
    """What crosses in the first loop -> what crosses in the second, where both late parts do the
    same; None where they do not. Numbers may differ in pieces of one loop of which the second is
    general: those of the second are then right in both."""
    if first.late_carried != second.late_carried or len(first.late) != len(second.late):
        return None
    a, b = first.loop.attributes, second.loop.attributes
    is_general = bool(b.get("general")) and a.get("origin", -1) == b.get("origin", -2)
    matching = _Matching(first, second, facts, is_general)
    ends = (p.loop.regions[0].terminator.operands for p in (first, second))
    if not all(map(matching.operation, first.late, second.late)):
        return None
    for x, y, late in zip(*ends, first.late_carried, strict=True):
        if late and not matching.value(x, y):
            return None
    crossing = {x: y for x, y in matching.same.items() if x in first.crossing}
    if any(not isinstance(v.type, TileType) for v in (*first.crossing, *second.crossing)):
        return None
    complete = len(crossing) == len(first.crossing) == len(second.crossing)
    return crossing if complete and set(crossing.values()) == set(second.crossing) else None


class _Matching:
    """Two late parts side by side; ``same`` says which values are one."""

    def __init__(self, first: Divided, second: Divided, facts: Facts, is_general: bool) -> None:
        self.first, self.second, self.is_general = first, second, is_general
        self.same: dict[Value, Value] = {first.variable: second.variable}
        self.same.update(zip(first.carried, second.carried, strict=True))
        self.facts = facts
        self.made: Mapping[Value, Operation] = facts.definitions
        self.here = {v for p in (first, second) for o in p.both for v in o.results}

    def operation(self, x: Operation, y: Operation) -> bool:
        """Whether two operations do the same; their results are then the same."""
        alike = (
            x.name == y.name and x.attributes == y.attributes and not x.regions and not y.regions
            and len(x.operands) == len(y.operands)
            and [v.type for v in x.results] == [v.type for v in y.results]
        )  # fmt: skip
        read = [self._extents(o) if o.name == LOAD else o.operands for o in (x, y)]
        if not alike or not all(map(self.value, *read)):
            return False
        self.same.update(zip(x.results, y.results, strict=True))
        return True

    def value(self, x: Value, y: Value) -> bool:
        if x in self.same:
            return self.same[x] is y
        if x.type != y.type:
            return False
        if x in self.first.crossing or y in self.second.crossing:
            if x not in self.first.crossing or y not in self.second.crossing:
                return False
            self.same[x] = y
            return True
        if x is y or (self.is_general and x.type == INDEX):
            return True
        if x not in self.here or y not in self.here:
            return self._constants(x, y)
        return self.operation(self.made[x], self.made[y])

    def _extents(self, o: Operation) -> list[Value]:
        """The operands of a load, its extents without a limit of 0 from below: of fewer elements
        than none there is none."""
        count = len(access_of(o).extents)
        return [*o.operands[:-count], *map(self._unlimited, o.operands[-count:])]

    def _unlimited(self, value: Value) -> Value:
        made = self.made.get(value)
        if made is None or made.name != "tile.max":
            return value
        given = [v for v in made.operands if self.facts.constant(v) != 0]
        return given[0] if len(given) == 1 else value

    def _constants(self, x: Value, y: Value) -> bool:
        a, b = self.made.get(x), self.made.get(y)
        if a is None or b is None or a.name != "tile.constant" or b.name != "tile.constant":
            return False
        return a.attributes == b.attributes
