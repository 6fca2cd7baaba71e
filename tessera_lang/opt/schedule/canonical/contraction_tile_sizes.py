"""How much of a contraction an iteration takes, where a nest of loops goes through short ones.

``for c in op.tile_range(ci, step=32)`` inside loops over taps: with 16 channels half of each tile
is nothing, and tiles of 64 bytes a line are brought and multiplied in twice as many iterations as
lines of 128 would be. Sums are of the same products in the same order. Owns which steps are better
and the loop with another one. Must not know what moves tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import PERMUTES
from tessera_lang.ir.rewrite import rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.canonical.loop_coalescing import nests_of
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of
from tessera_lang.opt.schedule.query.alignment import divisor_of
from tessera_lang.opt.schedule.query.decision_context import (
    Context,
    rewrites,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    LOAD,
    TRANSPOSE,
    Estimate,
    Facts,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import SWIZZLES


@dataclass(slots=True, eq=False)
class _Contraction:
    """A loop in steps along a contraction. ``loads``: those of its parts, with the axis of the tile
    along it; ``tiles``: what they become on the way to products, with that axis; ``limits``: the
    minima of the step and what is left."""

    loop: Operation
    step: int
    loads: dict[Operation, int] = field(default_factory=dict[Operation, int])
    tiles: dict[Value, int] = field(default_factory=dict[Value, int])
    limits: set[Operation] = field(default_factory=set[Operation])


@rewrites
def choose_steps(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    if context.machine.target == "cpu" or not kernel.holds(DOT):
        return program
    facts = facts_of(kernel)
    b, steps = ScheduleBuilder(kernel.span), dict[int, tuple[_Contraction, Value, int]]()
    with b.region() as front:
        for nest in nests_of(kernel):
            found = _contraction(nest.loops[-1], facts)
            better = _better(found, facts) if found is not None else 0
            if found is not None and better and better != found.step:
                steps[id(found.loop)] = found, b.index(better), better
        b.yield_()
    if not steps:
        return program

    def step(operation: Operation) -> Operation | None:
        if id(operation) not in steps:
            return None
        return _with_step(*steps[id(operation)], facts)

    made = rewrite_operation(kernel, step)
    region = made.regions[0]
    operations = (*front.region.operations[:-1], *region.operations)
    whole = replace(made, regions=(replace(region, operations=operations),))
    return with_kernel(program, whole)


def _better(found: _Contraction, facts: Facts) -> int:
    """The step that suits the number of elements: a power of two that holds all of them, else
    whole lines of a swizzle."""
    (_, (upper,), _) = bounds_of(found.loop)
    elements = Estimate(facts, {}).value(upper)
    widths = [o.result.tile_type.dtype.bytes for o in found.loads]
    if not elements or not widths:
        return 0
    least, most = SWIZZLES[-1] // min(widths), SWIZZLES[0] // max(widths)
    if elements <= found.step // 2:
        return max(least, 1 << (elements - 1).bit_length())
    better = found.step
    while better * 2 <= min(most, elements):
        better *= 2
    return better


# --- which loops ---------------------------------------------------------------------------------


def _contraction(loop: Operation, facts: Facts) -> _Contraction | None:
    """A loop whose variable says nothing but which part of a contraction is loaded."""
    ((lower,), _, (by,)) = bounds_of(loop)
    step = facts.constant(by)
    if step is None or facts.constant(lower) != 0 or step & (step - 1):
        return None
    found = _Contraction(loop, step)
    variable = loop.regions[0].arguments[0]
    for user in facts.users.get(variable, ()):
        if user.name == LOAD:
            if not _is_part(user, found, facts):
                return None
        elif not _is_left(user, found, facts):
            return None
    used_so = all(_is_used_so(limit, found, facts) for limit in found.limits)
    extents = (access_of(load).extents[axis] for load, axis in found.loads.items())
    limited = all(_is_extent(e, found, facts) for e in extents)
    return found if found.loads and used_so and limited else None


def _is_part(load: Operation, found: _Contraction, facts: Facts) -> bool:
    """Notes a load of a part; whether it is one, and goes to products along the contraction."""
    access, variable = access_of(load), found.loop.regions[0].arguments[0]
    places = [d for d, start in enumerate(access.starts) if start is variable]
    if len(places) != 1 or places[0] not in access.dims or variable in access.extents:
        return False
    axis = access.dims.index(places[0])
    if access.steps[axis] != 1 or access.tile.shape[axis] != found.step:
        return False
    found.loads[load] = axis
    return _reaches_products(load.result, axis, found, facts)


def _reaches_products(value: Value, axis: int, found: _Contraction, facts: Facts) -> bool:
    found.tiles[value] = axis
    for user in facts.users.get(value, ()):
        if user.name == DOT:
            a, b, total = user.operands
            last = len(value.tile_type.shape) - 1
            along = [last] if value is a else []
            along += [last - 1] if value is b else []
            if value is total or any(axis != n for n in along):
                return False
        elif user.name in PERMUTES:
            at = user.integers("permutation").index(axis) if user.name == TRANSPOSE else axis
            if not _reaches_products(user.result, at, found, facts):
                return False
        else:
            return False
    return True


def _is_left(user: Operation, found: _Contraction, facts: Facts) -> bool:
    """Whether an operation is what is left of the contraction, and only limits a part."""
    (_, (upper,), _) = bounds_of(found.loop)
    variable = found.loop.regions[0].arguments[0]
    if user.name != "tile.sub" or user.operands[1] is not variable:
        return False
    if not facts.same(user.operands[0], upper):
        return False
    for limit in facts.users.get(user.result, ()):
        step = [v for v in limit.operands if v is not user.result]
        if limit.name != "tile.min" or len(step) != 1 or facts.constant(step[0]) != found.step:
            return False
        found.limits.add(limit)
    return True


def _is_used_so(limit: Operation, found: _Contraction, facts: Facts) -> bool:
    """Whether a limit is nothing but the extent of parts, or 0 in place of it."""
    waiting = [limit.result]
    while waiting:
        value = waiting.pop()
        for user in facts.users.get(value, ()):
            if user in found.loads:
                access = access_of(user)
                others = [e for i, e in enumerate(access.extents) if i != found.loads[user]]
                if value in access.starts or value in others:
                    return False
            elif user.name == "tile.select" and user.operands[1] is value:
                if facts.constant(user.operands[2]) != 0:
                    return False
                waiting.append(user.result)
            else:
                return False
    return True


# --- another step --------------------------------------------------------------------------------


def _with_step(found: _Contraction, width: Value, step: int, facts: Facts) -> Operation:
    """The loop in steps of ``width``, which is the number ``step``."""
    loop = found.loop
    to = {value: Value(_resized(value.tile_type, axis, step), value.name)
          for value, axis in found.tiles.items()}  # fmt: skip
    out: list[Operation] = []
    for o in loop.regions[0].operations:
        operands = tuple(to.get(v, v) for v in o.operands)
        if o in found.loads:
            place = len(operands) - len(o.result.tile_type.shape) + found.loads[o]
            b = ScheduleBuilder(o.span)
            with b.region() as front:
                extent = _extent(b, operands[place], found, (width, step), facts)
                b.yield_()
            out += front.region.operations[:-1]
            operands = (*operands[:place], extent, *operands[place + 1 :])
        results = tuple(to.get(v, v) for v in o.results)
        same = operands == o.operands and results == o.results
        out.append(o if same else replace(o, operands=operands, results=results))
    body = Region(loop.regions[0].arguments, tuple(out))
    operands = (*loop.operands[:2], width, *loop.operands[3:])
    return replace(loop, operands=operands, regions=(body,))


def _extent(
    b: ScheduleBuilder, old: Value, found: _Contraction, width: tuple[Value, int], facts: Facts
) -> Value:  # fmt: skip
    """The extent of a part: all of it where it is, else what is left; 0 where it was chosen."""
    made, (whole, step) = facts.definitions[old], width
    if made.name == "tile.select":
        inner = _extent(b, made.operands[1], found, width, facts)
        return b.select(made.operands[0], inner, made.operands[2])
    (_, (upper,), _) = bounds_of(found.loop)
    if facts.constant(old) is not None and divisor_of(upper, facts) % step == 0:
        return whole
    return b.binary("min", whole, b.binary("sub", upper, found.loop.regions[0].arguments[0]))


def _is_extent(value: Value, found: _Contraction, facts: Facts) -> bool:
    """Whether an extent is the step, or what is left where that is less, or 0 in place of it."""
    made = facts.definitions.get(value)
    if made is None:
        return False
    if made.name == "tile.select":
        return facts.constant(made.operands[2]) == 0 and _is_extent(made.operands[1], found, facts)
    return made in found.limits or facts.constant(value) == found.step


def _resized(t: TileType, axis: int, size: int) -> TileType:
    shape: Sequence[int | str] = t.shape
    return replace(t, shape=(*shape[:axis], size, *shape[axis + 1 :]))
