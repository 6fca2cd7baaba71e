"""Reductions over the tiles of a loop meet once, behind it, and not in every iteration.

``part = part + sum(tile)`` in a loop is a sum across lanes and warps for each tile. Here the loop
carries a tile, to whose elements those of each iteration are added in place; what is left at the
end is summed. Each element of it is a chain of its own, so the chains are shorter than before.
Kernels with products are left as they are: their registers hold accumulators.

Owns the rewriting. Must not know a machine, nor how lanes hold a tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import names_of
from tessera_lang.opt.schedule.query.array_dependence import FOR, LOAD
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.def_use import definitions_of, users_of
from tessera_lang.opt.schedule.query.kernel_facts import DOT, is_grid, kernel_of
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import DType, integer_range

_REDUCE = PREFIX + "reduce"
_KINDS = {"tile.add": "add", "tile.mul": "mul", "tile.max": "max", "tile.min": "min"}
_KEEP_ZERO = ("tile.cast", "tile.mul", "tile.add", "tile.sub", "tile.neg", "tile.abs")
"""Zeros everywhere give zeros."""


@rewrites
def reduce_late(program: Program, context: Context) -> Program:
    """The program whose loops carry tiles where they carried what a tile is reduced to. On a CPU a
    lane has a tile in memory, and reduces it as it computes it."""
    kernel = kernel_of(program)
    if context.machine.target == "cpu" or context.relief or kernel.holds(DOT):
        return program
    (region,) = kernel.regions
    region = _region(region, definitions_of(kernel))
    return with_kernel(program, replace(kernel, regions=(region,)))


def _region(region: Region, definitions: Mapping[Value, Operation]) -> Region:
    made: list[Operation] = []
    for o in region.operations:
        inner = tuple([_region(r, definitions) for r in o.regions])
        if any(a is not b for a, b in zip(inner, o.regions, strict=True)):
            o = replace(o, regions=inner)
        made += _late(o, definitions)
    same = len(made) == len(region.operations) and all(
        a is b for a, b in zip(made, region.operations, strict=True)
    )
    return region if same else replace(region, operations=tuple(made))


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """A value that a loop carries: ``step`` adds to it what ``reductions`` give, the first of them
    of a ``tile``, of which ``extents`` elements count along each axis."""

    slot: int
    kind: str
    step: Operation
    reductions: tuple[Operation, ...]
    tile: Value
    extents: tuple[Value | None, ...]


def _late(loop: Operation, definitions: Mapping[Value, Operation]) -> list[Operation]:
    """A loop, with what stands before and behind it now."""
    if loop.name != FOR or not loop.results or is_grid(loop):
        return [loop]
    sums = _sums(loop)
    if not sums:
        return [loop]
    b = ScheduleBuilder(loop.span)
    with b.region() as front:
        units = {s.slot: b.constant(_unit(s), s.tile.element_dtype) for s in sums}
        starts = {s.slot: b.full(units[s.slot], s.tile.tile_type.shape) for s in sums}
    first = len(loop.operands) - len(loop.results)
    operands, results = list(loop.operands), list(loop.results)
    for s in sums:
        operands[first + s.slot] = starts[s.slot]
        results[s.slot] = Value(s.tile.type, results[s.slot].name)
    body = _body(loop, sums, units)
    made = replace(loop, operands=tuple(operands), results=tuple(results), regions=(body,))
    with b.region() as behind:
        for s in sums:
            found = results[s.slot]
            for o in reversed(s.reductions):
                axis = o.integer("axis")
                size = found.tile_type.sizes[axis]
                found = b.reduce(s.kind, found, b.index(size), axis, hint=o.result.name)
            total, start = loop.results[s.slot], loop.operands[first + s.slot]
            if _is_unit(start, s, definitions):
                *_, last = b.current.operations
                b.current.operations[-1] = replace(last, results=(total,))
            else:
                b.append(Operation(s.step.name, (start, found), (total,), {}, (), s.step.span))
    return [*front.operations, made, *behind.operations]


def _is_unit(start: Value, s: _Sum, definitions: Mapping[Value, Operation]) -> bool:
    """Whether what a loop begins with changes nothing."""
    made = definitions.get(start)
    if made is not None and made.name == PREFIX + "full":
        made = definitions.get(made.operands[0])
    return (
        made is not None and made.name == "tile.constant" and made.attributes["value"] == _unit(s)
    )


def _body(loop: Operation, sums: Sequence[_Sum], units: Mapping[int, Value]) -> Region:
    """The loop's body, in which each sum adds to its tile."""
    (region,) = loop.regions
    axes = len(names_of(loop))
    arguments = list(region.arguments)
    by_step = {id(s.step.results): s for s in sums}
    gone = {id(o.results) for s in sums for o in s.reductions}
    yielded = dict(enumerate(region.terminator.operands))
    definitions = definitions_of(loop)
    out: list[Operation] = []
    for o in region.operations[:-1]:
        s = by_step.get(id(o.results))
        if s is None:
            out += [] if id(o.results) in gone else [o]
            continue
        argument = Value(s.tile.type, arguments[axes + s.slot].name)
        arguments[axes + s.slot] = argument
        b = ScheduleBuilder(o.span)
        with b.region() as inner:
            value = _masked(b, s, units[s.slot], definitions)
            yielded[s.slot] = b.binary(s.kind, argument, value)
        out += inner.operations
    end = replace(region.terminator, operands=tuple(yielded.values()))
    return Region(tuple(arguments), (*out, end))


def _masked(
    b: ScheduleBuilder, s: _Sum, unit: Value, definitions: Mapping[Value, Operation]
) -> Value:
    """The tile of an iteration, with what changes nothing beyond its extents."""
    extents = [
        None if e is None or (s.kind == "add" and _is_zero(s.tile, i, e, definitions)) else e
        for i, e in enumerate(s.extents)
    ]
    if not any(e is not None for e in extents):
        return s.tile
    whole = [b.index(n) if e is None else e
             for e, n in zip(extents, s.tile.tile_type.sizes, strict=True)]  # fmt: skip
    return b.mask(s.tile, unit, whole)


def _is_zero(
    value: Value, axis: int, extent: Value, definitions: Mapping[Value, Operation]
) -> bool:
    """Whether a tile surely has zeros beyond an extent, as loads give them."""
    made = definitions.get(value)
    if made is not None and made.name == LOAD:
        found = access_of(made).extents
        return axis < len(found) and found[axis] is extent
    if made is None or made.name not in _KEEP_ZERO:
        return False
    return all(_is_zero(v, axis, extent, definitions) for v in made.operands)


# --- what a loop carries ------------------------------------------------------------------------


def _sums(loop: Operation) -> list[_Sum]:
    (region,) = loop.regions
    axes, here = len(names_of(loop)), {id(o.results): o for o in region.operations}
    definitions = definitions_of(loop)
    users = {v: len(u) for v, u in users_of(loop).items()}
    found: list[_Sum] = []
    for slot, value in enumerate(region.terminator.operands):
        source = region.arguments[axes + slot]
        step = definitions.get(value)
        if step is None or id(step.results) not in here or step.name not in _KINDS:
            continue
        if users.get(source) != 1 or users.get(value) != 1 or source not in step.operands:
            continue
        kind = _KINDS[step.name]
        chain: list[Operation] = []
        at = next((v for v in step.operands if v is not source), source)
        while True:
            o = definitions.get(at)
            again = o is not None and o.name == _REDUCE and o.attributes["kind"] == kind
            if o is None or not again or users.get(at) != 1 or id(o.results) not in here:
                break
            chain.append(o)
            at = o.operands[0]
        if chain and at.element_dtype == source.element_dtype:
            found.append(_Sum(slot, kind, step, tuple(chain), at, _extents(at, chain)))
    return found


def _extents(tile: Value, chain: Sequence[Operation]) -> tuple[Value | None, ...]:
    """How many elements count along each axis of a tile; None: all."""
    left = list(range(len(tile.tile_type.shape)))
    found: list[Value | None] = [None] * len(left)
    for o in reversed(chain):
        found[left.pop(o.integer("axis"))] = o.operands[1]
    return tuple(found)


def _unit(s: _Sum) -> float:
    """What changes nothing where it is combined."""
    dtype: DType = s.tile.element_dtype
    if s.kind in ("add", "mul"):
        return 0 if s.kind == "add" else 1
    if dtype.is_float:
        most = inf if dtype.infinite else dtype.largest
        return -most if s.kind == "max" else most
    low, high = integer_range(dtype)
    return low if s.kind == "max" else high
