"""The part of a kernel that the staged loads need: what the moving role runs.

Owns the backward slice from the starts and the surroundings of the staged loads, and the
reasons why it cannot run ahead of the rest. The slice is a set of operations; the lowering
walks the body with it. Must not know roles or barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.opt.schedule.facts import FOR, LOAD, Facts, numbers_or_names
from tessera_lang.opt.schedule.rings import is_staged
from tessera_lang.record import dataclass, field

_EXITS = ("tile.break", "tile.continue", "tile.leave", "tile.scope")


@dataclass(slots=True, eq=False)
class Slice:
    """``operations`` that are run (by identity), and ``values`` whose computation is needed."""

    operations: set[int] = field(default_factory=set[int])
    values: set[Value] = field(default_factory=set[Value])
    reason: str = ""

    def has(self, operation: Operation) -> bool:
        return id(operation) in self.operations


def producer_slice(facts: Facts, further: Sequence[Value] = ()) -> Slice:
    """What the staged loads need, to a fixed point; ``reason`` where it cannot run ahead.
    ``further`` values are needed too."""
    out = Slice()
    out.values.update(further)
    owners = _owners(facts)
    for load in facts.loads:
        if is_staged(load):
            out.operations.add(id(load.operation))
            for around in load.inside:
                _need_control(around, out)
            out.values.update(load.starts)
            out.values.add(load.view)
    before = -1
    while before != len(out.values) + len(out.operations):
        before = len(out.values) + len(out.operations)
        for value in list(out.values):
            _define(value, owners, facts, out)
    out.reason = _reason(facts, out)
    return out


def producer_reason(facts: Facts) -> str:
    """Why what the staged loads need cannot be run by a role of its own; empty where it can."""
    return producer_slice(facts).reason


def _need_control(around: Operation, out: Slice) -> None:
    """What decides whether, and how often, the inside of an operation runs."""
    out.operations.add(id(around))
    if around.name == FOR:
        out.values.update(around.operands[: 3 * len(numbers_or_names(around, "axes"))])
    elif around.name == "tile.for":
        out.values.update(around.operands[:3])
    elif around.name == "tile.if":
        out.values.add(around.operands[0])
    elif around.name == "tile.while":
        out.values.add(around.regions[0].terminator.operands[0])


def _owners(facts: Facts) -> dict[Value, tuple[Operation, int]]:
    """The loop that carries an argument of a region, with its number among the carried."""
    out: dict[Value, tuple[Operation, int]] = {}
    for operation, _ in facts.loops:
        for region in operation.regions:
            first = _first_carried(operation)
            for i, argument in enumerate(region.arguments):
                out[argument] = (operation, i - first)
    return out


def _first_carried(loop: Operation) -> int:
    """Where the carried arguments of a loop's region begin: behind its variables."""
    if loop.name == FOR:
        return len(numbers_or_names(loop, "axes"))
    return 1 if loop.name == "tile.for" else 0


def _define(
    value: Value, owners: dict[Value, tuple[Operation, int]], facts: Facts, out: Slice
) -> None:
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
    if operation.name in (FOR, "tile.for", "tile.while"):
        _need_carried(operation, operation.results.index(value), out)
    elif operation.name == "tile.if":
        _need_control(operation, out)
        place = operation.results.index(value)
        out.values.update(r.terminator.operands[place] for r in operation.regions
                          if r.terminator.name == "tile.yield")  # fmt: skip
    else:
        out.values.update(operation.operands)


def _need_carried(loop: Operation, number: int, out: Slice) -> None:
    _need_control(loop, out)
    carried = len(loop.results)
    out.values.add(loop.operands[len(loop.operands) - carried + number])
    for region in loop.regions:
        end = region.terminator
        skip = 1 if end.name == "tile.condition" else 0
        out.values.add(end.operands[skip + number])
        out.values.add(region.arguments[_first_carried(loop) + number])
    out.values.add(loop.results[number])


def _reason(facts: Facts, out: Slice) -> str:
    staged = {x.operation.result for x in facts.loads if is_staged(x)}
    for operation in facts.kernel.walk():
        if operation.name in _EXITS:
            return "it leaves a loop from inside"
        if id(operation) not in out.operations or not _computes(operation):
            continue
        tiles = [v for v in operation.results if isinstance(v.type, TileType) and v in out.values]
        reads_tile = any(isinstance(v.type, TileType) for v in operation.operands)
        if (tiles or reads_tile) and operation.name != LOAD:
            return "where a staged tile lies depends on computed tiles"
        if operation.name == "tile.load" and _written(operation, facts):
            return "where a staged tile lies is read from an array that this kernel writes"
    for value in staged & out.values:
        return f"where a staged tile lies depends on `{value.name or 'a tile'}`"
    for value in staged:
        if any(_hands_over(u, value) for u in facts.users.get(value, ())):
            return "a staged tile is carried into the next iteration"
    return ""


def _computes(operation: Operation) -> bool:
    return not operation.regions


def _hands_over(operation: Operation, value: Value) -> bool:
    return operation.name in ("tile.yield", "tile.condition") or (
        bool(operation.regions) and value in operation.operands
    )


def _written(load: Operation, facts: Facts) -> bool:
    pointer = facts.definitions[load.operands[0]].operands[0]
    written = (facts.definitions[o.operands[1]].operands[0] for o, _ in facts.stores)
    return any(w is pointer for w in written)


def depends_on(values: Sequence[Value], source: Value, facts: Facts) -> bool:
    """Whether any of these values is computed from ``source``."""
    owners = _owners(facts)
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


def _sources(
    value: Value, owners: dict[Value, tuple[Operation, int]], facts: Facts
) -> Iterator[Value]:
    part = Slice()
    _define(value, owners, facts, part)
    yield from part.values
    owner = owners.get(value)
    if owner is not None and owner[1] < 0:
        _need_control(owner[0], part)
        yield from part.values
