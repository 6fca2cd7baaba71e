"""Parallel reduction: groups share the iterations of a long one, and their results are combined.

Owns the proof that a loop only reduces, and its two halves: a loop over parts, whose iterations are
independent, and the reduction of what they have left in memory. Must not know a machine, nor which
reductions are long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import (
    Attribute,
    Operation,
    PointerType,
    Region,
    TileType,
    Value,
)
from tessera_lang.ir.rewrite import clone_operation, replace_values
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.parallel.loop_nest_rewrites import bounds_of, names_of
from tessera_lang.opt.schedule.query.array_dependence import FOR
from tessera_lang.opt.schedule.query.def_use import definitions_of, users_of
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.target.launch_plan import LaunchPlan, ResultPlan, Slot
from tessera_lang.target.tuned_constants import REDUCTION_PARTS
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim

_KINDS = {"tile.add": "add", "tile.mul": "mul", "tile.max": "max", "tile.min": "min"}
_UNITS = {"add": 0, "mul": 1}
_DTYPES = ("f32", "f64", "i32", "i64")
_MOST = 8 * REDUCTION_PARTS  # elements that are combined at once


def reduced_by(loop: Operation) -> tuple[str, ...] | None:
    """How each value that a loop carries is reduced; None where it does more than that."""
    if loop.name != FOR or not loop.results or len(names_of(loop)) != 1:
        return None
    users = {v: len(u) for v, u in users_of(loop).items()}
    made = definitions_of(loop)
    (region,) = loop.regions
    kinds: list[str] = []
    for at, value in zip(region.arguments[1:], region.terminator.operands, strict=True):
        kind = _kind(at, value, made, users)
        if not kind or not _has_room(at):
            return None
        kinds.append(kind)
    return tuple(kinds)


def _has_room(value: Value) -> bool:
    t, size = value.type, 1
    if isinstance(t, TileType):
        for n in t.shape:
            size *= n if isinstance(n, int) else _MOST + 1
        t = t.dtype
    return isinstance(t, DType) and t.name in _DTYPES and size * REDUCTION_PARTS <= _MOST


def _kind(
    source: Value, value: Value, made: Mapping[Value, Operation], users: Mapping[Value, int]
) -> str:
    """The one operation by which ``value`` comes from ``source``, seen by nobody else on the way;
    "" where there is none."""
    o = made.get(value)
    if o is None or users.get(value, 0) != 1 or users.get(source, 0) != 1:
        return ""
    if o.name == FOR:
        place = o.results.index(value)
        (region,) = o.regions
        axes = len(names_of(o))
        if o.operands[3 * axes + place] is not source:
            return ""
        at = region.arguments[axes + place]
        return _kind(at, region.terminator.operands[place], made, users)
    kind = _KINDS.get(o.name, "")
    if source in o.operands:
        return kind
    inner = [_kind(source, v, made, users) for v in o.operands] if kind else []
    found = [k for k in inner if k]
    return kind if found == [kind] else ""


def in_parts(
    kernel: Operation, plan: LaunchPlan, loops: Sequence[Operation]
) -> tuple[Operation, LaunchPlan]:
    """The kernel with those loops, which only reduce, done in parts."""
    work = _Work(kernel, plan)
    for loop in loops:
        work.split(loop)
    return work.kernel, work.plan


@dataclass(slots=True, eq=False)
class _Work:
    kernel: Operation
    plan: LaunchPlan

    def split(self, loop: Operation) -> None:
        # One that reads what a loop before it reduces is another operation now, of the same
        # results.
        at = next(i for i, o in enumerate(self._operations) if o.results[:1] == loop.results[:1])
        loop = self._operations[at]
        kinds = reduced_by(loop)
        assert kinds is not None
        pointers = [self._memory(v) for v in loop.results]
        b = ScheduleBuilder(loop.span)
        with b.region() as inner:
            views = [
                b.view(p, [b.index(n) for n in self._shape(v)], shape=self._shape(v), mut=True,
                       aligned=True, name=v.name or "parts")
                for p, v in zip(pointers, loop.results, strict=True)
            ]  # fmt: skip
            self._parts(b, loop, kinds, views)
            starts = loop.operands[3:]
            found = [
                self._combined(b, *each)
                for each in zip(loop.results, kinds, views, starts, strict=True)
            ]
        region = self.kernel.regions[0]
        to = dict(zip(loop.results, found, strict=True))
        rest = replace_values(region.operations[at + 1 :], to)
        operations = (*region.operations[:at], *inner.operations, *rest)
        made = Region(region.arguments, operations)
        self.kernel = replace(self.kernel, regions=(made,))

    @property
    def _operations(self) -> Sequence[Operation]:
        return self.kernel.regions[0].operations

    # --- memory ---------------------------------------------------------------------------------

    def _shape(self, value: Value) -> tuple[int, ...]:
        t = value.type
        own = t.sizes if isinstance(t, TileType) else ()
        return (REDUCTION_PARTS, *own)

    def _memory(self, value: Value) -> Value:
        """An argument for the parts of a value: a result that no caller gets."""
        self.kernel, self.plan, pointer = with_array(
            self.kernel, self.plan, f"parts_{value.name}", value.element_dtype, self._shape(value)
        )
        return pointer

    # --- the halves -----------------------------------------------------------------------------

    def _parts(
        self, b: ScheduleBuilder, loop: Operation, kinds: Sequence[str], views: Sequence[Value]
    ) -> None:
        with b.region(("part", loop.operands[0].type)) as body:
            (part,) = body.arguments
            found = part_of(b, loop, kinds, part, REDUCTION_PARTS)
            for value, view in zip(found, views, strict=True):
                t = value.type
                tile = b.expand(value, 0) if isinstance(t, TileType) else b.full(value, (1,))
                shape = self._shape(value)
                zeros = [b.index(0) for _ in shape[1:]]
                sizes = [b.index(n) for n in shape[1:]]
                b.store_tile(tile, view, [part, *zeros], [b.index(1), *sizes])
            b.yield_()
        attributes: dict[str, Attribute] = {"plain": True}
        b.loops([b.index(0)], [b.index(REDUCTION_PARTS)], [b.index(1)], [], body.region, ["part"],
                attributes=attributes)  # fmt: skip

    def _combined(
        self, b: ScheduleBuilder, value: Value, kind: str, view: Value, start: Value
    ) -> Value:
        shape = self._shape(value)
        zeros, sizes = [b.index(0) for _ in shape], [b.index(n) for n in shape]
        tile = b.load_tile(view, zeros, sizes, shape)
        found = b.reduce(kind, tile, b.index(REDUCTION_PARTS), 0, hint=value.name)
        return with_start(b, kind, start, found, value.name)


def part_of(
    b: ScheduleBuilder, loop: Operation, kinds: Sequence[str], part: Value, count: int
) -> tuple[Value, ...]:
    """What one of ``count`` parts of a loop that reduces gives: part p takes every ``count``-th
    iteration from the p-th on."""
    (lower,), (upper,), (step,) = bounds_of(loop)
    first = b.binary("add", lower, b.binary("mul", part, step))
    wide = b.binary("mul", step, b.index(count))
    starts = [_start(b, k, v) for k, v in zip(kinds, loop.operands[3:], strict=True)]
    one = replace(clone_operation(loop, {}), operands=(first, upper, wide, *starts))
    b.append(one)
    return one.results


def _start(b: ScheduleBuilder, kind: str, start: Value) -> Value:
    """What a part begins with: it is taken in once more at the end where that changes nothing."""
    if kind not in _UNITS:
        return start
    t = start.type
    unit = b.constant(_UNITS[kind], start.element_dtype)
    return b.full(unit, t.shape) if isinstance(t, TileType) else unit


def with_start(b: ScheduleBuilder, kind: str, start: Value, found: Value, hint: str) -> Value:
    """What all parts together give, with what the whole began with."""
    return b.binary(kind, start, found, hint=hint) if kind in _UNITS else found


def with_array(
    kernel: Operation, plan: LaunchPlan, name: str, dtype: DType, dims: Sequence[Dim]
) -> tuple[Operation, LaunchPlan, Value]:
    """The kernel with one more argument, the memory of an array that no caller gets."""
    number = len(plan.parameters) + len(plan.results)
    kept = ResultPlan(dtype.name, tuple(dims), kept=True)
    slot = Slot("data", number, dtype=dtype.name)
    plan = replace(plan, results=(*plan.results, kept), slots=(*plan.slots, slot))
    attributes = dict(kernel.attributes)
    for key, more in (("parameters", name), ("hints", 0), ("divisors", VECTOR_BYTES)):
        before = attributes.get(key)
        if isinstance(before, tuple):
            made: Attribute = (*before, more)
            attributes[key] = made
    pointer = Value(PointerType(dtype, "global"), name)
    (region,) = kernel.regions
    region = Region((*region.arguments, pointer), region.operations)
    return replace(kernel, attributes=attributes, regions=(region,)), plan, pointer
