"""Tiles under a condition that products need, loaded before the condition is known.

The role that moves data runs ahead, and cannot ask what a staged tile holds. A condition made of
such a tile would keep a kernel from having roles; a load that is made in vain costs its bytes and
nothing else. Owns which conditions those are and which loads stand as well in front of them. Must
not know how tiles are staged.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import is_number
from tessera_lang.opt.schedule.query.backward_slices import Slice, completed
from tessera_lang.opt.schedule.query.computed_tile_source import feeds
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import LOAD, LOOPS, Facts, facts_of, kernel_of
from tessera_lang.opt.schedule.query.producer_lane_copies import is_written
from tessera_lang.record import replace

_GROW = ("tile.add", "tile.mul", "tile.max", "tile.min", "tile.floordiv", "tile.cast")
"""Operations that are at least 0 if their operands are."""


@rewrites
def load_before(program: Program, context: Context) -> Program:
    if not context.machine.has_roles:
        return program
    kernel = kernel_of(program)
    if not kernel.holds("tile.if"):
        return program
    facts = facts_of(kernel)
    needed = {id(x.operation) for x in facts.loads if _is_matrix(x.operation) and feeds(x, facts)}
    if not needed:
        return program
    region = kernel.regions[0]
    operations = _block(region.operations, facts, needed)
    made = replace(kernel, regions=(Region(region.arguments, tuple(operations)),))
    return with_kernel(program, made)


def _is_matrix(load: Operation) -> bool:
    t = load.result.type
    return isinstance(t, TileType) and len(t.shape) >= 2


def _block(operations: Sequence[Operation], facts: Facts, needed: set[int]) -> list[Operation]:
    out: list[Operation] = []
    for o in operations:
        if not o.regions:
            out.append(o)
            continue
        if o.name == "tile.if" and _asks(o.operands[0], facts, needed):
            front, o = _out_of(o, facts, needed)
            out.extend(front)
        regions = tuple(
            Region(r.arguments, tuple(_block(r.operations, facts, needed))) for r in o.regions
        )
        out.append(replace(o, regions=regions))
    return out


def _asks(condition: Value, facts: Facts, needed: set[int]) -> bool:
    """Whether a condition is computed from a tile that products need."""
    made = completed(Slice(values={condition}), facts)
    return any(id(x.operation) in needed and made.has(x.operation) for x in facts.loads)


def _out_of(
    condition: Operation, facts: Facts, needed: set[int]
) -> tuple[list[Operation], Operation]:
    """What stands in front of a condition, and the condition without it. All loads of a side that
    products need, or none: one that stays would keep the others from being brought ahead."""
    front: list[Operation] = []
    regions: list[Region] = []
    for region in condition.regions:
        moved, kept = _parted(region.operations, facts, needed)
        if any(id(o) in needed for stays in kept for o in _inside(stays)):
            return [], condition
        front.extend(moved)
        regions.append(Region(region.arguments, tuple(kept)))
    return front, replace(condition, regions=tuple(regions))


def _inside(operation: Operation) -> list[Operation]:
    return [operation, *(o for r in operation.regions for i in r.operations for o in _inside(i))]


def _parted(
    operations: Sequence[Operation], facts: Facts, needed: set[int]
) -> tuple[list[Operation], list[Operation]]:
    """The loads that may be made in vain with the numbers they take, and the rest."""
    wanted: set[Value] = set()
    for o in reversed(operations):
        if id(o) in needed and _is_harmless(o, facts):
            wanted.update((*o.results, *o.operands))
        elif is_number(o) and any(v in wanted for v in o.results):
            wanted.update(o.operands)
    here = {v for o in operations for v in o.results}
    moved: list[Operation] = []
    kept: list[Operation] = []
    made: set[Value] = set()
    for o in operations:
        may = id(o) in needed or is_number(o)
        ready = all(v in made or v not in here for v in o.operands)
        if may and ready and any(v in wanted for v in o.results):
            moved.append(o)
            made.update(o.results)
        else:
            kept.append(o)
    return moved, kept


def _is_harmless(load: Operation, facts: Facts) -> bool:
    """Whether a load reads nothing outside its array though its condition does not hold: what it
    reads is not written here, and it begins at 0 or above whatever the condition says."""
    if load.name != LOAD or is_written(load, facts):
        return False
    count = len(load.operands[0].type.shape)  # type: ignore[union-attr]
    return all(_not_negative(v, facts) for v in load.operands[1 : 1 + count])


def _not_negative(value: Value, facts: Facts) -> bool:
    number = facts.constant(value)
    if number is not None:
        return number >= 0
    operation = facts.definitions.get(value)
    if operation is None:
        return value in facts.arguments or _counts_up(value, facts)
    return operation.name in _GROW and all(_not_negative(v, facts) for v in operation.operands)


def _counts_up(value: Value, facts: Facts) -> bool:
    """Whether a value is the variable of a loop that begins at 0 or above and steps up."""
    for loop, _ in facts.loops:
        if loop.name not in LOOPS or loop.name == "tile.while":
            continue
        arguments = loop.regions[0].arguments
        axes = loop.attributes.get("axes")
        count = len(axes) if isinstance(axes, tuple) else 1
        if value in arguments[:count]:
            i = arguments.index(value)
            begin, step = loop.operands[i], loop.operands[2 * count + i]
            step_number = facts.constant(step)
            return step_number is not None and step_number > 0 and _not_negative(begin, facts)
    return False
