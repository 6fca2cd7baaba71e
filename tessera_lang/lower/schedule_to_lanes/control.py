"""Regions: operations in order, loops and branches whose tiles lie in buffers.

Owns how structured control flow carries tiles: a construct has one buffer for each tile it carries
or gives, written by its terminators. Must not know elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.lower.schedule_to_lanes import (
    array_stores,
    products,
    reduction_dispatch,
    scans,
    sorts,
)
from tessera_lang.lower.schedule_to_lanes.carried_values import (
    begin,
    bind_scalars,
    hold,
    result_buffers,
    scalars_of,
    types_of_scalars,
)
from tessera_lang.lower.schedule_to_lanes.combined_axes import Bounds, trip_count, unflattened
from tessera_lang.lower.schedule_to_lanes.def_use import is_tile
from tessera_lang.lower.schedule_to_lanes.state import Lowering, Slots, is_pointer
from tessera_lang.lower.schedule_to_lanes.tile_buffer_stores import (
    hand_over,
    is_dead_after,
    materialise,
)
from tessera_lang.lower.schedule_to_lanes.tile_extents import carried_values
from tessera_lang.record import replace
from tessera_lang.types.dtype import INDEX

FOR = f"{PREFIX}for"


def lower_region(s: Lowering, region: Region) -> None:
    """The operations of a region, its terminator too, into the region being built."""
    stored, holders = dict(s.stored), [(b, b.holder) for b in s.stored.values()]
    s.owned.append([])
    for op in region.operations:
        with s.b.at(op.span):
            lower_operation(s, op)
        if op is not region.operations[-1]:
            release(s, op)
    for buffer in list(s.owned[-1]):
        s.give_back(buffer)
    s.owned.pop()
    s.stored = stored
    for buffer, holder in holders:
        buffer.holder = holder


def release(s: Lowering, op: Operation) -> None:
    """Gives back the buffers that are needed no more behind ``op``."""
    for buffer in list(s.owned[-1]):
        if is_dead_after(s, buffer, op):
            if buffer.holder is not None:
                s.stored.pop(buffer.holder, None)
            s.give_back(buffer)


def lower_operation(s: Lowering, op: Operation) -> None:
    rule = _RULES.get(op.name)
    if rule is not None:
        rule(s, op)
    elif any(map(is_tile, op.results)):
        if op.result not in s.placement.lazy:
            materialise(s, op, op.result)
    else:
        _scalar(s, op)


def _scalar(s: Lowering, op: Operation) -> None:
    """A scalar operation or a view, as it is."""
    attributes = op.attributes
    if op.name == "tile.load" and s.lanes > 1:
        s.ready([s.root(s.scalar(op.operands[0]))], [])
        attributes = {**attributes, "uniform": True}
    operands = tuple(s.scalar(v) for v in op.operands)
    results = tuple(Value(v.type, v.name) for v in op.results)
    made = replace(op, operands=operands, results=results, attributes=attributes)
    if op.name == "tile.print" and s.lanes > 1:
        _by_one(s, made)
        return
    s.b.append(made)
    s.values.update(zip(op.results, results, strict=True))
    if op.name == "tile.view" and is_pointer(operands[0]):
        s.roots[results[0]] = operands[0]


def _by_one(s: Lowering, op: Operation) -> None:
    """What one lane does for all."""
    first = s.b.cmp("eq", s.b.lane_linear(), s.b.index(0))
    with s.b.region() as then:
        s.b.append(op)
        s.b.yield_()
    with s.b.region() as otherwise:
        s.b.yield_()
    s.b.if_(first, then.region, otherwise.region)


# --- loops -----------------------------------------------------------------------------------


def _for(s: Lowering, op: Operation) -> None:
    """``tile.for`` and the loop of Schedule IR, which nests one loop per axis."""
    axes = len(op.strings("axes")) if op.name == FOR else 1
    lower_loop(s, op, list(range(axes)))


def lower_loop(s: Lowering, op: Operation, axes: Sequence[int]) -> None:
    """The loop over some of the axes of ``op``; variables of the others are bound already."""
    region = op.regions[0]
    n = len(region.arguments) - len(op.results)
    buffers = begin(s, op)
    (carried, _), initial = carried_values(op)
    start = [s.scalar(v) for v in scalars_of(initial)]
    numbers = [s.scalar(v) for v in op.operands[: 3 * n]]
    s.slots.append(Slots(op, buffers))

    def body(variables: dict[int, Value], scalars: Sequence[Value]) -> None:
        for axis, variable in variables.items():
            s.values[region.arguments[axis]] = variable
        bind_scalars(s, carried, scalars)
        hold(s, carried, buffers)
        _iteration(s, region)

    bounds = [(numbers[a], numbers[n + a], numbers[2 * n + a]) for a in axes]
    if len(axes) > 1 and _is_left_early(op):
        results = _flat(s, op, list(axes), bounds, start, carried, body)
    else:
        results = _nested(s, op, list(axes), bounds, start, carried, body, {})
    s.slots.pop()
    bind_scalars(s, op.results, results)
    hold(s, op.results, buffers)


Body = Callable[[dict[int, Value], Sequence[Value]], None]


def _iteration(s: Lowering, region: Region) -> None:
    """The body of a loop: it begins behind a barrier, for the iteration before it."""
    before = dict(s.unsafe)
    if s.lanes > 1:
        s.barrier()
    lower_region(s, region)
    s.unsafe = _either(before, s.unsafe)


def _either(a: dict[Value, bool], b: dict[Value, bool]) -> dict[Value, bool]:
    return {root: a.get(root, False) or b.get(root, False) for root in (*a, *b)}


def _site(op: Operation) -> int:
    site = op.attributes.get("site", -1)
    return site if isinstance(site, int) else -1


def _nested(
    s: Lowering, op: Operation, axes: list[int], bounds: Bounds, start: Sequence[Value],
    carried: Sequence[Value], body: Body, variables: dict[int, Value],
) -> Sequence[Value]:  # fmt: skip
    if not axes:
        with s.b.region() as region, s.inside():
            body(variables, start)
        s.splice(region.region.operations[:-1])
        return region.region.terminator.operands
    lower, upper, step = bounds[0]
    name = op.regions[0].arguments[axes[0]].name
    with s.b.region((name, lower.type), *types_of_scalars(carried)) as region, s.inside():
        variable, *scalars = region.arguments
        inner = {**variables, axes[0]: variable}
        if len(axes) == 1:
            body(inner, scalars)
        else:
            s.b.yield_(*_nested(s, op, axes[1:], bounds[1:], scalars, carried, body, inner))
    return s.b.for_(lower, upper, step, start, region.region, _site(op))


def _is_left_early(op: Operation) -> bool:
    """Whether a ``break`` leaves the loop."""

    def leaves(inner: Operation) -> bool:
        if inner.name in LOOPS:
            return False
        nested = (o for region in inner.regions for o in region.operations)
        return inner.name == "tile.break" or any(map(leaves, nested))

    return any(map(leaves, op.regions[0].operations))


def _flat(
    s: Lowering, op: Operation, axes: list[int], bounds: Bounds, start: Sequence[Value],
    carried: Sequence[Value], body: Body,
) -> Sequence[Value]:  # fmt: skip
    """One loop over all combinations, so that one ``break`` leaves it."""
    counts = [trip_count(s, *b) for b in bounds]
    total = counts[0]
    for count in counts[1:]:
        total = s.b.binary("mul", total, count)
    with s.b.region(("n", INDEX), *types_of_scalars(carried)) as region, s.inside():
        number, *scalars = region.arguments
        body(unflattened(s, number, axes, bounds, counts), scalars)
    return s.b.for_(s.index(0), total, s.index(1), start, region.region, -1)


def _while(s: Lowering, op: Operation) -> None:
    before, body = op.regions
    buffers = begin(s, op)
    start = [s.scalar(v) for v in scalars_of(op.operands)]
    s.slots.append(Slots(op, buffers))
    regions: list[Region] = []
    for source in (before, body):
        with s.b.region(*types_of_scalars(source.arguments)) as region, s.inside():
            bind_scalars(s, source.arguments, region.arguments)
            hold(s, source.arguments, buffers)
            _iteration(s, source)
        regions.append(region.region)
    s.slots.pop()
    bind_scalars(s, op.results, s.b.while_(start, regions[0], regions[1]))
    hold(s, op.results, buffers)


# --- branches --------------------------------------------------------------------------------


def _if(s: Lowering, op: Operation) -> None:
    buffers = result_buffers(s, op)
    s.slots.append(Slots(op, buffers))
    before, after = dict(s.unsafe), dict(s.unsafe)
    regions: list[Region] = []
    for source in op.regions:
        s.unsafe = dict(before)
        with s.b.region() as region, s.inside():
            lower_region(s, source)
        after = _either(after, s.unsafe)
        regions.append(region.region)
    s.unsafe = after
    s.slots.pop()
    condition = s.scalar(op.operands[0])
    types = [v.type for v in scalars_of(op.results)]
    made = s.b.emit("tile.if", (condition,), types, None, regions)
    bind_scalars(s, op.results, made.results)
    hold(s, op.results, buffers)


def _scope(s: Lowering, op: Operation) -> None:
    buffers = result_buffers(s, op)
    s.slots.append(Slots(op, buffers))
    with s.b.region() as region, s.inside():
        lower_region(s, op.regions[0])
    s.slots.pop()
    types = [v.type for v in scalars_of(op.results)]
    bind_scalars(s, op.results, s.b.scope(region.region, types))
    hold(s, op.results, buffers)


# --- exits -----------------------------------------------------------------------------------


def _exit(s: Lowering, op: Operation) -> None:
    target = _target(s, op)
    if target is None:  # the end of the kernel
        s.b.emit(op.name)
        return
    construct = target.operation
    first = 1 if op.name == "tile.condition" else 0
    owners: Sequence[Value] = construct.results
    if construct.name in LOOPS:
        owners = carried_values(construct)[0][0]
    hand_over(s, op, op.operands[first:], target.buffers, owners)
    operands = [s.scalar(v) for v in (*op.operands[:first], *scalars_of(op.operands[first:]))]
    s.b.emit(op.name, operands)


def _target(s: Lowering, op: Operation) -> Slots | None:
    match op.name:
        case "tile.yield" | "tile.condition":
            return s.slots[-1]
        case "tile.break" | "tile.continue":
            return next(t for t in reversed(s.slots) if t.operation.name in LOOPS)
        case "tile.leave":
            return next(t for t in reversed(s.slots) if t.operation.name == "tile.scope")
        case _:
            return None


_RULES: dict[str, Callable[[Lowering, Operation], None]] = {
    FOR: _for, "tile.for": _for, "tile.while": _while, "tile.if": _if, "tile.scope": _scope,
    **{f"tile.{name}": _exit
       for name in ("yield", "condition", "break", "continue", "leave", "return")},
    f"{PREFIX}store": array_stores.store, f"{PREFIX}scatter": array_stores.scatter,
    f"{PREFIX}accumulate": array_stores.accumulate,
    f"{PREFIX}insert": array_stores.insert, f"{PREFIX}reduce": reduction_dispatch.reduce,
    f"{PREFIX}scan": scans.scan, f"{PREFIX}sort": sorts.sort, f"{PREFIX}dot": products.dot,
}  # fmt: skip
