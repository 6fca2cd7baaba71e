"""What a value is computed from: the part of a kernel that has to run for it.

Owns the backward slice through loops and conditions. Must not know what it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.opt.schedule.query.kernel_facts import FOR, Facts
from tessera_lang.record import dataclass, field

Owners = dict[Value, tuple[Operation, int]]


@dataclass(slots=True, eq=False)
class Slice:
    """``operations`` that are run (by identity), and ``values`` whose computation is needed."""

    operations: set[int] = field(default_factory=set[int])
    values: set[Value] = field(default_factory=set[Value])
    reason: str = ""

    def has(self, operation: Operation) -> bool:
        return id(operation) in self.operations


def completed(out: Slice, facts: Facts) -> Slice:
    """A slice with all that its values need, to a fixed point."""
    owners, before = owners_of(facts), -1
    while before != len(out.values) + len(out.operations):
        before = len(out.values) + len(out.operations)
        for value in list(out.values):
            _define(value, owners, facts, out)
    return out


def need_control(around: Operation, out: Slice) -> None:
    """What decides whether, and how often, the inside of an operation runs."""
    out.operations.add(id(around))
    if around.name == FOR:
        out.values.update(around.operands[: 3 * len(around.strings("axes"))])
    elif around.name == "tile.for":
        out.values.update(around.operands[:3])
    elif around.name == "tile.if":
        out.values.add(around.operands[0])
    elif around.name == "tile.while":
        out.values.add(around.regions[0].terminator.operands[0])


def owners_of(facts: Facts) -> Owners:
    """The loop that carries an argument of a region, with its number among the carried."""
    out: Owners = {}
    for operation, _ in facts.loops:
        for region in operation.regions:
            first = _first_carried(operation)
            for i, argument in enumerate(region.arguments):
                out[argument] = (operation, i - first)
    return out


def _first_carried(loop: Operation) -> int:
    """Where the carried arguments of a loop's region begin: behind its variables."""
    if loop.name == FOR:
        return len(loop.strings("axes"))
    return 1 if loop.name == "tile.for" else 0


def _define(value: Value, owners: Owners, facts: Facts, out: Slice) -> None:
    owner = owners.get(value)
    if owner is not None:
        loop, number = owner
        if number >= 0:
            _need_carried(loop, number, out)
        return
    operation = facts.definitions.get(value)
    if operation is None:
        return
    out.operations.add(id(operation))
    if operation.name in LOOPS:
        _need_carried(operation, operation.results.index(value), out)
    elif operation.name == "tile.if":
        need_control(operation, out)
        place = operation.results.index(value)
        out.values.update(r.terminator.operands[place] for r in operation.regions
                          if r.terminator.name == "tile.yield")  # fmt: skip
    else:
        out.values.update(operation.operands)


def _need_carried(loop: Operation, number: int, out: Slice) -> None:
    need_control(loop, out)
    carried = len(loop.results)
    out.values.add(loop.operands[len(loop.operands) - carried + number])
    for region in loop.regions:
        end = region.terminator
        skip = 1 if end.name == "tile.condition" else 0
        out.values.add(end.operands[skip + number])
        out.values.add(region.arguments[_first_carried(loop) + number])
    out.values.add(loop.results[number])


def depends_on(values: Sequence[Value], source: Value, facts: Facts) -> bool:
    """Whether any of these values is computed from ``source``."""
    owners = owners_of(facts)
    seen: set[Value] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if value is source:
            return True
        if value in seen:
            continue
        seen.add(value)
        stack.extend(_sources(value, owners, facts))
    return False


def _sources(value: Value, owners: Owners, facts: Facts) -> Iterator[Value]:
    part = Slice()
    _define(value, owners, facts, part)
    yield from part.values
    owner = owners.get(value)
    if owner is not None and owner[1] < 0:
        need_control(owner[0], part)
        yield from part.values
