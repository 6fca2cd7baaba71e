"""Tiles that a multiprocessor has no room for are taken in parts.

A program that takes whole rows of 1024 elements as factors and sums asks for more shared memory and
registers than there are. A product of long rows is a loop over parts of its contraction; a result
with long rows is made in parts by neighbours in the grid, each of which computes again what all of
them need. The first holds where a product alone reads its factors from arrays that the kernel does
not write; the second where nothing looks across the rows, and all that is stored is parts of them.

Owns when there is no room, the parts, and the rewriting. Sums take their terms in the same order as
before. Sizes that are open, and kernels whose schedule the user says, stay as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import ARRAY_WRITES, BOXES, effect_of
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.cost.resource_estimate import all_dot_registers
from tessera_lang.opt.schedule.cost.workload import store_bytes
from tessera_lang.opt.schedule.decide.tile_coarsening import CarriedAxes
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    STORE,
    Dot,
    Facts,
    Load,
    Operand,
    facts_of,
    kernel_of,
    open_names,
)
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.opt.schedule.query.unit_legality import element_bits, has_matrix_dtype
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.arch.isa_constants import LINE_BYTES
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import NARROW_COLUMNS, PRODUCT_REGISTERS
from tessera_lang.types.dtype import INDEX


@rewrites
def narrow(program: Program, context: Context) -> Program:
    """The program with the first parts that have room; itself where it has room, or no parts do."""
    kernel, machine = kernel_of(program), context.machine
    said = any(o.endswith("=user") for o in kernel.strings("origins"))
    if machine.target == "cpu" or not machine.has("mma") or said or open_names(kernel):
        return program
    facts = facts_of(kernel)
    if facts.grid is None or not facts.dots or _is_whole(facts, machine):
        return program
    for stages, (made, what) in itertools.product((2, 1), tuple(_narrower(program))):
        if _has_room(facts_of(kernel_of(made)), machine, stages):
            context.note("T0748", f"tiles that do not fit are taken in parts: {what}",
                         facts.grid.span)  # fmt: skip
            return made
    return program


def _is_whole(facts: Facts, machine: Machine) -> bool:
    """Whether there is room as it is. Products of other units than the asynchronous one are shared
    by more warps where registers are too few."""
    units = machine.has("wgmma") and all(map(has_matrix_dtype, facts.dots))
    return _has_room(facts, machine, 1, units)


def _has_room(facts: Facts, machine: Machine, stages: int, sums: bool = True) -> bool:
    """Whether so many places of each factor that a loop brings, and the sums, have room."""
    held = all_dot_registers(facts, {}, machine)
    if sums and held > PRODUCT_REGISTERS:
        return False
    factors = {x.load.operation: x.load for d in facts.dots for x in (d.a, d.b) if x.load}
    shared = sum(
        math.prod(x.tile.sizes) * x.tile.dtype.bytes * (stages if x.loop is not None else 1)
        for x in factors.values()
    )
    for dot in facts.dots:
        computed = [x.value.tile_type for x in (dot.a, dot.b) if x.load is None]
        shared += sum(math.prod(t.sizes) * t.dtype.bytes for t in computed)
    return shared + store_bytes(facts, {}) <= machine.shared_limit


def _narrower(program: Program) -> Iterator[tuple[Program, str]]:
    """Programs with smaller and smaller tiles, and what they are parts of."""
    shorter = _with_short_contractions(program)
    if shorter is not program:
        yield shorter, "products add up parts of their contractions"
    for width in NARROW_COLUMNS:
        made = _Columns.narrowed(kernel_of(program), width)
        if made is None:
            continue
        what = f"{width} columns of a result at a time"
        whole = with_kernel(program, made)
        yield whole, what
        yield _with_short_contractions(whole), f"{what}, from parts of contractions"


# --- contractions --------------------------------------------------------------------------------


def _with_short_contractions(program: Program) -> Program:
    """The program whose products of long contractions are loops."""
    kernel = kernel_of(program)
    facts = facts_of(kernel)
    found = {d.operation: d for d in facts.dots if _may_be_a_loop(d, facts)}
    if not found:
        return program

    def step(o: Operation) -> Replacement | None:
        dot = found.get(o) or next((d for d in found.values() if d.operation.result in o.results
                                    and o.name == DOT), None)  # fmt: skip
        return None if dot is None else _loop(o, dot, facts)

    return tidy(with_kernel(program, rewrite_operation(kernel, step)))


def _line(dot: Dot) -> int:
    return 8 * LINE_BYTES // element_bits(dot)


def _may_be_a_loop(dot: Dot, facts: Facts) -> bool:
    k = dot.shape[2]
    loads = [x.load for x in (dot.a, dot.b)]
    if not isinstance(k, int) or k < 2 * _line(dot) or any(x is None for x in loads):
        return False
    written = {facts.definitions[o.operands[1]].operands[0] for o, _ in facts.stores}
    for operand in (dot.a, dot.b):
        load = operand.load
        assert load is not None
        access, axis = access_of(load.operation), _contraction(operand, dot)
        plain = len(access.tile.shape) == 2 and set(access.steps) == {1}
        tiles = any(isinstance(v.type, TileType) for v in access.starts)
        whole = facts.constant(access.extents[axis]) == k if plain else False
        if not whole or tiles or not _is_read_by(load, dot, facts):
            return False
        if facts.definitions[load.view].operands[0] in written:
            return False
    return True


def _contraction(operand: Operand, dot: Dot) -> int:
    """The axis of what is loaded that a product contracts."""
    first = 1 if operand is dot.a else 0
    return 1 - first if operand.swapped else first


def _is_read_by(load: Load, dot: Dot, facts: Facts) -> bool:
    """Whether a tile has no other use than this product."""
    todo = [load.operation.result]
    while todo:
        for user in facts.users.get(todo.pop(), []):
            if user is dot.operation:
                continue
            if len(user.results) != 1 or user.result not in (dot.a.value, dot.b.value):
                return False
            todo.append(user.result)
    return True


def _loop(o: Operation, dot: Dot, facts: Facts) -> Replacement:
    """A product as a loop over lines of its contraction. ``o``: the product as it is now."""
    b = ScheduleBuilder(o.span)
    k, line = dot.shape[2], _line(dot)
    assert isinstance(k, int)
    with b.region() as outer:
        first, last, step = b.index(0), b.index(k), b.index(line)
        total = o.operands[2]
        with b.region(("part", INDEX), (total.name or "sum", total.type)) as body:
            at, held = body.arguments
            extent = step if k % line == 0 else b.binary("min", step, b.binary("sub", last, at))
            a, c = (
                _part(b, x, _contraction(x, dot), at, extent, (line, k % line != 0))
                for x in (dot.a, dot.b)
            )
            precision = str(o.attributes["precision"])
            b.yield_(b.dot(a, c, held, precision))
        (result,) = b.loops([first], [last], [step], [total], body.region, ["part"],
                            mapping=["loop"], names=[o.result.name])  # fmt: skip
    return Replacement(tuple(outer.operations), (result,))


def _part(
    b: ScheduleBuilder, operand: Operand, axis: int, at: Value, extent: Value,
    line: tuple[int, bool],
) -> Value:  # fmt: skip
    """A line of a factor; ``line``: its elements, and whether the last has fewer."""
    assert operand.load is not None
    access = access_of(operand.load.operation)
    starts, extents = list(access.starts), list(access.extents)
    dim = access.dims[axis]
    starts[dim] = b.binary("add", starts[dim], at)
    extents[axis] = extent
    shape = list(access.tile.shape)
    shape[axis] = line[0]
    filled = line[1] or bool(operand.load.operation.attributes.get("filled"))
    tile = b.load_tile(access.view, starts, extents, shape, dims=access.dims, steps=access.steps,
                       hint=operand.load.operation.result.name, filled=filled)  # fmt: skip
    return b.transpose(tile, (1, 0)) if operand.swapped else tile


# --- columns -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Columns:
    """The columns of the widest sums, ``size`` of them, that all of them begin with."""

    facts: Facts
    axes: CarriedAxes
    axis: tuple[Value, int]
    size: int
    width: int
    made: dict[Value, Value] = field(default_factory=dict[Value, Value])
    variable: Value = field(default_factory=lambda: Value(INDEX, "columns"))
    extent: Value = field(default_factory=lambda: Value(INDEX, "extent"))

    @staticmethod
    def narrowed(kernel: Operation, width: int) -> Operation | None:
        """The kernel with another axis of its grid; None where columns are not independent."""
        facts = facts_of(kernel)
        wide = max(facts.dots, key=lambda d: int(d.shape[1]))
        size = int(wide.shape[1])
        if size <= width:
            return None
        axes = CarriedAxes(kernel)
        axis = axes.find((wide.operation.result, 1))
        found = _Columns(facts, axes, axis, size, width)
        return found._operation(kernel)[-1] if found._holds() else None

    def _holds(self) -> bool:
        if self.axes.looks_at(self.axis):
            return False
        for o in self.facts.kernel.walk():
            values = [*o.results, *(v for r in o.regions for v in r.arguments)]
            if any((at := self._along(v)) is not None
                   and v.tile_type.shape[at] != self.size for v in values):  # fmt: skip
                return False
            if any(self._twice(v) for v in values):
                return False
            if not self._may_be_repeated(o) or not self._fits(o):
                return False
        return True

    def _may_be_repeated(self, o: Operation) -> bool:
        """Whether neighbours may all do it: what is written are their own columns."""
        if o.name in ARRAY_WRITES:
            return o.name == STORE and self._along(o.operands[0]) is not None
        return bool(o.regions) or effect_of(o) not in ("write", "update")

    def _fits(self, o: Operation) -> bool:
        if o.name not in BOXES:
            return o.name != "tessera.schedule.iota" or self._along(o.result) != o.attributes.get(
                "axis"
            )
        tile = o.results[0] if o.results else o.operands[0]
        axis = self._along(tile)
        if axis is None:
            return True
        access = access_of(o)
        whole = self.facts.constant(access.extents[axis]) == self.size
        begins = access.starts[access.dims[axis]]
        return whole and access.steps[axis] == 1 and not isinstance(begins.type, TileType)

    def _along(self, tile: Value) -> int | None:
        if not isinstance(tile.type, TileType):
            return None
        rank = len(tile.type.shape)
        return next((i for i in range(rank) if self.axes.find((tile, i)) == self.axis), None)

    def _twice(self, tile: Value) -> bool:
        rank = len(tile.type.shape) if isinstance(tile.type, TileType) else 0
        return sum(self.axes.find((tile, i)) == self.axis for i in range(rank)) > 1

    def _new(self, value: Value) -> Value:
        axis = self._along(value)
        if axis is None or not isinstance(value.type, TileType):
            return value
        shape = (*value.type.shape[:axis], self.width, *value.type.shape[axis + 1 :])
        return self.made.setdefault(value, Value(replace(value.type, shape=shape), value.name))

    def _operation(self, o: Operation) -> list[Operation]:
        operands = [self.made.get(v, v) for v in o.operands]
        before: list[Operation] = []
        if o is self.facts.grid:
            return self._grid(o, operands)
        tile = (o.results[0] if o.results else o.operands[0]) if o.name in BOXES else None
        axis = None if tile is None else self._along(tile)
        if axis is not None:
            at = next(i for i, v in enumerate(o.operands) if isinstance(v.type, ViewType))
            rank, dim = len(o.operands[at].view_type.shape), o.integers("dims")[axis]
            begins = operands[at + 1 + dim]
            if self.facts.constant(begins) == 0:
                operands[at + 1 + dim] = self.variable
            else:
                moved = Operation("tile.add", (begins, self.variable), (Value(INDEX),))
                operands[at + 1 + dim] = moved.result
                before = [moved]
            operands[at + 1 + rank + axis] = self.extent
        results = tuple(self._new(v) for v in o.results)
        regions = tuple(self._region(r) for r in o.regions)
        return [*before, replace(o, operands=tuple(operands), results=results, regions=regions)]

    def _region(self, region: Region) -> Region:
        arguments = tuple(self._new(v) for v in region.arguments)
        return Region(arguments, tuple(x for o in region.operations for x in self._operation(o)))

    def _grid(self, o: Operation, operands: list[Value]) -> list[Operation]:
        """The grid with the parts as its last axis."""
        n = len(o.strings("axes"))
        low, high, by = (Operation("tile.constant", (), (Value(INDEX),), {"value": x})
                         for x in (0, self.size, self.width))  # fmt: skip
        bounds = zip((0, n, 2 * n), (low, high, by), strict=True)
        wide = [v for at, one in bounds for v in (*operands[at : at + n], one.result)]
        body = self._region(o.regions[0])
        arguments = (*body.arguments[:n], self.variable, *body.arguments[n:])
        ending: list[Operation] = []
        if self.size % self.width == 0:
            ending = [Operation("tile.constant", (), (self.extent,), {"value": self.width})]
        else:
            gap = Operation("tile.sub", (high.result, self.variable), (Value(INDEX),))
            ending = [gap, Operation("tile.min", (by.result, gap.result), (self.extent,))]
        attributes = dict(o.attributes)
        attributes["axes"] = (*o.strings("axes"), "columns")
        attributes["mapping"] = (*o.strings("mapping"), "grid")
        region = Region(arguments, (*ending, *body.operations))
        made = replace(o, operands=(*wide, *operands[3 * n :]), attributes=attributes,
                       regions=(region,))  # fmt: skip
        return [low, high, by, made]
