"""Reduction loops that groups may share, a part of the iterations each: they carry only sums.

Owns the proof: what a loop hands on is what it was given and something more, which depends on
no sum; it writes nothing; and what stands around it in an iteration of the grid can be done once
behind all parts. Must not know machines, or when parts are worth it.
"""

from __future__ import annotations

import functools

from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.definitions import (
    COUNTED_LOOPS,
    LEAVES,
    LOOPS,
    WRITES,
    is_number,
)
from tessera_lang.opt.schedule.query.kernel_facts import DOT, FOR, Facts
from tessera_lang.opt.schedule.query.staging_rings import is_staged
from tessera_lang.record import dataclass, replace

_EXITS = {"tile.scope", *LEAVES}
_DTYPES = ("f32", "f64", "i32", "i64")


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """The loop of an iteration of the grid whose parts may be summed apart; None with the
    ``reason`` where there is none."""

    loop: Operation | None
    reason: str = ""


@functools.lru_cache(maxsize=4)
def sums_of(facts: Facts) -> Sums:
    """Remembered, as every choice of tiles asks again."""
    grid = facts.grid
    if grid is None:
        return Sums(None, "it has no loop, or several, whose iterations are groups")
    operations = grid.regions[0].operations
    loops = [o for o in operations if o.holds(LOOPS)]
    found = [o for o in loops if o.holds(DOT)] or loops
    if not found:
        return Sums(None, "a tile has no loop")
    if len(found) > 1 or loops[0] is not found[0]:
        return Sums(None, "a tile has several loops, one behind the other")
    (loop,) = found
    reason = _loop_reason(loop, facts) or _around_reason(grid, loop, facts)
    return Sums(None, reason) if reason else Sums(loop)


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The bounds of the outermost axis of a loop, by ``operations`` that may stand before the
    grid."""

    values: tuple[Value, Value, Value]
    operations: tuple[Operation, ...]


def even_iterations(facts: Facts, loop: Operation) -> Bounds | None:
    """How often a loop of the grid runs, where that is the same in all iterations of the grid."""
    grid = facts.grid
    assert grid is not None
    axes = len(loop.strings("axes"))
    bounds = (loop.operands[0], loop.operands[axes], loop.operands[2 * axes])
    (region,) = grid.regions
    needed, made = set(bounds), dict[Value, Value]()
    for operation in reversed(region.operations):
        if needed.intersection(operation.results):
            needed.update(operation.operands)
    operations: list[Operation] = []
    for operation in region.operations:
        if not needed.intersection(operation.results):
            continue
        if not is_number(operation):
            return None
        results = tuple(Value(v.type, v.name) for v in operation.results)
        operands = tuple(made.get(v, v) for v in operation.operands)
        made.update(zip(operation.results, results, strict=True))
        operations.append(replace(operation, operands=operands, results=results))
    if needed.intersection(region.arguments):
        return None
    lower, upper, step = (made.get(v, v) for v in bounds)
    return Bounds((lower, upper, step), tuple(operations))


def _loop_reason(loop: Operation, facts: Facts) -> str:
    if loop.name != FOR or not loop.results:
        return "its loop hands on no sums"
    types = [v.type for v in loop.results]
    if not all(isinstance(t, TileType) and t.dtype.name in _DTYPES for t in types):
        return "its loop carries more than sums in full precision"
    if len({t.dtype for t in types if isinstance(t, TileType)}) > 1:
        return "its loop carries sums of several dtypes"
    inside = [o for r in loop.regions for o in _walk(r)]
    if any(o.name in WRITES for o in inside):
        return "its loop writes"
    if any(o.name in _EXITS for o in inside):
        return "it leaves a loop from inside"
    first = len(loop.strings("axes"))
    end = loop.regions[0].terminator
    for argument, handed in zip(loop.regions[0].arguments[first:], end.operands, strict=True):
        if not _is_sum(argument, handed, facts):
            return f"`{argument.name or 'a tile'}`, which its loop carries, is no sum"
    return ""


def _around_reason(grid: Operation, loop: Operation, facts: Facts) -> str:
    operations = grid.regions[0].operations
    at = next(i for i, o in enumerate(operations) if o is loop)
    if any(o.holds(WRITES) for o in operations[:at]):
        return "it writes before its loop"
    behind = [i for o in operations[at + 1 :] for i in o.walk()]
    staged = {id(x.operation) for x in facts.reads if is_staged(x)}
    if any(o.name == DOT or id(o) in staged for o in behind):
        return "it stages tiles behind its loop"
    if any(o.attributes.get("across", 1) != 1 for o in facts.kernel.walk()):
        return "groups of a cluster share an axis"
    return ""


def _walk(region: Region) -> list[Operation]:
    return list(region.walk())


def _is_sum(source: Value, value: Value, facts: Facts) -> bool:
    """Whether ``value`` is ``source`` plus what does not depend on it, and nobody else sees the
    sums on the way."""
    ends = _reached(value, source, facts)
    return ends is not None and ends == len(facts.users.get(source, ()))


def _reached(value: Value, source: Value, facts: Facts) -> int | None:
    """How many ways lead back from ``value`` to ``source``, each through sums only; None where
    one does not."""
    if value is source:
        return 1
    operation = facts.definitions.get(value)
    if operation is None or len(facts.users.get(value, ())) != 1:
        return None
    match operation.name:
        case "tile.add":
            a, b = (_reached(v, source, facts) for v in operation.operands)
            return a if b is None else b if a is None else None
        case "tile.sub":
            return _reached(operation.operands[0], source, facts)
        case "tile.if":
            place = operation.results.index(value)
            ways = [_reached(r.terminator.operands[place], source, facts)
                    for r in operation.regions if r.terminator.name == "tile.yield"]  # fmt: skip
            known = [n for n in ways if n is not None]
            return sum(known) if len(known) == len(ways) == 2 else None
        case _ if operation.name == DOT:
            return _reached(operation.operands[2], source, facts)
        case _ if operation.name in COUNTED_LOOPS:
            return _through_loop(operation, operation.results.index(value), source, facts)
        case _:
            return None


def _through_loop(loop: Operation, place: int, source: Value, facts: Facts) -> int | None:
    (region,) = loop.regions
    carried = len(loop.results)
    argument = region.arguments[len(region.arguments) - carried + place]
    if not _is_sum(argument, region.terminator.operands[place], facts):
        return None
    return _reached(loop.operands[len(loop.operands) - carried + place], source, facts)
