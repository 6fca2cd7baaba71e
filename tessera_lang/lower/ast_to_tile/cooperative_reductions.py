"""Reductions that the lanes of a group would all run alike, dealt out to them.

Where all lanes get to a loop over elements, with the same bounds and places, each takes its share
of the elements; the parts meet in their warps and then in shared memory, and every lane gets the
result. Others stay as they are: each lane for itself. Must not know the source, nor what the
elements are.

**The order.** Lane l takes elements l, l + lanes, ... of one axis, in order. In each warp lane l
takes in lane l + 16, then l + 8, 4, 2, 1, where that lane exists; what the first lanes have then is
combined in the order of warps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import cast

from tessera_lang.analysis import uniformity
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Attribute, BufferType, Operation, Program, Region, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.ast_to_tile.context import ElementLoop
from tessera_lang.lower.ast_to_tile.slice_reductions import met
from tessera_lang.lower.ast_to_tile.warps import (
    WARP,
    WARP_KINDS,
    reduced_in_warp,
    shuffled_in_warp,
)
from tessera_lang.record import dataclass, field, replace
from tessera_lang.source import Span
from tessera_lang.target.tuned_constants import SHORT_LOOP
from tessera_lang.types.dtype import INDEX, DType


def share_loops(program: Program, loops: Sequence[ElementLoop]) -> Program:
    """The program with those loops dealt out that may be."""
    (kernel,) = program.operations
    lanes = prod(kernel.integers("group"))
    waiting = [x for x in loops if _is_long(x.most)]
    if lanes == 1 or not waiting:
        return program
    sharing = _Sharing(lanes)
    while waiting:
        known = uniformity(kernel)
        ready = [x for x in waiting if _is_common(x.operation, known)]
        if not ready:
            break
        waiting = [x for x in waiting if x not in ready]
        kernel = sharing.apply(kernel, ready)
    region = kernel.regions[0]
    if sharing.buffers:
        made = (*sharing.allocations, *region.operations)
        kernel = replace(kernel, regions=(replace(region, operations=made),))
    return replace(program, operations=(kernel,))


def _is_long(most: tuple[int | None, ...]) -> bool:
    return any(n is None for n in most) or prod(cast("tuple[int, ...]", most)) > SHORT_LOOP


def _is_common(loop: Operation, known: Uniformity) -> bool:
    """Whether all lanes get there, with the same bounds and places: the elements themselves are
    read behind a barrier, where memory is the same for all. What a lane has of its own is not."""
    return (
        loop in known.definitions.values()
        and loop not in known.divergent
        and all(known.is_uniform(v) and not _is_own(v) for v in _outside(loop))
    )


def _is_own(value: Value) -> bool:
    return isinstance(value.type, BufferType) and value.type.space == "local"


def _outside(loop: Operation) -> Iterator[Value]:
    inside = {v for o in loop.walk() for v in o.results}
    inside |= {v for o in loop.walk() for r in o.regions for v in r.arguments}
    for o in loop.walk():
        yield from (v for v in o.operands if v not in inside)


@dataclass(slots=True)
class _Sharing:
    lanes: int
    buffers: dict[tuple[DType, int], Value] = field(default_factory=dict[tuple[DType, int], Value])
    allocations: list[Operation] = field(default_factory=list[Operation])

    def apply(self, kernel: Operation, loops: Sequence[ElementLoop]) -> Operation:
        chosen = {x.operation: x for x in loops}

        def step(operation: Operation) -> Replacement | None:
            loop = chosen.get(operation)
            if loop is None:
                return None
            return Replacement(self._shared(loop), operation.results)

        return rewrite_operation(kernel, step)

    def _shared(self, loop: ElementLoop) -> tuple[Operation, ...]:
        """What is read may have been written by other lanes, and the buffers may still be read
        for the reduction before: hence the first barrier."""
        b = Builder(loop.operation.span)
        with b.region() as made:
            b.barrier()
            lane = b.lane_linear()
            dealt = _dealt(b, loop.operation, _longest(loop.most), lane, self.lanes)
            parts = b.append(dealt).results
            buffers = [self._buffer(v, i, b.span) for i, v in enumerate(parts)]
            self._in_warps(b, loop.kind, lane, parts, buffers)
            b.barrier()
            b.append(_together(b, loop, buffers, -(-self.lanes // WARP)))
        return tuple(made.operations)

    def _in_warps(
        self, b: Builder, kind: str, lane: Value, parts: Sequence[Value], buffers: Sequence[Value]
    ) -> None:
        """The parts of each warp as one, in the buffers at its number."""
        within = b.binary("and", lane, b.index(WARP - 1))
        if kind in WARP_KINDS and not _saturates(cast("DType", parts[0].type)):
            total = (reduced_in_warp(b, kind, parts[0]),)
        else:
            total = tuple(parts)
            for distance in (16, 8, 4, 2, 1):
                total = self._taken_in(b, kind, lane, within, total, distance)
        with b.region() as first:
            warp = b.binary("shr", lane, b.index(5))
            for value, buffer in zip(total, buffers, strict=True):
                b.store(value, buffer, [warp], "proved")
            b.yield_()
        with b.region() as others:
            b.yield_()
        b.if_(b.cmp("eq", within, b.index(0)), first.region, others.region)

    def _taken_in(
        self, b: Builder, kind: str, lane: Value, within: Value, held: Sequence[Value],
        distance: int,
    ) -> tuple[Value, ...]:  # fmt: skip
        """What a lane has, with that of the lane so far behind it in the warp where it exists."""
        other = b.binary("add", lane, b.index(distance))
        there = b.cmp("lt", b.binary("add", within, b.index(distance)), b.index(WARP))
        if self.lanes % WARP:
            there = b.binary("and", there, b.cmp("lt", other, b.index(self.lanes)))
        both = met(b, kind, held, [shuffled_in_warp(b, v, other) for v in held])
        return tuple(b.select(there, new, old) for new, old in zip(both, held, strict=True))

    def _buffer(self, part: Value, number: int, span: Span | None) -> Value:
        """One for each dtype, and one more for the places of a loop that looks for them."""
        dtype = cast("DType", part.type)
        if (dtype, number) not in self.buffers:
            name = f"{'places' if number else 'parts'}_{dtype.name}"
            made = Value(BufferType(dtype, (-(-self.lanes // WARP),)), name)
            attributes: dict[str, Attribute] = {"name": name, "scratch": True}
            alloc = Operation("tile.shared.alloc", (), (made,), attributes, (), span)
            self.allocations.append(alloc)
            self.buffers[dtype, number] = made
        return self.buffers[dtype, number]


def _saturates(dtype: DType) -> bool:
    """Whether an infinity of the dtype does not come back from f32."""
    return dtype.is_float and dtype.bits < 16


def _longest(most: tuple[int | None, ...]) -> int:
    """The axis that is dealt out: the longest, the last of equals. One that is open is long."""
    far = 1 << 62
    return max(range(len(most)), key=lambda i: (far if most[i] is None else most[i], i))


def _dealt(b: Builder, loop: Operation, depth: int, lane: Value, lanes: int) -> Operation:
    """The nest with new results, whose loop at ``depth`` begins at the lane and steps by all."""
    fresh = tuple(Value(v.type, "part") for v in loop.results)
    region = loop.regions[0]
    if depth == 0:
        lower, upper, _, *carried = loop.operands
        operands = (b.binary("add", lower, lane), upper, b.index(lanes), *carried)
        return replace(loop, operands=operands, results=fresh)
    inner = next(o for o in reversed(region.operations) if o.name == "tile.for")
    with b.region() as body:
        for o in region.operations[: region.operations.index(inner)]:
            b.append(o)
        made = b.append(_dealt(b, inner, depth - 1, lane, lanes))
        b.yield_(*made.results)
    again = Region(region.arguments, tuple(body.operations))
    return replace(loop, results=fresh, regions=(again,))


def _together(b: Builder, loop: ElementLoop, buffers: Sequence[Value], count: int) -> Operation:
    """The parts in order, by every lane: with the results of the loop that was."""
    start = loop.operation.operands[3:]
    hints = [(v.name or "total", v.type) for v in loop.operation.results]
    with b.region(("l", INDEX), *hints) as body:
        at, *total = body.arguments
        new = [_same_for_all(b, x, at) for x in buffers]
        b.yield_(*met(b, loop.kind, total, new))
    operands = (b.index(0), b.index(count), b.index(1), *start)
    return Operation(
        "tile.for", operands, loop.operation.results, {"site": -1}, (body.region,), b.span
    )


def _same_for_all(b: Builder, buffer: Value, at: Value) -> Value:
    t = cast("BufferType", buffer.type)
    attributes: dict[str, Attribute] = {"bounds": "proved", "site": -1, "uniform": True}
    return b.emit("tile.load", (buffer, at), (t.dtype,), attributes).result
