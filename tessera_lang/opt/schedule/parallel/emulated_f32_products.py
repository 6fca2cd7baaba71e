"""Products of f32 as products of bf16: each factor is a sum of three of them.

A matrix unit multiplies bf16 sixteen times as fast as lanes multiply f32. Each part of a number has
the next eight bits of it, and three have all. Of the nine products of parts the three smallest are
left out: at most 2**-21 of the product. The others are added from the least on, a step of the
contraction at a time, and these sums in f32 outside the unit, which drops bits of what it adds: so
errors of sums are those of multiplying and adding in f32, or less. Parts of an array are made once,
in arrays of the call, by a loop like one that a user would write.

Owns products of precision ``f32x3``: which are split (of arrays that the kernel only reads; the
others are exact), and the loops. Must not know a machine.
"""

from __future__ import annotations

import math

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, PointerType, Program, Region, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.parallel.operand_packing import dims_of, with_arguments
from tessera_lang.opt.schedule.query.copy_rules import array_name
from tessera_lang.opt.schedule.query.kernel_facts import (
    DOT,
    TRANSPOSE,
    Dot,
    Facts,
    Load,
    Operand,
    facts_of,
)
from tessera_lang.opt.schedule.query.producer_lane_copies import is_written
from tessera_lang.record import dataclass, field, replace
from tessera_lang.target.launch_plan import LaunchPlan, ResultPlan, Slot
from tessera_lang.target.tuned_constants import SPLIT_COLUMNS, SPLIT_ROWS
from tessera_lang.types.dtype import BF16, F32, INDEX, U32
from tessera_lang.types.shape import Dim

Parts = tuple[Value, Value, Value]


def emulated_f32_products(
    program: Program, plan: LaunchPlan, remarks: list[Diagnostic]
) -> tuple[Program, LaunchPlan]:
    """The program without products of that precision, and the plan with the arrays of parts."""
    (kernel,) = program.operations
    if not any(o.attributes.get("precision") == "f32x3" for o in kernel.walk()):
        return program, plan
    facts = facts_of(kernel)
    work = _Work(kernel, plan, facts)
    for dot in facts.dots:
        if dot.operation.attributes["precision"] == "f32x3":
            reason = work.take(dot)
            if reason:
                remarks.append(Diagnostic(
                    "T0743", f"this product is computed exactly, element by element: {reason}",
                    dot.operation.span, severity="note",
                ))  # fmt: skip
    return replace(program, operations=(work.run(),)), work.plan


@dataclass(slots=True, eq=False)
class _Work:
    """``split``: the products; ``parts``: by a view that they read those of its parts, and
    ``before``: by what makes such a view the loop that makes these."""

    kernel: Operation
    plan: LaunchPlan
    facts: Facts
    split: dict[Value, Dot] = field(default_factory=dict[Value, Dot])
    parts: dict[Value, Parts] = field(default_factory=dict[Value, Parts])
    before: dict[Operation, tuple[Operation, ...]] = field(
        default_factory=dict[Operation, tuple[Operation, ...]]
    )
    pointers: list[Value] = field(default_factory=list[Value])

    def take(self, dot: Dot) -> str:
        """Makes arrays of parts for a product; why not, where it is not split."""
        dims: list[tuple[Dim, ...]] = []
        loads: list[Load] = []
        for operand in (dot.a, dot.b):
            load, reason = operand.load, self._reason(operand)
            if reason or load is None:
                return reason or "a factor is computed"
            loads.append(load)
            known = dims_of(self.facts.definitions[load.view], self.facts, self.plan)
            if known is None:
                return "a factor is of an array whose sizes are no sizes of arguments"
            dims.append(known)
        for load, known in zip(loads, dims, strict=True):
            if load.view not in self.parts:
                self._make(load, known)
        self.split[dot.operation.result] = dot
        return ""

    def _reason(self, operand: Operand) -> str:
        load, facts = operand.load, self.facts
        if load is None:
            return "a factor is computed"
        at = operand.value
        while at is not load.operation.result:
            made = facts.definitions[at]
            if made.name != TRANSPOSE:
                return "a factor is staged by hand"
            at = made.operands[0]
        name = array_name(facts, load.view)
        if is_written(load.operation, facts):
            return f"this kernel also writes `{name}`"
        made, t = facts.definitions[load.view], load.view.view_type
        if made not in self.kernel.regions[0].operations or not t.contiguous or len(t.shape) < 2:
            return f"`{name}` is no array of several axes that lies row by row"
        return ""

    # --- the arrays of parts ------------------------------------------------------------------

    def _make(self, load: Load, dims: tuple[Dim, ...]) -> None:
        made = self.facts.definitions[load.view]
        b = ScheduleBuilder(load.operation.span)
        with b.region() as region:
            one, two, three = (self._view(b, made, dims, n) for n in range(3))
            self._fill(b, made, (one, two, three))
        self.parts[load.view] = (one, two, three)
        self.before[made] = region.region.operations

    def _view(
        self, b: ScheduleBuilder, made: Operation, dims: tuple[Dim, ...], number: int
    ) -> Value:  # fmt: skip
        """A view of memory of the call, with the sizes of the array."""
        plan, name = self.plan, f"{made.result.name or 'array'}_part{number}"
        slot = Slot("data", len(plan.parameters) + len(plan.results), dtype=BF16.name)
        kept = ResultPlan(BF16.name, dims, kept=True)
        self.plan = replace(plan, results=(*plan.results, kept), slots=(*plan.slots, slot))
        pointer = Value(PointerType(BF16, "global"), f"{name}.data")
        self.pointers.append(pointer)
        t = made.result.view_type
        return b.view(pointer, made.operands[1:], shape=t.shape, mut=True, aligned=True, name=name)

    def _fill(self, b: ScheduleBuilder, made: Operation, parts: Parts) -> None:
        """The loop over all elements."""
        sizes = made.operands[1:]
        rank = len(sizes)
        steps = [1] * (rank - 2) + [SPLIT_ROWS, SPLIT_COLUMNS]
        dims = (rank - 2, rank - 1)
        with b.region(*((f"d{d}", INDEX) for d in range(rank))) as body:
            at = body.arguments
            extents = [self._extent(b, sizes[d], at[d], steps[d]) for d in dims]
            shape = (SPLIT_ROWS, SPLIT_COLUMNS)
            tile = b.load_tile(made.result, at, extents, shape, dims=dims, hint="part")
            for part, view in zip(_parts(b, tile), parts, strict=True):
                b.store_tile(part, view, at, extents, dims=dims)
            b.yield_()
        names = [f"d{d}" for d in range(rank)]
        numbers = [b.index(n) for n in steps]
        b.loops([b.index(0)] * rank, list(sizes), numbers, [], body.region, names)

    def _extent(self, b: ScheduleBuilder, size: Value, at: Value, step: int) -> Value:
        known = self.facts.constant(size)
        if known is None and size in self.facts.arguments:
            place, divisors = self.facts.arguments.index(size), self.kernel.integers("divisors")
            known = divisors[place] if place < len(divisors) else None
        if known is not None and known % step == 0:
            return b.index(step)
        return b.binary("min", b.index(step), b.binary("sub", size, at))

    # --- the products ---------------------------------------------------------------------------

    def run(self) -> Operation:
        kernel = rewrite_operation(self.kernel, self._step)
        region = kernel.regions[0]
        operations: list[Operation] = []
        for o in region.operations:
            operations += (o, *self.before.get(o, ()))
        body = Region((*region.arguments, *self.pointers), tuple(operations))
        attributes = with_arguments(self.kernel, self.pointers)
        return replace(kernel, regions=(body,), attributes=attributes)

    def _step(self, o: Operation) -> Replacement | Operation | None:
        if o.name != DOT or o.attributes["precision"] != "f32x3":
            return None
        dot = self.split.get(o.result)
        if dot is None:
            return replace(o, attributes={**o.attributes, "precision": "exact"})
        b = ScheduleBuilder(o.span)
        with b.region() as made:
            x, y = self._factor(b, dot.a), self._factor(b, dot.b)
            t = o.result.tile_type
            total = b.full(b.constant(0.0, t.dtype), t.shape)
            for i, j in ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)):
                total = b.dot(x[i], y[j], total, "exact")
            result = b.binary("add", o.operands[2], total)
            b.yield_()
        return Replacement(made.region.operations[:-1], (result,))

    def _factor(self, b: ScheduleBuilder, operand: Operand) -> list[Value]:
        """The three parts of a factor, from where the factor is read."""
        load = operand.load
        assert load is not None
        found: list[Value] = []
        for view in self.parts[load.view]:
            tile = Value(replace(load.tile, dtype=BF16), load.operation.result.name)
            read = replace(load.operation, operands=(view, *load.operation.operands[1:]),
                           results=(tile,))  # fmt: skip
            b.append(read)
            found.append(self._turned(b, operand.value, load, tile))
        return found

    def _turned(self, b: ScheduleBuilder, value: Value, load: Load, tile: Value) -> Value:
        """As ``value`` is of what the load gives: the transposes between them."""
        if value is load.operation.result:
            return tile
        made = self.facts.definitions[value]
        inner = self._turned(b, made.operands[0], load, tile)
        return b.transpose(inner, made.integers("permutation"))


def _parts(b: ScheduleBuilder, tile: Value) -> Parts:
    """All parts have the sign of the number, so that what overflows is an infinity and no NaN. An
    infinity is in the third part, with 1 of its sign as the first: so it meets the first part of
    what it is multiplied by alone, which is not 0 unless that is."""
    shape = tile.tile_type.shape

    def number(value: float) -> Value:
        return b.full(b.constant(value, F32), shape)

    above, below = b.cmp("eq", tile, number(math.inf)), b.cmp("eq", tile, number(-math.inf))
    infinite = b.binary("or", above, below)
    first = b.select(above, number(1.0), b.select(below, number(-1.0), _upper(b, tile)))
    rest = b.select(infinite, number(0.0), b.binary("sub", tile, first))
    second = _upper(b, rest)
    third = b.select(infinite, tile, b.binary("sub", rest, second))
    return b.cast(first, BF16), b.cast(second, BF16), b.cast(third, BF16)


def _upper(b: ScheduleBuilder, tile: Value) -> Value:
    """The number without the bits that a bf16 has not. A NaN stays one in the parts behind."""
    dropped = F32.bits - BF16.bits
    bits = b.full(b.constant((1 << F32.bits) - (1 << dropped), U32), tile.tile_type.shape)
    return b.bitcast(b.binary("and", b.bitcast(tile, U32), bits), F32)
