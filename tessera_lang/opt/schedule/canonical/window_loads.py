"""Windows that run past the edges of an array are loads: a copy engine gives zeros there.

``op.window`` gathers: each place is a number, and those outside of the array are refused one by
one. Places that follow each other from a start are a box, which a tensor map moves whole,
wherever it begins. What a product reads of such a window is loaded instead, so that it is staged,
widened and brought like any other tile. Owns the proof that the places are such a box, of all
of the array. Must not know which copy is taken; where it is none of the copy engine, the lowering
asks for the kernel without this (``windows``).
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    GATHER,
    LOAD,
    PREFETCH,
    REDUCE,
    TRANSPOSE,
    Facts,
    Load,
    facts_of,
    kernel_of,
)
from tessera_lang.opt.schedule.query.producer_lane_copies import is_written
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass, replace

_Equal = Callable[[Value, Value], bool]


@rewrites
def load_windows(program: Program, context: Context) -> Program:
    """The program with its windows as loads; itself where none is, or none may be."""
    kernel, machine = kernel_of(program), context.machine
    if not machine.has_roles or "windows" in context.refusals or "roles" in context.refusals:
        return program
    if (
        kernel.attributes.get("async_copy") is False
        or kernel.attributes.get("warp_specialize") is False
    ):
        return program
    facts = facts_of(kernel)
    if facts.grid is None or not facts.dots:
        return program
    same = _equality(kernel, facts, context)
    found = [w for x in facts.reads if (w := _window(x, facts, same)) is not None]
    if not found:
        return program
    loads = {w.gather.result: w for w in found}
    dropped = {o.result for w in found for o in w.dropped}

    def step(o: Operation) -> Replacement | None:
        result = o.results[0] if len(o.results) == 1 else None
        if result in loads:
            return loads[result].load()
        return Replacement((), (o.operands[0],)) if result in dropped else None

    return tidy(with_kernel(program, rewrite_operation(kernel, step)))


def _equality(kernel: Operation, facts: Facts, context: Context) -> _Equal:
    """Whether two numbers are equal in every launch of this code."""
    known = context.numbers(kernel) if context.numbers is not None else None

    def same(a: Value, b: Value) -> bool:
        if facts.same(a, b) or known is None:
            return facts.same(a, b)
        number = known.number(a)
        return known.key(a) == known.key(b) or (number is not None and number == known.number(b))

    return same


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """A gather that is a window: where it begins along the axes with places, and what reads it
    only to leave out axes of one element (``dropped``, the last of which gives the tile)."""

    gather: Operation
    starts: tuple[Value, ...]
    axes: tuple[int, ...]
    dropped: tuple[Operation, ...]

    def load(self) -> Replacement:
        """Of the axes that are kept; along the others it is the one element at the start."""
        access, o = access_of(self.gather), self.gather
        t = o.result.tile_type
        made = Value(replace(t, shape=tuple(t.shape[i] for i in self.axes)), o.result.name)
        attributes = dict(o.attributes)
        attributes["dims"] = tuple(access.dims[i] for i in self.axes)
        attributes["steps"] = (1,) * len(self.axes)
        attributes["outside"] = True
        operands = (access.view, *self.starts, *(access.extents[i] for i in self.axes))
        load = Operation(LOAD, operands, (made,), attributes, (), o.span)
        return Replacement((load,), (made,))


def _window(read: Load, facts: Facts, same: _Equal) -> _Window | None:
    gather = read.operation
    if gather.name != GATHER or is_written(gather, facts):
        return None
    access = access_of(gather)
    sizes = facts.definitions[access.view].operands[1:]
    starts: list[Value] = []
    for dim, start in enumerate(access.starts):
        if not isinstance(start.type, TileType):
            starts.append(start)
            continue
        begin = _begin(start, sizes[dim], facts, same)
        if begin is None:
            return None
        starts.append(begin)
    axes, dropped, last = list(range(len(access.dims))), list[Operation](), gather
    while (only := _leaves_out_one(last, facts)) is not None:
        axis = only.integer("axis")
        if facts.constant(access.extents[axes[axis]]) != 1:
            return None
        del axes[axis]
        dropped.append(only)
        last = only
    if not axes or not _are_operands(last.result, facts):
        return None
    return _Window(gather, tuple(starts), tuple(axes), tuple(dropped))


def _leaves_out_one(o: Operation, facts: Facts) -> Operation | None:
    """The only reader of a tile, where it leaves out an axis of one element."""
    users = facts.users.get(o.result, [])
    if len(users) != 1 or users[0].name != REDUCE:
        return None
    (reduce,) = users
    one = o.result.tile_type.shape[reduce.integer("axis")] == 1
    picks = reduce.attributes.get("kind") in ("max", "min", "any")
    return reduce if one and picks and isinstance(reduce.result.type, TileType) else None


def _are_operands(tile: Value, facts: Facts) -> bool:
    """Whether products, and nothing else, read a tile."""
    users = facts.users.get(tile, [])
    return bool(users) and all(
        (u.name == DOT and tile is not u.operands[2])
        or ((u.name == TRANSPOSE or u.name == PREFETCH) and _are_operands(u.result, facts))
        for u in users
    )


def _begin(places: Value, size: Value, facts: Facts, same: _Equal) -> Value | None:
    """The start of places that follow each other, of which those in an axis of ``size`` elements
    are there; None for others."""
    made = facts.definitions.get(places)
    if made is None:
        return None
    if made.name != "tile.select":
        return _line(places, facts)
    here, there, away = made.operands
    number = _scalar(away, facts)
    if number is None or (facts.constant(number) or 0) >= 0:
        return None
    line = _unmoved(there, facts)
    begin = _line(line, facts)
    return begin if begin is not None and _is_inside(here, line, size, facts, same) else None


def _line(places: Value, facts: Facts) -> Value | None:
    """The number that is added to 0, 1, 2, ...; None where it is another tile."""
    made = facts.definitions.get(places)
    if made is None or made.name != "tile.add":
        return None
    for count, start in (made.operands, made.operands[::-1]):
        counted = facts.definitions.get(count)
        if counted is not None and counted.name == PREFIX + "iota":
            return _scalar(start, facts)
    return None


def _scalar(tile: Value, facts: Facts) -> Value | None:
    made = facts.definitions.get(tile)
    return made.operands[0] if made is not None and made.name == PREFIX + "full" else None


def _unmoved(places: Value, facts: Facts) -> Value:
    """Places without a factor of 1 and a start of 0."""
    made = facts.definitions.get(places)
    neutral = {"tile.add": 0, "tile.mul": 1}
    if made is None or made.name not in neutral:
        return places
    inner, other = made.operands
    number = _scalar(other, facts)
    if number is None or facts.constant(number) != neutral[made.name]:
        return places
    return _unmoved(inner, facts)


def _is_inside(here: Value, line: Value, size: Value, facts: Facts, same: _Equal) -> bool:
    """Whether a condition is that places are from 0 on, and below the size of the axis."""
    both = facts.definitions.get(here)
    if both is None or both.name != "tile.and":
        return False
    found = set[object]()
    for condition in both.operands:
        made = facts.definitions.get(condition)
        if made is None or made.name != "tile.cmp" or made.operands[0] is not line:
            return False
        bound, predicate = _scalar(made.operands[1], facts), made.attributes["predicate"]
        zero = bound is not None and facts.constant(bound) == 0
        if predicate == "ge" and zero:
            found.add("ge")
        elif predicate == "lt" and bound is not None and same(bound, size):
            found.add("lt")
    return found == {"ge", "lt"}
